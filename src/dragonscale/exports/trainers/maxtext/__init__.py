"""MaxText: a YAML file over its `base.yml`, and one process on each host that trains by it."""

from dragonscale.exports.trainers.maxtext.reader import read, recognises
from dragonscale.exports.trainers.maxtext.writer import write

__all__ = ["read", "recognises", "write"]
