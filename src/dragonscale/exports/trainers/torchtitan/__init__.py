"""torchtitan: a command with a flag for each setting, and a small Python file where flags do not reach."""

from dragonscale.exports.trainers.torchtitan.read_torchtitan import read, recognises
from dragonscale.exports.trainers.torchtitan.write_torchtitan import write

__all__ = ["read", "recognises", "write"]
