"""DeepSpeed: a config in JSON, and the Hugging Face Trainer that trains by it."""

from dragonscale.exports.trainers.deepspeed.read_deepspeed import read, recognises
from dragonscale.exports.trainers.deepspeed.write_deepspeed import write

__all__ = ["read", "recognises", "write"]
