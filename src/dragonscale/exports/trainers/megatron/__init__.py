"""Megatron-LM: the arguments of its `pretrain_gpt.py`, one process for each chip."""

from dragonscale.exports.trainers.megatron.read_megatron import read, recognises
from dragonscale.exports.trainers.megatron.write_megatron import write

__all__ = ["read", "recognises", "write"]
