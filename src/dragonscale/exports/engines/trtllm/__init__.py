"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`."""

from dragonscale.exports.engines.trtllm.read_trtllm import read, recognises
from dragonscale.exports.engines.trtllm.write_trtllm import write

__all__ = ["read", "recognises", "write"]
