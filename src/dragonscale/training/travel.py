"""How long a move takes: at its bandwidth bound, and through the efficiency profile of the wires."""

from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.profile import Profile, expected_time, shared_profile
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.placement import Wires

EXACT = Options(exact=True)


def bound_time(kind: str, volume: Number, axes: tuple[str, ...], wires: Wires) -> Number:
    """Seconds of a collective at datasheet rates."""
    return collective_time(kind, volume, wires.group(axes), EXACT).lower


def travel_time(kind: str, volume: Number, axes: tuple[str, ...], wires: Wires, network: Profile | None) -> Number:
    """Seconds to expect; without an efficiency profile of the wires, nothing is expected of them."""
    if network is None:
        return 0.0
    group = wires.group(axes)
    return expected_time(kind, volume, group, shared_profile(network, group), EXACT)


def sent_once(picks: Number, wires: Wires, axes: tuple[str, ...]) -> Number:
    """The part of an exchange between experts that is left when a token is sent once to each place that has several of
    its experts: of x experts drawn from g places, g(1 − (1 − 1/g)^x) are distinct. Places are chips, or where the group
    spans several nodes, nodes."""
    group = wires.group(axes)
    places = group.size
    if isinstance(group, Switches):
        nodes = group.size * group.stride / group.levels[0].degree
        places = where(nodes > 1, nodes, group.size)
    places = maximum(places, 1.0)
    return places * (1 - (1 - 1 / places) ** picks) / picks
