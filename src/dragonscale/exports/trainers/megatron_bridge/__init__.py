"""Megatron-Bridge: a Python file that makes its `ConfigContainer` and trains."""

from dragonscale.exports.trainers.megatron_bridge.read_megatron_bridge import read, recognises
from dragonscale.exports.trainers.megatron_bridge.write_megatron_bridge import write

__all__ = ["read", "recognises", "write"]
