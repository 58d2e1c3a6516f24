"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`."""

from dragonscale.exports.engines.trtllm.reader import read, recognises
from dragonscale.exports.engines.trtllm.writer import write

__all__ = ["read", "recognises", "write"]
