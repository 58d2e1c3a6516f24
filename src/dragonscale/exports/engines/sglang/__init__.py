"""SGLang: `python -m sglang.launch_server`."""

from dragonscale.exports.engines.sglang.read_sglang import read, recognises
from dragonscale.exports.engines.sglang.write_sglang import write

__all__ = ["read", "recognises", "write"]
