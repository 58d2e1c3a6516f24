"""Hugging Face accelerate with the Trainer of transformers."""

from dragonscale.exports.trainers.accelerate.reader import read, recognises
from dragonscale.exports.trainers.accelerate.writer import write

__all__ = ["read", "recognises", "write"]
