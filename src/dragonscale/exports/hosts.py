"""Hosts of a slice: how many, and how many chips each has, as launchers count them.

>>> from dragonscale.physics.hardware import parse_slice
>>> [hosts_of(parse_slice(text)) for text in ("h100:4", "h100:16", "gb200:16", "v5e:2x4", "v5e:4x4", "v5p:4x4x4*2")]
[(1, 4), (2, 8), (4, 4), (1, 8), (4, 4), (32, 4)]
"""

from dragonscale.physics.hardware import Slice


def hosts_of(piece: Slice) -> tuple[int, int]:
    """Hosts (virtual machines of a TPU slice, trays of a rack), and chips of each."""
    hosts = piece.vms
    return hosts, -(-piece.chips // hosts)
