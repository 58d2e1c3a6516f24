"""vLLM on GPUs: `vllm serve`, one process for each host of a replica."""

from dragonscale.exports.engines.vllm.reader import read, recognises
from dragonscale.exports.engines.vllm.writer import write

__all__ = ["read", "recognises", "write"]
