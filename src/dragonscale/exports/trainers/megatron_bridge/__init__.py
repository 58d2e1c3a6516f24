"""Megatron-Bridge: a Python file that makes its `ConfigContainer` and trains."""

from dragonscale.exports.trainers.megatron_bridge.reader import read, recognises
from dragonscale.exports.trainers.megatron_bridge.writer import write

__all__ = ["read", "recognises", "write"]
