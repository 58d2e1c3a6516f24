"""DeepSpeed: a config in JSON, and the Hugging Face Trainer that trains by it."""

from dragonscale.exports.trainers.deepspeed.reader import read, recognises
from dragonscale.exports.trainers.deepspeed.writer import write

__all__ = ["read", "recognises", "write"]
