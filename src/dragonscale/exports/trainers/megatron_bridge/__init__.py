"""Megatron-Bridge: a Python file that makes its `ConfigContainer` and trains."""

from dragonscale.exports.trainers.megatron_bridge.writer import read, recognises, write

__all__ = ["read", "recognises", "write"]
