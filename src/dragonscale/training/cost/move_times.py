"""How long a collective takes: at its bandwidth bound, and through the efficiency profile of the wires."""

from dragonscale.physics.collectives import Options, collective_time
from dragonscale.physics.collectives.group import Group, Switches
from dragonscale.physics.collectives.profile import NetworkProfile, expected_time, shared_profile
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.placement import Wires

EXACT = Options(exact=True)


def bound_time(kind: str, volume: Number, axes: tuple[str, ...], wires: Wires) -> Number:
    """Seconds of a collective at datasheet rates."""
    return collective_time(kind, volume, wires.group(axes), EXACT).lower


def expected_move_time(
    kind: str, volume: Number, axes: tuple[str, ...], wires: Wires, network: NetworkProfile | None
) -> Number:
    """Seconds to expect of a collective; none without an efficiency profile of the wires."""
    if network is None:
        return 0.0
    group = wires.group(axes)
    return expected_time(kind, volume, group, shared_profile(network, group), EXACT)


def group_nodes(group: Group) -> Number:
    """Nodes over which a group spreads, or its chips if it stays inside one node."""
    if not isinstance(group, Switches) or not group.levels[0].degree:
        return group.size
    # Chips of the group times the distance between two of them, over the chips of a node.
    nodes = group.size * group.stride / group.levels[0].degree
    return where(nodes > 1, nodes, group.size)


def sent_once(picks: Number, group: Group) -> Number:
    """The share of an exchange between experts that is left when a token is sent once to each node that has several of
    its experts: of x experts drawn from g nodes, g(1 − (1 − 1/g)^x) are distinct."""
    nodes = maximum(group_nodes(group), 1.0)
    return nodes * (1 - (1 - 1 / nodes) ** picks) / picks
