"""How long a move takes: at its bandwidth bound, and through the efficiency profile of the wires."""

from dragonscale.physics.collectives import Options, collective_time
from dragonscale.physics.collectives.group import Group, Switches
from dragonscale.physics.collectives.profile import NetworkProfile, expected_time, shared_profile
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.placement import Wires

EXACT = Options(exact=True)


def bound_time(kind: str, volume: Number, axes: tuple[str, ...], wires: Wires) -> Number:
    """Seconds of a collective at datasheet rates."""
    return collective_time(kind, volume, wires.group(axes), EXACT).lower


def travel_time(
    kind: str, volume: Number, axes: tuple[str, ...], wires: Wires, network: NetworkProfile | None
) -> Number:
    """Seconds to expect; without an efficiency profile of the wires, nothing is expected of them."""
    if network is None:
        return 0.0
    group = wires.group(axes)
    return expected_time(kind, volume, group, shared_profile(network, group), EXACT)


def places(group: Group) -> Number:
    """Nodes over which a group spreads, or its chips if it stays inside one."""
    if not isinstance(group, Switches) or not group.levels[0].degree:
        return group.size
    nodes = group.size * group.stride / group.levels[0].degree
    return where(nodes > 1, nodes, group.size)


def sent_once(picks: Number, group: Group) -> Number:
    """The part of an exchange between experts that is left when a token is sent once to each place that has several of
    its experts: of x experts drawn from g places, g(1 − (1 − 1/g)^x) are distinct."""
    many = maximum(places(group), 1.0)
    return many * (1 - (1 - 1 / many) ** picks) / picks
