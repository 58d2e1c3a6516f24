"""Mesh axes that split nothing: chips along them repeat the work of others, and their links could help a gather."""

from dragonscale.course.closed_forms.spread import spread_gather
from dragonscale.errors import InputError
from dragonscale.physics.collectives import EXACT, collective_time
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.layout import local_shape
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.step import Step
from dragonscale.physics.units import render

SHORTER = 0.98
"""A way that takes at least so much of another is not worth a word."""


def spread(
    step: Step, seconds: float | str | None, sizes: dict[str, Number], mesh: Mesh
) -> tuple[list[str], float | None]:
    """The idle axes that a gather could use too, and its time with them, if that is shorter."""
    if step.kind != "all_gather" or not isinstance(seconds, float):
        return [], None
    try:
        steps = spread_gather(step.before, step.after, mesh)
        for one in steps:
            local_shape(one.after, sizes, mesh)
    except InputError:
        return [], None  # the dim does not divide into so many parts
    moves = [one for one in steps if not one.free]
    idle = [axis for one in moves for axis in one.axes if axis not in step.axes]
    best = sum(
        float(collective_time(one.kind, one.volume(sizes, mesh), mesh.group(one.axes), EXACT).lower) for one in moves
    )
    return (idle, best) if idle and best < SHORTER * seconds else ([], None)


def repeated(ways: list[tuple[float | str, list[str]]], mesh: Mesh) -> str:
    """A sentence that chips repeat the work of others, from the FLOPs of all chips and the axes that split nothing;
    else empty.

    >>> repeated([(8e9, ["Y"])], Mesh({"X": 2, "Y": 4}))
    'Y splits nothing: all chips do 8GFLOP together, 4x what the einsum takes.'
    """
    axes = list(dict.fromkeys(axis for _, over in ways for axis in over))
    if not axes:
        return ""
    told = f"{' and '.join(axes)} {'split' if axes[1:] else 'splits'} nothing"
    known = [(flops, mesh.size(*over)) for flops, over in ways if isinstance(flops, float)]
    if len(known) < len(ways):
        return f"{told}: its chips repeat the work of others."
    every, own = sum(flops for flops, _ in known), sum(flops / times for flops, times in known)
    return f"{told}: all chips do {render(every, 'FLOP')} together, {every / own:.3g}x what the einsum takes."
