"""A collective under switches, tier by tier: how long each tier needs, which one binds, and its switches' traffic.

`collective_time` gives the slowest tier alone. Here every tier is timed as if the others were infinitely fast, and the
bytes that enter and leave one switch are counted.

>>> from dragonscale.physics.hardware import load_chip
>>> superpod = Switches(1024, load_chip("h100").network.levels)
>>> exact = Options(exact=True)
>>> {
...     name: f"{1 / seconds / 1e9:.0f} GB/s"
...     for name, seconds in tier_seconds("all_gather", 1.0, superpod, exact).items()
... }
{'node': '514 GB/s', 'leaf': '413 GB/s', 'spine': '17067 GB/s'}
"""

import math
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, unknown
from dragonscale.physics.collectives.cost import BOOK, KINDS, Options, collective_time
from dragonscale.physics.collectives.group import Switches
from dragonscale.physics.numbers import Number, product


def tier_seconds(kind: str, volume: Number, group: Switches, options: Options = BOOK) -> dict[str, Number]:
    """The bandwidth term of each tier, lowest first; the largest is that of the collective."""
    seconds: dict[str, Number] = {}
    unlimited = tuple(replace(level, bandwidth=math.inf) for level in group.levels)
    for tier, level in enumerate(group.levels):
        # the same network with infinite bandwidth on every other tier
        only_this = replace(group, levels=(*unlimited[:tier], level, *unlimited[tier + 1 :]))
        seconds[level.name] = collective_time(kind, volume, only_this, options).bandwidth
    return seconds


@dataclass(frozen=True)
class SwitchTraffic:
    """Bytes that enter and leave the switches of one group of a tier, from below and above together."""

    ingress: Number
    egress: Number


def switch_traffic(kind: str, volume: Number, fans: tuple[Number, ...], tier: int = 0) -> SwitchTraffic:
    """Bytes through the switches of one group of a tier, if every byte passes them only once.

    `fans` are the children that take part at each tier, lowest first: (8,) is a node alone, (8, 32) a scalable unit.
    The switches copy what several children want (multicast) and add what several children send (SHARP), so an AllGather
    enters a switch once and leaves it towards each child, and a ReduceScatter is the reverse.

    >>> switch_traffic("all_gather", 1e9, (8, 32), tier=0), switch_traffic("all_gather", 1e9, (8, 32), tier=1)
    (SwitchTraffic(ingress=1000000000.0, egress=8000000000.0), SwitchTraffic(ingress=1000000000.0,
    egress=31000000000.0))
    >>> switch_traffic("all_reduce", 1e9, (8,))
    SwitchTraffic(ingress=8000000000.0, egress=8000000000.0)
    """
    if kind not in KINDS:
        raise unknown("collective", kind, KINDS)
    if not 0 <= tier < len(fans):
        raise InputError(f"There is no tier {tier}; the group crosses {len(fans)}, counted from 0.")
    children = fans[tier]
    child = product(fans[:tier]) / product(fans)  # the fraction of the array that is sharded over one child's chips
    local = child * children  # and over all chips below these switches
    has_above = int(tier < len(fans) - 1)  # the top tier exchanges nothing with switches above
    if kind in ("all_gather", "reduce_scatter"):
        # what the children have comes in, the rest from above; each child gets what it lacks, the tier above the local
        ingress = children * volume * child + has_above * (volume * (1 - local))
        egress = children * volume * (1 - child) + has_above * (volume * local)
        if kind == "reduce_scatter":
            return SwitchTraffic(ingress=egress, egress=ingress)
        return SwitchTraffic(ingress, egress)
    if kind == "all_reduce":
        both = children * volume + has_above * volume
    elif kind == "all_to_all":
        both = volume * children * child * (1 - child) + has_above * (volume * local * (1 - local))
    else:
        both = children * volume
    return SwitchTraffic(both, both)
