"""Readings of sharded einsums that only witnesses need: the layout that needs no move, work repeated, bytes by axis."""

from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.sharding import Mesh, Strategy
from dragonscale.physics.sharding.layout import Sizes


def natural_output(line: Einsum) -> Array | None:
    """The layout that needs no communication at all (the book's case 1), or None where there is none.

    >>> from dragonscale.physics.notation import parse_einsum
    >>> print(natural_output(parse_einsum("A[I_X, J] @ B[J, K_Y]")))
    [I_X, K_Y]
    """
    split: dict[str, tuple[str, ...]] = {}
    for array in line.operands:
        if array.partial:
            return None
        for dim in array.dims:
            if split.setdefault(dim.name, dim.axes) != dim.axes:
                return None
    axes = [axis for held in split.values() for axis in held]
    if len(axes) != len(set(axes)):
        return None
    summed = tuple(axis for index in line.contracted for axis in split.get(index, ()))
    return line.output.with_layout(split, summed)


def executed_flops(line: Einsum, strategy: Strategy, sizes: Sizes, mesh: Mesh) -> tuple[Number, Number]:
    """FLOPs of the einsum as mathematics, and as executed over all chips with repeated work counted."""
    return line.flops(sizes), strategy.flops(sizes, mesh) * product(mesh.axes.values())


def wire_by_axis(strategy: Strategy, sizes: Sizes, mesh: Mesh) -> dict[tuple[str, ...], Number]:
    """Bytes that each chip sends, by the mesh axes each collective runs over."""
    sent: dict[tuple[str, ...], Number] = {}
    for step in strategy.collectives:
        cost = wire_bytes(step.kind, step.volume(sizes, mesh), mesh.size(*step.axes))
        sent[step.axes] = sent.get(step.axes, 0) + cost
    return sent
