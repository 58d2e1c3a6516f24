"""How far one replica of a model can be split for serving (book, chapter 7), for a layer of two matrices D x F and F x
D.

Prefill is training's forward pass: tensor parallelism helps until its collectives take longer than the matmuls, at a
degree of F/alpha for each axis of the torus. A decode step with a small batch waits for its weights instead, and a
higher degree means fewer bytes for each chip, until the collectives take longer than that: at F/(B·beta), beta being
the bandwidth of HBM over that of an axis. Splitting the width as well (2D weight-stationary) makes what is sent shrink
with more chips, and is worth it from 18·F/D chips on a 3D torus. `W` is both directions of an axis; `wire` the format
of activations between chips.

>>> from dragonscale.physics.hardware import load_chip
>>> v5e = load_chip("v5e")
>>> round(prefill_degree(28672, v5e, axes=2), 1), round(decode_degree(28672, 64, v5e), 1)
(26.2, 49.2)
>>> round(prefill_degree(16384, v5e), 2), round(chips_for_2d(4), 6)
(7.49, 72.0)
>>> [(step.kind, step.axes, step.before.name) for step in decode_attention_moves("batch")]
[('all_to_all', ('Z',), 'Q'), ('all_to_all', ('Z',), 'O'), ('all_reduce', ('Y', 'Z'), 'X')]
"""

from dataclasses import dataclass

from dragonscale.course.closed_forms.rooflines import axis_bandwidth
from dragonscale.errors import unknown
from dragonscale.physics.collectives import Group, collective_time
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.numbers import Number, sqrt
from dragonscale.physics.sharding.algebra import strategies
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.serving.engine.plan import SPREADS

_ATTENTION = {
    "copy": ("Q[B, N_YZ, H]", "O[B, N_YZ, H]"),
    "batch": ("Q[B_Z, N_Y, H]", "O[B_Z, N_Y, H]"),
    "sequence": ("Q[B, N_Y, H]", "O[B, N_Y, H]{U_Z}"),
}
"""What attention takes and gives where the cache is split over its heads by Y, and over Z as `spread` says."""


def layer_math(batch: Number, d: Number, f: Number, chips: Number, rate: Number) -> Number:
    """Seconds of both matmuls."""
    return 4 * batch * d * f / (chips * rate)


def layer_loading(d: Number, f: Number, chips: Number, bandwidth: Number, weights: str = "bf16") -> Number:
    """Seconds in which each chip reads its part of both matrices."""
    return 2 * d * f * dtype_bytes(weights) / (chips * bandwidth)


def one_axis(batch: Number, d: Number, rate: Number, axes: Number = 1, wire: str = "bf16") -> Number:
    """1D weight-stationary: the activations are gathered, and the results scattered, whatever the number of chips."""
    return 2 * batch * d * dtype_bytes(wire) / (axes * rate)


def two_axes(
    batch: Number,
    d: Number,
    f: Number,
    degrees: tuple[Number, Number],
    rate: Number,
    axes: tuple[Number, Number] = (1, 2),
) -> Number:
    """2D weight-stationary: D over `degrees[0]` chips and F over `degrees[1]`; each side gathers and sums over the
    other's axis."""
    (x, y), (over_x, over_y) = degrees, axes
    return 4 * batch / rate * (d / (x * over_y) + f / (y * over_x))


@dataclass(frozen=True)
class BestSplit2D:
    """Chips along the width D and along F, and the seconds that the activations take."""

    x: Number
    y: Number
    seconds: Number


def best_two_axes(
    batch: Number, d: Number, f: Number, chips: Number, rate: Number, axes: tuple[Number, Number] = (1, 2)
) -> BestSplit2D:
    """2D weight-stationary at its best split of `chips` chips: X = sqrt(N·D·M_X/(F·M_Y)), Y = N/X, and
    8B·sqrt(D·F/(N·M_X·M_Y))/W.

    M_X and M_Y are the `axes` of the torus on either side. X is not rounded to what a slice has.

    >>> best = best_two_axes(32, 8192, 32768, 512, 1.8e11)
    >>> best.x, best.y, round(best.seconds * 1e6, 2)
    (8.0, 64.0, 0.73)
    """
    over_x, over_y = axes
    x = sqrt(chips * d * over_x / (f * over_y))
    return BestSplit2D(x, chips / x, two_axes(batch, d, f, (x, chips / x), rate, axes))


def prefill_degree(width: Number, chip: Chip, axes: Number = 1, compute: str = "bf16", wire: str = "bf16") -> Number:
    """The largest tensor degree at which a prompt's matmuls hide its collectives: M·F·W/C for bf16 on the wire."""
    return layer_math(1, 1, width, 1, chip.peak(compute)) / one_axis(1, 1, axis_bandwidth(chip), axes, wire)


def decode_degree(
    width: Number, batch: Number, chip: Chip, axes: Number = 1, weights: str = "bf16", wire: str = "bf16"
) -> Number:
    """The largest degree at which a decode step that waits for its weights still hides its collectives:
    M·F·W/(B·W_hbm)."""
    loading = layer_loading(1, width, 1, chip.bandwidth("hbm"), weights)
    return loading / one_axis(batch, 1, axis_bandwidth(chip), axes, wire)


def chips_for_2d(ratio: Number, axes: tuple[Number, Number] = (1, 2)) -> Number:
    """Chips from which splitting both dims of the weights sends less than splitting one, at its best split; `ratio` is
    F/D, and `axes` are the axes of the torus for the width D and for F (all of them together serve the 1D scheme)."""
    x, y = axes
    return 4 * ratio * (x + y) ** 2 / (x * y)


def decode_attention_moves(spread: str = "batch") -> tuple[Step, ...]:
    """The collectives of one layer's attention in a decode step, from queries to the residual stream.

    Queries arrive split over their heads by Y and Z, as the matmul with W_Q leaves them; the cache has only as many
    heads as Y has chips. What Z does with it (`spread`) is one of the plan's: keep replicas; hold every Z-th sequence,
    so that queries are exchanged for sequences and back; or hold a part of each sequence, so that queries are gathered,
    and the parts of the softmax added up.
    """
    if spread not in SPREADS:
        raise unknown("spread", spread, SPREADS)
    mesh = Mesh({"Y": 2, "Z": 3})  # without a common factor, so that no exchange of equal axes is mistaken for the rule
    taken, given = (parse_array(text) for text in _ATTENTION[spread])
    steps = [*reshard(parse_array("Q[B, N_YZ, H]"), taken, mesh), *reshard(given, parse_array("O[B, N_YZ, H]"), mesh)]
    projection = parse_einsum("O[B, N_YZ, H] @ W_O[N_YZ, H, D] -> X[B, D]")
    best = strategies(projection, {"B": 6, "N": 96, "H": 128, "D": 8192}, mesh)[0]
    return tuple(step for step in (*steps, *best.steps) if not step.free)


def latency_bound_bytes(kind: str, group: Group) -> Number:
    """Bytes below which a collective takes as long as its hops need, however few they are.

    >>> from dragonscale.physics.collectives import Ring, Rings
    >>> latency_bound_bytes("all_gather", Rings((Ring(8),), link=45e9, hop=1e-6))
    360000.0
    """
    unit = collective_time(kind, 1.0, group)
    return unit.latency / unit.bandwidth
