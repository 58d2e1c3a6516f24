"""Megatron-LM: the arguments of its `pretrain_gpt.py`, one process for each chip."""

from dragonscale.exports.trainers.megatron.reader import read, recognises
from dragonscale.exports.trainers.megatron.writer import write

__all__ = ["read", "recognises", "write"]
