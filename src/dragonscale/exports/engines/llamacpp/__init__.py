"""llama.cpp: `llama-server` on the GPUs of one host."""

from dragonscale.exports.engines.llamacpp.reader import read, recognises
from dragonscale.exports.engines.llamacpp.writer import write

__all__ = ["read", "recognises", "write"]
