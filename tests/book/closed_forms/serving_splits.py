"""How far one copy of a model can be split for serving, solved from shardings.

Prefill is training's forward pass: tensor parallelism helps until its collectives take longer than the products, at F/alpha
ways for each axis of the torus. A decode step with a small batch waits for its weights instead, and more ways mean fewer
bytes for each chip, until the collectives take longer than that: F/(B·beta) ways, beta being the bandwidth of HBM over that
of an axis. Splitting the width as well (2D weight-stationary) makes what is sent shrink with more chips, and pays from 18·F/D
chips on a 3D torus. None of this is written down here: each rule is solved from the collectives of its scheme.

>>> from dragonscale.hardware import load_chip
>>> v5e = load_chip("v5e")
>>> round(prefill_ways(28672, v5e, axes=2), 1), round(decode_ways(28672, 64, v5e), 1)
(26.2, 49.2)
>>> round(chips_for_2d(4), 6)
72.0
>>> from dragonscale.sharding.wording import words
>>> [words(step) for step in decode_attention_moves("batch")]
['AllToAll_Z(Q)', 'AllToAll_Z(O)', 'AllReduce_YZ(X)']
"""

from dataclasses import replace
from functools import cache
from typing import Any

from dragonscale.collectives import BOOK, Group, Options, collective_time
from dragonscale.errors import unknown
from dragonscale.hardware import Chip
from dragonscale.notation import parse_array, parse_einsum
from dragonscale.numbers import Number, is_array, is_symbolic
from dragonscale.roofline import solve_equal, symbol
from dragonscale.serving.plan import SPREADS
from dragonscale.sharding.algebra import strategies
from dragonscale.sharding.layout import Sizes, local_bytes
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import reshard
from dragonscale.sharding.step import Step
from dragonscale.training.crossovers import CHIPS, best_mixture, find_rules
from dragonscale.training.rooflines import axis_bandwidth, layer_times, letters
from dragonscale.training.schemes import Scheme, read_scheme

ONE_AXIS = read_scheme("tp")
"""1D weight-stationary: each chip keeps some columns of W_in and rows of W_out."""
TWO_AXES = read_scheme("In[B, D_XY] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B, D_XY]")
"""2D weight-stationary: both dims of each matrix are split, and activations are gathered and summed over one axis each."""
_ATTENTION = {
    "copy": ("Q[B, N_YZ, H]", "O[B, N_YZ, H]"),
    "batch": ("Q[B_Z, N_Y, H]", "O[B_Z, N_Y, H]"),
    "sequence": ("Q[B, N_Y, H]", "O[B, N_Y, H]{U_Z}"),
}
"""What attention takes and gives where the cache is split over its heads by Y, and over Z as `spread` says."""


def loading_seconds(scheme: Scheme, sizes: Sizes, mesh: Mesh, bandwidth: Number, weights: str = "bf16") -> Number:
    """Seconds in which a chip reads its part of a layer's weights from HBM."""
    held = [replace(planned.best.local.operands[1], dtype=weights) for planned in scheme.forward]
    return sum(local_bytes(array, sizes, mesh) for array in held) / bandwidth


def prefill_ways(width: Number, chip: Chip, axes: Number = 1, compute: str = "bf16") -> Number:
    """The most ways of tensor parallelism with which a prompt's products hide its collectives: M·F·W/C. `width` is the
    hidden width F of two matrices; a third that the same gather feeds (a gated layer) allows half as many again.

    >>> from dragonscale.hardware import load_chip
    >>> round(prefill_ways(16384, load_chip("v5e")), 2)
    7.49
    """
    values = {"F": width, "M_Y": axes, "W": axis_bandwidth(chip), "C": chip.peak(compute)}
    return _put(_prefill_rule(), values)


def decode_ways(width: Number, batch: Number, chip: Chip, axes: Number = 1, weights: str = "bf16") -> Number:
    """The most ways with which a decode step that waits for its weights still hides its collectives: M·F·W/(B·W_hbm).

    Activations are sent as bf16; narrower weights load faster and so hide fewer collectives.
    """
    values = {"F": width, "B": batch, "M_Y": axes, "W": axis_bandwidth(chip), "W_hbm": chip.bandwidth("hbm")}
    return _put(_decode_rule(weights), values)


def chips_for_2d(ratio: Number, axes: tuple[Number, Number] = (1, 2)) -> Number:
    """Chips from which splitting both dims of the weights sends less than splitting one, at its best split; `ratio` is F/D,
    and `axes` are the axes of the torus for the width D and for F (all of them together serve the 1D scheme)."""
    return _put(_two_axes_rule(), {"F": ratio, "D": 1, "M_X": axes[0], "M_Y": axes[1]})


@cache
def _prefill_rule() -> Any:
    (rule,) = find_rules(ONE_AXIS, *letters(ONE_AXIS))
    return rule.value


@cache
def _decode_rule(weights: str) -> Any:
    sizes, mesh = letters(ONE_AXIS)
    sent = layer_times(ONE_AXIS, sizes, mesh).network("sum")
    (ways,) = solve_equal(sent, loading_seconds(ONE_AXIS, sizes, mesh, symbol("W_hbm"), weights), mesh.axes["Y"])
    return ways


@cache
def _two_axes_rule() -> Any:
    sizes, mesh = letters(TWO_AXES)
    mixture = best_mixture(TWO_AXES, sizes, mesh, "X", "Y", "sum")
    chips = symbol(CHIPS)
    work = layer_times(TWO_AXES, sizes, mesh).math.subs(mesh.axes["Y"], chips / mesh.axes["X"])
    plain_sizes, plain = letters(ONE_AXIS)
    spans = {symbol("M_Y"): symbol("M_X") + symbol("M_Y")}
    one = layer_times(ONE_AXIS, plain_sizes, plain).network("sum").subs(spans)
    (count,) = solve_equal(work / mixture.ratio, one, chips)
    return count


def _put(formula: Any, values: dict[str, Number]) -> Number:
    """A formula with numbers, arrays or other formulas put in for its letters."""
    import sympy

    if is_array(*values.values()):
        return sympy.lambdify([symbol(name) for name in values], formula)(*values.values())
    result = formula.subs({symbol(name): value for name, value in values.items()}, simultaneous=True)
    return result if is_symbolic(*values.values()) else float(result)


def decode_attention_moves(spread: str = "batch") -> tuple[Step, ...]:
    """The collectives of one layer's attention in a decode step, from queries to the residual stream.

    Queries arrive split over their heads by Y and Z, as the product with W_Q leaves them; the cache has only as many heads
    as Y has ways. What Z does with it (`spread`) is one of the plan's: keep copies; hold every Z-th sequence, so that queries
    are exchanged for sequences and back; or hold a part of each sequence, so that queries are gathered, and the parts of
    the softmax added up.
    """
    if spread not in SPREADS:
        raise unknown("spread", spread, SPREADS)
    mesh = Mesh({"Y": 2, "Z": 3})  # without a common factor, so that no exchange of equal axes is mistaken for the rule
    taken, given = (parse_array(text) for text in _ATTENTION[spread])
    steps = [*reshard(parse_array("Q[B, N_YZ, H]"), taken, mesh), *reshard(given, parse_array("O[B, N_YZ, H]"), mesh)]
    projection = parse_einsum("O[B, N_YZ, H] @ W_O[N_YZ, H, D] -> X[B, D]")
    best = strategies(projection, {"B": 6, "N": 96, "H": 128, "D": 8192}, mesh)[0]
    return tuple(step for step in (*steps, *best.steps) if not step.free)


def moves_seconds(steps: tuple[Step, ...], sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> Number:
    """The time of collectives one after the other, each at its bandwidth or its latency."""
    return sum(
        collective_time(step.kind, step.volume(sizes, mesh), mesh.group(step.axes), options).lower for step in steps
    )


def latency_bound_bytes(kind: str, group: Group) -> Number:
    """Bytes below which a collective takes as long as its hops need, however few they are.

    >>> from dragonscale.collectives import Ring, Rings
    >>> latency_bound_bytes("all_gather", Rings((Ring(8),), link=45e9, hop=1e-6))
    360000.0
    """
    unit = collective_time(kind, 1.0, group)
    return unit.latency / unit.bandwidth
