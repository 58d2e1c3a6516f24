"""What solutions of the book do with its formulas: powers of letters, letters as numbers, axes as spans."""

from typing import Any

from dragonscale.course.closed_forms.rooflines import axis_bandwidth
from dragonscale.errors import InputError
from dragonscale.physics.collectives import collective_time
from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines import symbol
from dragonscale.physics.sharding.layout import Sizes
from dragonscale.physics.sharding.mesh import Mesh


def exponent(expression: Any, variable: Any) -> Any:
    """The power with which a formula grows in a variable.

    >>> exponent(symbol("B") ** 2 / symbol("D"), symbol("B"))
    2
    """
    import sympy

    return sympy.simplify(variable * sympy.diff(sympy.log(expression), variable))


def span_of(mesh: Mesh, axis: str) -> Number:
    """The hardware axes' worth of bandwidth that a mesh axis gets: 2 over two rings of a torus, 1/2 on a line; under
    switches, the part of a chip's own bandwidth."""
    if mesh.chip is None:
        raise InputError("Wires have a bandwidth only on a chip; say which, for instance with --on v5p.")
    seconds = collective_time("all_gather", 1.0, mesh.group((axis,))).bandwidth
    return 1 / (seconds * axis_bandwidth(mesh.chip)) if seconds else 1


def numbers_of(
    chip: Chip, sizes: Sizes, axes: dict[str, Number] | None = None, spans: dict[str, Number] | None = None
) -> dict[Any, Number]:
    """What the letters of `rooflines.letters` stand for on a chip, to be put into formulas."""
    values: dict[Any, Number] = {symbol("C"): chip.peak("bf16"), symbol("W"): axis_bandwidth(chip)}
    if chip.dcn is not None:
        values[symbol("W_dcn")] = chip.dcn
    values |= {symbol(name): size for name, size in sizes.items()}
    for name, size in (axes or {}).items():
        values[symbol(name if name not in sizes else f"n_{name}")] = size
    for name, span in (spans or {}).items():
        values[symbol(f"M_{name}")] = span
        values[symbol(f"W_{name}")] = span * axis_bandwidth(chip)
    return values


def spanned_axes(degree: int, axis: int) -> int:
    """Hardware axes of `axis` chips that a degree touches: at least one, and one more for every further factor.

    >>> [spanned_axes(degree, 16) for degree in (1, 4, 16, 32, 4096)]
    [1, 1, 1, 2, 3]
    """
    count, reach = 1, axis
    while reach < degree:
        count, reach = count + 1, reach * axis
    return count
