"""SGLang: `python -m sglang.launch_server`."""

from dragonscale.exports.engines.sglang.reader import read, recognises
from dragonscale.exports.engines.sglang.writer import write

__all__ = ["read", "recognises", "write"]
