"""One layer's times and bytes under many plans at once.

Everything about a layer depends on a few of a plan's numbers: the sizes of the mesh axes and of the microbatch. Here the
kernels and moves of a section's reading become arrays of seconds, separated by what they can hide under: kernels, moves
of activations by axis (waited for), moves of weights and gradients (any time).
"""

from dataclasses import dataclass, field

from dragonscale.collectives import Options, Switches, collective_time
from dragonscale.collectives.profile import Profile, expected_time, shared_profile
from dragonscale.numbers import Number, maximum, where
from dragonscale.sharding.layout import local_bytes
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.placement import Wires
from dragonscale.training.cost import Timer, Work, move_volume, move_wire, section_work
from dragonscale.training.reading import Move, Reading

EXACT = Options(exact=True)


@dataclass
class Travel:
    """Seconds and bytes sent of the moves of one pass, by (phase, what, axes)."""

    seconds: dict[tuple[str, str, tuple[str, ...]], Number] = field(default_factory=dict)
    sent: dict[tuple[str, str, tuple[str, ...]], Number] = field(default_factory=dict)

    def add(self, key: tuple[str, str, tuple[str, ...]], seconds: Number, sent: Number) -> None:
        self.seconds[key] = self.seconds.get(key, 0) + seconds
        self.sent[key] = self.sent.get(key, 0) + sent

    def total(self, phase: str, what: str, *axes: str) -> Number:
        """Seconds of a phase's moves of one kind of thing, over groups that hold any of the axes (or all groups)."""
        return sum(
            value
            for (when, which, over), value in self.seconds.items()
            if when == phase and which == what and (not axes or set(axes) & set(over))
        )


@dataclass(frozen=True)
class Layer:
    """A section's costs for one microbatch on one chip."""

    reading: Reading
    work: Work
    travel: Travel


def layer_costs(
    reading: Reading,
    sizes: dict[str, Number],
    wires: Wires,
    timer: Timer,
    profile: Profile | None,
    dtype: str = "bf16",
    options: Options = EXACT,
    reduce_bytes: float = 2.0,
    weight_bytes: float = 2.0,
    dedup: bool = False,
) -> Layer:
    """Kernels and moves of one section; gradients travel in `reduce_bytes`, weights in `weight_bytes` each. Without a profile, moves take what their bandwidth bound says.

    Moves of one kind over the same axes in the same phase are one message each: their latencies add, as they do in the
    program. Gathers of a layer's weights, and reductions of its gradients, are bundled into one.
    """
    mesh = Mesh(wires.axes)
    travel = Travel()
    bundles: dict[tuple[str, str, tuple[str, ...], str], Number] = {}
    for move in reading.moves:
        key = (move.phase, move.what, move.step.axes)
        wide = {"gradient": reduce_bytes / 2, "weight": weight_bytes / 2}.get(move.what, 1.0)
        volume, sent = move_volume(move, sizes, mesh) * wide, move_wire(move, sizes, mesh) * wide
        if dedup and move.step.kind == "all_to_all":
            once = _sent_once(sizes, wires, move.step.axes)
            volume, sent = volume * once, sent * once
        if move.what == "activation":
            travel.add(key, _seconds(move.step.kind, volume, move, wires, profile, options), sent)
        else:
            bundle = (*key, move.step.kind)
            bundles[bundle] = bundles.get(bundle, 0) + volume
            travel.add(key, 0.0, sent)
    for (phase, what, axes, kind), volume in bundles.items():
        travel.add((phase, what, axes), _collective(kind, volume, axes, wires, profile, options), 0.0)
    if reading.kernels and "block" in reading.section.name:
        _add_offload(travel, reading, sizes, wires)
    return Layer(reading, section_work(reading, sizes, mesh, timer, dtype), travel)


def _add_offload(travel: Travel, reading: Reading, sizes: dict[str, Number], wires: Wires) -> None:
    """What sending a block's input to the host takes, one way, should the plan ask for it."""
    entry = reading.rules.activation(reading.section.ops[0].inputs[0])
    size = local_bytes(entry, sizes, Mesh(wires.axes))
    travel.add(("offload", "host", ()), size / wires.piece.chip.host_link, size)


def _sent_once(sizes: dict[str, Number], wires: Wires, axes: tuple[str, ...]) -> Number:
    """The part of an exchange between experts that is left when a token is sent once to each place that has several of
    its experts: of x experts drawn from g places, g(1 − (1 − 1/g)^x) are distinct. Places are chips, or where the group
    spans several nodes, nodes."""
    group = wires.group(axes)
    places = group.size
    if isinstance(group, Switches):
        nodes = group.size * group.stride / group.levels[0].degree
        places = where(nodes > 1, nodes, group.size)
    places = maximum(places, 1.0)
    picks = sizes.get("x", 1)
    return places * (1 - (1 - 1 / places) ** picks) / picks


def _seconds(kind: str, volume: Number, move: Move, wires: Wires, profile: Profile | None, options: Options) -> Number:
    return _collective(kind, volume, move.step.axes, wires, profile, options)


def _collective(
    kind: str, volume: Number, axes: tuple[str, ...], wires: Wires, profile: Profile | None, options: Options
) -> Number:
    group = wires.group(axes)
    if profile is None:
        return collective_time(kind, volume, group, options).lower
    return expected_time(kind, volume, group, shared_profile(profile, group), options)
