"""A collective under switches, tier by tier: how long each tier needs, which one binds, and what its switches see.

`collective_time` answers with the slowest tier alone. Here every tier answers for itself, as if the others were
infinitely fast, and the bytes that enter and leave one switch are counted.

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
    for level in group.levels:
        alone = tuple(other if other is level else replace(other, bandwidth=math.inf) for other in group.levels)
        seconds[level.name] = collective_time(kind, volume, replace(group, levels=alone), options).bandwidth
    return seconds


@dataclass(frozen=True)
class SwitchTraffic:
    """Bytes that enter and leave the switches of one group of a tier, from below and above together."""

    ingress: Number
    egress: Number


def switch_traffic(kind: str, volume: Number, fans: tuple[Number, ...], tier: int = 0) -> SwitchTraffic:
    """What the switches of one group see, if every byte passes them only once.

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
    children, child = fans[tier], product(fans[:tier]) / product(fans)
    own, top = child * children, tier == len(fans) - 1
    ingress = egress = children * volume
    if kind in ("all_gather", "reduce_scatter"):
        ingress = children * volume * child + (0 if top else volume * (1 - own))
        egress = children * volume * (1 - child) + (0 if top else volume * own)
    elif kind == "all_reduce":
        ingress = egress = children * volume + (0 if top else volume)
    elif kind == "all_to_all":
        ingress = egress = volume * children * child * (1 - child) + (0 if top else volume * own * (1 - own))
    return SwitchTraffic(egress, ingress) if kind == "reduce_scatter" else SwitchTraffic(ingress, egress)
