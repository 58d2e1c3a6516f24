"""How long a layer computes and communicates under a scheme: floats, arrays or symbols.

The times come from the scheme's shardings and the wires of its mesh axes; no scheme has formulas of its own. The book's
chapter on training is what comes out for symbols:

>>> from dragonscale.course.closed_forms.schemes import read_scheme
>>> scheme = read_scheme("fsdp+tp")
>>> times = layer_times(scheme, *letters(scheme))
>>> times.math, times.comms["X",], times.comms["Y",]
(4*B*D*F/(C*X*Y), 4*D*F/(M_X*W*Y), 4*B*D/(M_Y*W*X))

and for a v5p (W is both directions of one axis of the torus, C the peak rate):

>>> from dragonscale.physics.hardware import load_chip
>>> wires = ring_mesh({"X": 16, "Y": 4}, load_chip("v5p"), {"X": 2})
>>> layer_times(scheme, {"B": 48000, "D": 8192, "F": 32768}, wires).bound()
'compute'
"""

from dataclasses import dataclass

from dragonscale.course.closed_forms.schemes import Scheme
from dragonscale.errors import unknown
from dragonscale.physics.collectives import BOOK, Options, Ring, collective_time
from dragonscale.physics.hardware import Chip, Torus
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.layout import Sizes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.reader import Move

OVERLAPS = ("max", "sum")
"""How collectives over different axes go together: at once (`max`, the book since 2026) or one after the other (`sum`,
its first edition)."""
PASSES = ("forward", "backward", "both")

Axes = tuple[str, ...]


@dataclass(frozen=True)
class LayerTimes:
    """Seconds that one chip computes, and that the wires of each set of mesh axes are busy."""

    math: Number
    comms: dict[Axes, Number]

    def network(self, overlap: str = "max") -> Number:
        """Seconds of all collectives together."""
        if overlap not in OVERLAPS:
            raise unknown("overlap", overlap, OVERLAPS)
        if not self.comms:
            return 0
        return maximum(*self.comms.values(), 0) if overlap == "max" else sum(self.comms.values())

    def ratio(self, overlap: str = "max") -> Number:
        """Compute over communication: from 1 on, communication can hide."""
        return self.math / self.network(overlap)

    def lower(self, overlap: str = "max") -> Number:
        """Compute and network at the same time."""
        return maximum(self.math, self.network(overlap))

    def upper(self) -> Number:
        """Everything one after the other."""
        return self.math + self.network("sum")

    def bound(self, overlap: str = "max") -> str:
        """`compute` or `comms`, for plain numbers."""
        return "compute" if self.math > self.network(overlap) else "comms"


def layer_times(
    scheme: Scheme,
    sizes: Sizes,
    mesh: Mesh,
    phase: str = "forward",
    options: Options = BOOK,
    keep: bool = False,
) -> LayerTimes:
    """Compute and communication of one pass through the layer, or of both.

    Only the bandwidth terms of collectives count, not their latencies: a roofline is about large arrays. With `keep`,
    the activations that the forward pass gathered are kept for the backward pass instead of being gathered again.
    """
    if phase not in PASSES:
        raise unknown("pass", phase, PASSES)
    lines = {"forward": scheme.forward, "backward": scheme.backward, "both": (*scheme.forward, *scheme.backward)}[phase]
    comms: dict[Axes, Number] = {}
    for move in layer_moves(scheme, phase, keep):
        seconds = collective_time(move.step.kind, move.step.volume(sizes, mesh), mesh.group(move.step.axes), options)
        comms[move.step.axes] = comms.get(move.step.axes, 0) + seconds.bandwidth
    return LayerTimes(sum(line.best.math_seconds(sizes, mesh) for line in lines), comms)


def layer_moves(scheme: Scheme, phase: str, keep: bool = False) -> list[Move]:
    """The collectives of a pass."""
    moves = list(scheme.forward_moves) if phase != "backward" else []
    if phase != "forward":
        moves += [
            move
            for move in scheme.backward_moves
            if not (keep and move.what == "activation" and scheme.regathered(move))
        ]
    return moves


def ring_mesh(
    axes: dict[str, Number], chip: Chip, spans: dict[str, Number] | None = None, pods: tuple[str, ...] = ()
) -> Mesh:
    """A mesh on ideal wires of a torus: each axis is a ring that uses `spans` whole axes of the hardware (1 if not
    said), which is how the book counts M_X; the axes named in `pods` run over the data-centre network instead.

    For a mesh on the wires of a real slice use `dragonscale.physics.sharding.mesh.make_mesh`.
    """
    spans = spans or {}
    rings = {name: () if name in pods else (Ring(size, True, spans.get(name, 1)),) for name, size in axes.items()}
    return Mesh(dict(axes), chip, None, rings, {name: axes[name] for name in pods})


def abstract_torus(peak: Number, axis: Number, dcn: Number | None = None, title: str = "a chip") -> Chip:
    """A chip that is only letters: `peak` FLOP/s, `axis` bytes per second over both directions of one axis of its
    torus, and `dcn` out of the pod."""
    from dragonscale.physics.hardware.chip import Memory

    torus = Torus(3, axis / 2, 0.0, (), "always", ())
    return Chip("abstract", title, "tpu", {"bf16": peak}, {}, {"hbm": Memory(0.0)}, torus, dcn=dcn)


def letters(scheme: Scheme, pods: tuple[str, ...] = (), per_axis: bool = False) -> tuple[Sizes, Mesh]:
    """A scheme's dims, mesh axes and wires as symbols: B, D, F …; X, Y …; M_X hardware axes for X; C and W (and W_dcn).

    With `per_axis` each mesh axis has a bandwidth W_X of its own instead of a number of equal hardware axes, as under
    switches.
    """
    from dragonscale.physics.rooflines import symbol

    wire = symbol("W")
    sizes = {name: symbol(name) for name in scheme.dims}
    axes = {name: symbol(name if name not in sizes else f"n_{name}") for name in scheme.axes}
    spans = {name: symbol(f"W_{name}") / wire if per_axis else symbol(f"M_{name}") for name in scheme.axes}
    chip = abstract_torus(symbol("C"), wire, symbol("W_dcn"))
    return sizes, ring_mesh(axes, chip, spans, pods)


def wire_intensity(chip: Chip, dtype: str = "bf16") -> float:
    """FLOPs that a chip does while one byte crosses an axis of its torus, both directions used: the book's alpha.

    >>> from dragonscale.physics.hardware import load_chip
    >>> wire_intensity(load_chip("v5p"))
    2550.0
    """
    return chip.peak(dtype) / axis_bandwidth(chip)


def axis_bandwidth(chip: Chip) -> float:
    """Bytes per second over both directions of one axis of a torus; under switches, out of one chip."""
    network = chip.network
    return 2 * network.link if isinstance(network, Torus) else network.levels[0].bandwidth
