"""Where a scheme stops scaling, solved from its own times.

Three questions of the book's chapter on training, each answered by solving the formulas of `rooflines`, for any scheme:
from how many tokens (or up to which degree) the collectives over an axis hide under compute; how best to divide chips
between two axes; and how few tokens a chip needs then.

>>> from dragonscale.course.closed_forms.rooflines import letters
>>> from dragonscale.course.closed_forms.schemes import read_scheme
>>> for name in ("fsdp", "tp"):
...     scheme = read_scheme(name)
...     print(*find_rules(scheme, *letters(scheme)))
B/X > C/(M_X*W)
Y < F*M_Y*W/C
>>> scheme = read_scheme("fsdp+tp")
>>> mixed = best_split(scheme, *letters(scheme), "X", "Y")
>>> mixed.degrees, mixed.tokens_per_chip
(sqrt(B)*sqrt(M_X)*sqrt(N)/(sqrt(F)*sqrt(M_Y)), C**2/(F*M_X*M_Y*W**2))
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonscale.course.closed_forms.rooflines import Axes, LayerTimes, layer_times
from dragonscale.course.closed_forms.schemes import Scheme
from dragonscale.errors import InputError
from dragonscale.physics.numbers import product
from dragonscale.physics.rooflines import solve_equal, symbol
from dragonscale.physics.sharding.layout import Sizes
from dragonscale.physics.sharding.mesh import Mesh

CHIPS = "N"
"""The symbol that counts all chips of a split."""


@dataclass(frozen=True)
class Rule:
    """The collectives over `axes` hide under compute where `variable`, per `degrees`, is above (or below) `value`."""

    phase: str
    axes: Axes
    variable: str
    degrees: str
    above: bool
    value: Any

    def __str__(self) -> str:
        divided = f"{self.variable}/{self.degrees}" if self.degrees else self.variable
        return f"{divided} {'>' if self.above else '<'} {self.value}"


def find_rules(scheme: Scheme, sizes: Sizes, mesh: Mesh) -> list[Rule]:
    """One rule for each set of axes, from the pass that sends most per FLOP (the forward one if they are alike).

    Sizes and mesh hold symbols. A rule is about tokens where more of them help (then per way of the mesh axes over
    tokens), else about the degree of the axes themselves.
    """
    times = {phase: layer_times(scheme, sizes, mesh, phase) for phase in ("forward", "backward")}
    found: list[Rule] = []
    for axes in dict.fromkeys(axes for each in times.values() for axes in each.comms):
        ratios = {phase: each.math / each.comms[axes] for phase, each in times.items() if axes in each.comms}
        phase = min(ratios, key=lambda name: _constant(ratios[name]))
        found += _rule(scheme, sizes, mesh, phase, axes, times[phase])
    return found


def _rule(scheme: Scheme, sizes: Sizes, mesh: Mesh, phase: str, axes: Axes, times: LayerTimes) -> list[Rule]:
    """The rule of one set of axes; none where neither tokens nor degrees decide."""
    import sympy

    tokens = sizes[scheme.tokens[0]]
    ratio = sympy.simplify(times.math / times.comms[axes])
    if tokens in ratio.free_symbols:
        value = solve_equal(times.math, times.comms[axes], tokens)[0]
        shared = [axis for axis, dim in scheme.owners.items() if dim in scheme.tokens]
        degrees = [axis for axis in shared if mesh.axes[axis] in sympy.sympify(value).free_symbols]
        per = product(mesh.axes[axis] for axis in degrees)
        return [Rule(phase, axes, str(tokens), str(per) if degrees else "", True, sympy.simplify(value / per))]
    size = mesh.axes[axes[0]]
    most = solve_equal(times.math, times.comms[axes], size)[:1]
    return [Rule(phase, axes, str(size), "", False, sympy.simplify(value)) for value in most]


def _constant(expression: Any) -> float:
    """The number before the letters, to compare two formulas of one form."""
    return float(expression.subs(dict.fromkeys(expression.free_symbols, 1)))


@dataclass(frozen=True)
class ChipSplit:
    """Chips divided between two axes at best: the degree of the first, compute over communication there, and the fewest
    tokens per chip that stay bound by compute (None if tokens do not matter). Formulas in the scheme's letters and N,
    the chips in all."""

    first: str
    second: str
    degrees: Any
    ratio: Any
    tokens_per_chip: Any


def best_split(
    scheme: Scheme, sizes: Sizes, mesh: Mesh, first: str, second: str, overlap: str = "max", phase: str = "forward"
) -> ChipSplit:
    """The split of N chips between two mesh axes that communicates least.

    If collectives over the two run at once, it is where they take equally long; if one after the other, where their sum
    is least. More of one axis must mean less over the other, else there is nothing to mix.
    """
    import sympy

    chips, size = symbol(CHIPS), mesh.axes[first]
    whole = {mesh.axes[second]: chips / size}
    times = layer_times(scheme, sizes, mesh, phase)
    comms = {axes: seconds.subs(whole) for axes, seconds in times.comms.items()}
    if set(comms) != {(first,), (second,)}:
        raise InputError(
            f"{scheme.text} is no split between {first} and {second}: it communicates over "
            f"{sorted(map(''.join, comms))}."
        )
    one, other = comms[first,], comms[second,]
    found = solve_equal(one, other, size) if overlap == "max" else solve_equal(sympy.diff(one + other, size), 0, size)
    if not found:
        raise InputError(f"No split of {scheme.text} between {first} and {second} is better than the extremes.")
    degrees = sympy.simplify(found[0])
    network = sympy.simplify((one if overlap == "max" else one + other).subs(size, degrees))
    work = times.math.subs(whole)
    tokens = sizes[scheme.tokens[0]]
    least = [sympy.simplify(value / chips) for value in solve_equal(work, network, tokens)]
    return ChipSplit(first, second, degrees, sympy.simplify(work / network), least[0] if least else None)


def least_tokens(
    scheme: Scheme, sizes: Sizes, mesh: Mesh, overlap: str = "max", phases: Iterable[str] = ("forward", "backward")
) -> float | None:
    """Tokens of a whole batch from which a layer on a mesh is bound by compute; None if no batch is large enough.

    >>> from dragonscale.physics.hardware import load_chip
    >>> from dragonscale.course.closed_forms.rooflines import ring_mesh
    >>> from dragonscale.course.closed_forms.schemes import read_scheme
    >>> wires = ring_mesh({"X": 512, "Y": 8}, load_chip("v5p"), {"X": 2})
    >>> round(least_tokens(read_scheme("fsdp+tp"), {"D": 8192, "F": 32768}, wires))
    652800
    """
    name = scheme.tokens[0]
    tokens = symbol(name)
    least = 0.0
    for phase in phases:
        times = layer_times(scheme, sizes | {name: tokens}, mesh, phase)
        terms = [seconds for seconds in times.comms.values() if seconds != 0]
        for term in terms if overlap == "max" else [sum(terms)]:
            bound = _overtakes(times.math, term, tokens)
            if bound is None:
                return None
            least = max(least, bound)
    return least


def _overtakes(work: Any, term: Any, variable: Any) -> float | None:
    """From where on the first formula is larger than the second; None if never."""
    import sympy

    found = [float(value) for value in solve_equal(work, term, variable)]
    least = max(found, default=0.0)
    gap = sympy.sympify(work - term).subs(variable, 2 * least or 1)
    return least if gap > 0 else None


@dataclass(frozen=True)
class Split:
    """One way to divide chips, and its times for a given batch."""

    degrees: dict[str, int]
    times: LayerTimes

    @property
    def chips(self) -> int:
        return math.prod(self.degrees.values())


def power_splits(chips: int, first: str = "X", second: str = "Y") -> list[dict[str, int]]:
    """Every split into two powers of two, using as many of the chips as that allows.

    >>> power_splits(9)
    [{'X': 1, 'Y': 8}, {'X': 2, 'Y': 4}, {'X': 4, 'Y': 2}, {'X': 8, 'Y': 1}]
    """
    powers = int(math.log2(chips))
    return [{first: 2**power, second: 2 ** (powers - power)} for power in range(powers + 1)]


def rank_splits(
    scheme: Scheme, sizes: Sizes, meshes: Iterable[Mesh], overlap: str = "max", phase: str = "forward"
) -> list[Split]:
    """The same layer on several meshes, the one with most compute per communication first."""
    splits = [Split(dict(mesh.axes), layer_times(scheme, sizes, mesh, phase)) for mesh in meshes]
    return sorted(splits, key=lambda split: float(split.times.network(overlap) / split.times.math))
