"""What a sharded einsum needs: local shapes, collectives, bytes and times, in every legal way, forward and backward."""

from typing import Any

import msgspec

from dragonscale.collectives import BOOK, Options, collective_time, wire_bytes
from dragonscale.errors import InputError
from dragonscale.notation import Einsum, parse_chain
from dragonscale.numbers import Number, is_symbolic
from dragonscale.reports.roofline import prepare
from dragonscale.sharding.algebra import Strategy, book_case
from dragonscale.sharding.chain import Planned, collectives, passes
from dragonscale.sharding.layout import check_layout, local_bytes, local_shape
from dragonscale.sharding.mesh import Mesh


class ArrayRow(msgspec.Struct):
    """One array: as laid out, and what each chip holds of it (numbers, or formulas while sizes are open)."""

    array: str
    local_shape: list[int | str]
    local_bytes: float | str


class CollectiveRow(msgspec.Struct):
    collective: str
    axes: list[str]
    array: str
    result: str
    bytes: float | str
    wire_bytes_per_chip: float | str
    seconds: float | str | None


class StrategyRow(msgspec.Struct):
    """One way to do it: its collectives in order, and the local einsum."""

    collectives: list[CollectiveRow]
    free_slices: list[str]
    local: str
    flops_per_chip: float | str
    repeated_over: list[str]
    wire_bytes_per_chip: float | str
    comms_s: float | str | None
    math_s: float | str | None
    lower_s: float | str | None
    upper_s: float | str | None
    bound_by: str | None


class LineReport(msgspec.Struct):
    """One einsum: its case in the book, its arrays, and the ways to do it, cheapest first."""

    einsum: str
    book_case: int
    arrays: list[ArrayRow]
    strategies: list[StrategyRow]


class ShardReport(msgspec.Struct):
    mesh: dict[str, int]
    on: str
    sizes: dict[str, int]
    free: list[str]
    forward: list[LineReport]
    backward: list[LineReport]
    forward_collectives: list[CollectiveRow]
    backward_collectives: list[CollectiveRow]
    advice: str


def shown(value: Number) -> float | str:
    """A number as such, a formula as text."""
    if not is_symbolic(value):
        return float(value)
    import sympy

    simple = sympy.nsimplify(sympy.simplify(value), rational=True) if not value.has(sympy.Max) else value
    return float(simple) if simple.is_number else str(simple)


def shard_report(
    expression: str,
    mesh: Mesh,
    on: str,
    sizes: dict[str, int] | None = None,
    options: Options = BOOK,
    most: int = 6,
) -> ShardReport:
    """Everything about `A[I_X, J] @ B[J_X, K] -> C[I, K]` on a mesh."""
    line, all_sizes, free = prepare(expression, sizes or {})
    _check_axes(line, mesh)
    there, back = passes(parse_chain(expression), all_sizes, mesh, options)
    forward = [line_report(planned, all_sizes, mesh, options, most) for planned in there]
    return ShardReport(
        mesh={name: int(size) for name, size in mesh.axes.items()},
        on=on,
        sizes={name: int(size) for name, size in all_sizes.items() if name not in free},
        free=free,
        forward=forward,
        backward=[line_report(planned, all_sizes, mesh, options, most) for planned in back],
        forward_collectives=[_collective_row(step, all_sizes, mesh, options) for step in collectives(there)],
        backward_collectives=[_collective_row(step, all_sizes, mesh, options) for step in collectives(back)],
        advice=_advice(forward, free, on),
    )


def _check_axes(line: Einsum, mesh: Mesh) -> None:
    missing = [axis for axis in line.axes if axis not in mesh.axes]
    if missing:
        listed = ", ".join(f"{name}={size}" for name, size in mesh.axes.items()) or "no axes"
        raise InputError(
            f"The expression uses the mesh axis {missing[0]}, but the mesh has {listed}; add {missing[0]}=… to --mesh."
        )
    if not mesh.axes:
        raise InputError("A sharded einsum needs a mesh; give one such as --mesh X=4,Y=8.")


def line_report(planned: Planned, sizes: dict[str, Number], mesh: Mesh, options: Options, most: int) -> LineReport:
    """One einsum on a mesh."""
    line = planned.line
    arrays = (*line.operands, line.output)
    for array in arrays:
        check_layout(array, sizes, mesh)
    return LineReport(
        einsum=str(line),
        book_case=book_case(line),
        arrays=[
            ArrayRow(
                str(array),
                [size if isinstance(size, int) else str(size) for size in local_shape(array, sizes, mesh)],
                shown(local_bytes(array, sizes, mesh)),
            )
            for array in arrays
        ],
        strategies=[_strategy_row(strategy, sizes, mesh, options) for strategy in planned.ways[:most]],
    )


def _strategy_row(strategy: Strategy, sizes: dict[str, Number], mesh: Mesh, options: Options) -> StrategyRow:
    timed = mesh.chip is not None
    comms: Any = strategy.comms_seconds(sizes, mesh, options) if timed else None
    math: Any = strategy.math_seconds(sizes, mesh) if timed else None
    known = timed and not is_symbolic(comms, math)
    return StrategyRow(
        collectives=[_collective_row(step, sizes, mesh, options) for step in strategy.collectives],
        free_slices=[str(step) for step in strategy.steps if step.free],
        local=str(strategy.local),
        flops_per_chip=shown(strategy.flops(sizes, mesh)),
        repeated_over=list(strategy.replicated),
        wire_bytes_per_chip=shown(strategy.wire_bytes(sizes, mesh)),
        comms_s=shown(comms) if timed else None,
        math_s=shown(math) if timed else None,
        lower_s=shown(strategy.lower_seconds(sizes, mesh, options)) if timed else None,
        upper_s=shown(comms + math) if timed else None,
        bound_by=("network" if comms > math else "compute") if known else None,
    )


def _collective_row(step: Any, sizes: dict[str, Number], mesh: Mesh, options: Options) -> CollectiveRow:
    volume = step.volume(sizes, mesh)
    seconds = collective_time(step.kind, volume, mesh.group(step.axes), options).lower if mesh.chip else None
    return CollectiveRow(
        step.kind,
        list(step.axes),
        str(step.before),
        str(step.after),
        shown(volume),
        shown(wire_bytes(step.kind, volume, mesh.size(*step.axes))),
        None if seconds is None else shown(seconds),
    )


def _advice(lines: list[LineReport], free: list[str], on: str) -> str:
    best = [line.strategies[0] for line in lines]
    names = [f"{row.collective} over {', '.join(row.axes)}" for way in best for row in way.collectives]
    needed = "; ".join(names) if names else "nothing"
    if not on:
        return f"Needs {needed}; add --on CHIP for times."
    if free:
        return f"Needs {needed}; give sizes (--sizes {free[0]}=…) to see what bounds it."
    math = sum(float(way.math_s or 0) for way in best)
    comms = sum(float(way.comms_s or 0) for way in best)
    if comms <= math:
        return f"Needs {needed}; bound by compute, the collectives can hide under it."
    return f"Needs {needed}; bound by the network, {comms / math if math else float('inf'):.3g}x the compute time: larger kept dims or fewer chips per axis help."
