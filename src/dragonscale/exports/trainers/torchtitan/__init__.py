"""torchtitan: a command with a flag for each setting, and a small Python file where flags do not reach."""

from dragonscale.exports.trainers.torchtitan.reader import read, recognises
from dragonscale.exports.trainers.torchtitan.writer import write

__all__ = ["read", "recognises", "write"]
