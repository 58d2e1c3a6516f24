"""MaxText: a YAML file over its `base.yml`, and one process on each host that trains by it."""

from dragonscale.exports.trainers.maxtext.read_maxtext import read, recognises
from dragonscale.exports.trainers.maxtext.write_maxtext import write

__all__ = ["read", "recognises", "write"]
