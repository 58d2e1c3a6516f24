"""Hugging Face accelerate with the Trainer of transformers."""

from dragonscale.exports.trainers.accelerate.read_accelerate import read, recognises
from dragonscale.exports.trainers.accelerate.write_accelerate import write

__all__ = ["read", "recognises", "write"]
