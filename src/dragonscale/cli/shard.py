"""`dscale shard EXPR --mesh X=4,Y=8 --on CHIP`: what a sharded einsum needs, forward and backward."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json, MeshText, On, Sizes, read_sizes
from dragonscale.cli.show import amount, emit_json, note, record_table, say


def run(
    expression: Annotated[str, Parameter(help="Such as 'A[I_X, J] @ B[J_X, K] -> C[I, K]'.")],
    /,
    *,
    mesh: MeshText = "",
    on: On = "",
    sizes: Sizes = "",
    alternatives: Annotated[int, Parameter(help="How many strategies to show for each einsum.")] = 3,
    backward: Annotated[bool, Parameter(help="Show the backward pass too.")] = True,
    json: Json = False,
) -> int:
    """Which collectives does a sharded einsum need, and what do they cost?"""
    from dragonscale.errors import InputError
    from dragonscale.hardware import parse_target
    from dragonscale.reports.shard import shard_report
    from dragonscale.sharding.mesh import make_mesh, natural_mesh, parse_mesh

    chip, piece = parse_target(on) if on else (None, None)
    axes = parse_mesh(mesh)
    if alternatives < 1:
        raise InputError(f"--alternatives is {alternatives}; show at least one strategy.")
    layout = natural_mesh(piece) if piece is not None and not axes else make_mesh(dict(axes), chip, piece)
    if chip is not None and piece is None and chip.kind == "tpu":
        note("No slice given: every mesh axis is taken as a full ring of its own, the book's ideal.")
    report = shard_report(expression, layout, on, read_sizes(sizes), most=alternatives)
    emit_json(report) if json else say(_text(report, backward))
    return 0


def _text(report, backward: bool) -> str:
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    lines = [(f"mesh {mesh}" if mesh else "one chip") + (f" on {report.on}" if report.on else "")]
    for line in report.forward:
        head = f"forward: {line.einsum}   (case {line.book_case})"
        lines += ["", head, *_arrays(line), *_ways(line)]
    if backward:
        for line in report.backward:
            lines += ["", f"backward: {line.einsum}   (case {line.book_case})", *_ways(line)]
        there, back = len(report.forward_collectives), len(report.backward_collectives)
        lines += ["", f"collectives in all, each move once: {there} forward, {back} backward"]
    return "\n".join([*lines, "", report.advice])


def _arrays(line) -> list[str]:
    columns = {
        "array": "array",
        "each chip holds": lambda row: " x ".join(map(str, row.local_shape)),
        "bytes": ("local_bytes", "bytes"),
        "all chips": ("total_bytes", "bytes"),
        "replicas": "replicas",
    }
    return [record_table(line.arrays, columns, indent=2)]


def _ways(line) -> list[str]:
    lines: list[str] = []
    for number, way in enumerate(line.strategies, 1):
        total = amount(way.wire_bytes_per_chip, "bytes")
        head = f"  {number}. {'cheapest' if number == 1 else 'or'}: {total} sent per chip"
        if way.bound_by:
            head += f", {amount(way.lower_s, 's')} at best, bound by {way.bound_by}"
        if not way.computes and not way.collectives:
            lines.append("  free: each chip keeps its part of what it has")
            continue
        lines.append(head)
        if isinstance(way.lower_s, float) and way.computes:
            times = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
            parts = ", ".join(f"{name} {amount(time, 's')}" for name, time in times.items())
            lines.append(f"     {parts}")
        lines += [f"     {_move(row)}" for row in way.collectives if row.when == "before"]
        if way.computes:
            read, written = (
                amount(held, "bytes") for held in (way.hbm_read_bytes_per_chip, way.hbm_written_bytes_per_chip)
            )
            work = f"{amount(way.flops_per_chip, 'FLOP')} per chip, {read} read, {written} written"
            lines.append(f"     matmul {way.local}: {work}")
        then = "then " if way.computes else ""
        lines += [f"     {then}{_move(row)}" for row in way.collectives if row.when == "after"]
        if not way.collectives:
            lines.append("     no communication")
    return lines


def _move(row) -> str:
    seconds = f", {amount(row.seconds, 's')}" if isinstance(row.seconds, float) else ""
    if isinstance(row.seconds, float) and row.book_s > 1.001 * row.seconds:
        seconds += f"; {amount(row.book_s, 's')} to first order"
    size = amount(row.bytes, "bytes")
    return f"{row.collective} over {', '.join(row.axes)}: {row.array} -> {row.result} ({size}{seconds})"
