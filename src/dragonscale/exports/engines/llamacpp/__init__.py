"""llama.cpp: `llama-server` on the GPUs of one host."""

from dragonscale.exports.engines.llamacpp.read_llamacpp import read, recognises
from dragonscale.exports.engines.llamacpp.write_llamacpp import write

__all__ = ["read", "recognises", "write"]
