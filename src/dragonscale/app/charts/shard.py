"""Charts of `dscale shard`: what each way of computing an einsum asks of compute, HBM and network; the
mesh it runs on."""

from dragonscale.app.charts.roles import chosen_kind, nothing_to_draw
from dragonscale.app.shard_report import MoveRow, ShardReport, StrategyRow
from dragonscale.sheets.charts import AxisMove, Bar, Chart, MeshAxis, bars, mesh_chart
from dragonscale.sheets.charts.theme import SERIES

KINDS = ("bars", "mesh")
AXES = ("tensor", "fsdp", "data", "context", "expert", "pipe")
"""Colours of mesh axes, which a user names as they like, in their order."""


def draw(kind: str, asked: object, report: ShardReport) -> Chart:  # noqa: ARG001  the record says it all
    """The chart that was asked for."""
    return {"bars": bars_chart, "mesh": mesh_picture}[chosen_kind(kind, KINDS)](report)


def _roles(report: ShardReport) -> dict[str, str]:
    return {name: AXES[place % len(AXES)] for place, name in enumerate(report.mesh)}


def _title(report: ShardReport) -> tuple[str, str]:
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    return "; ".join(line.einsum for line in report.forward), f"mesh {mesh}" + (f" on {report.on}" if report.on else "")


def bars_chart(report: ShardReport) -> Chart:
    """The cheapest way of each einsum: compute, HBM and every collective, side by side since they may overlap."""
    roles, rows = _roles(report), []
    several = len(report.forward) > 1
    for line in report.forward:
        best = line.strategies[0]
        rows += _resources(best, f"{line.einsum}: " if several else "")
        for move in best.collectives:
            if isinstance(move.seconds, float):
                name = f"{move.collective.replace('_', '-')} over {', '.join(move.axes)}: {move.array}"
                rows.append(Bar(name, move.seconds, roles.get(move.axes[0], SERIES[1])))
    if not rows:
        raise nothing_to_draw("times need a chip (--on) and every size (--sizes)")
    title, subtitle = _title(report)
    return bars(rows, title, f"{subtitle}: time of each resource, forward", "s")


def _resources(way: StrategyRow, prefix: str) -> list[Bar]:
    known = (("compute", way.math_s, "compute"), ("HBM", way.hbm_s, "hbm"))
    return [Bar(prefix + name, value, role) for name, value, role in known if isinstance(value, float) and value > 0]


def mesh_picture(report: ShardReport) -> Chart:
    """The mesh with the collectives of the forward and the backward pass beside each axis."""
    roles = _roles(report)
    axes = []
    for name, size in report.mesh.items():
        moves = [("forward", row) for row in report.forward_collectives] + [
            ("backward", row) for row in report.backward_collectives
        ]
        own = tuple(
            _move(when, row)
            for when, row in moves
            if row.axes[0] == name and isinstance(row.wire_bytes_per_chip, float)
        )
        axes.append(MeshAxis(name, size, roles[name], "", own))
    title, subtitle = _title(report)
    sizes = ", ".join(f"{name}={size:,}" for name, size in report.sizes.items())
    with_sizes = f"{subtitle}, {sizes}" if sizes else subtitle
    return mesh_chart(axes, title, f"{with_sizes}: what each chip sends", down=len(axes) == 2)


def _move(when: str, row: MoveRow) -> AxisMove:
    words = f"{row.collective.replace('_', '-')} {row.array}, {when}"
    words += f" (with {', '.join(row.axes[1:])})" if len(row.axes) > 1 else ""
    assert isinstance(row.wire_bytes_per_chip, float)
    return AxisMove(words, row.wire_bytes_per_chip, row.seconds if isinstance(row.seconds, float) else None)
