"""The tables of `dscale profile`: groups, ops, communication, gaps, waste, devices, steps, and the plan beside them."""

from typing import TYPE_CHECKING

from dragonscale.evidence.profiles.names import short_name
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Column, Grid, amount, table

if TYPE_CHECKING:
    from dragonscale.app.profile.records import ProfileReport
    from dragonscale.evidence.profiles.records import BesideLine, WorkGroup, WorkOp

GROUPS, OPS, LINES = 14, 10, 12


def groups(report: "ProfileReport", detail: bool) -> Grid | None:
    """Time by part, phase and kind, each against its roofline."""
    shown = [one for one in report.groups if detail or one.share > 0.003][: None if detail else GROUPS]
    rows = [
        (
            one.section or "–",
            one.phase or "–",
            one.kind.replace("_", "-") or "–",
            amount(one.exposed_s, "s"),
            f"{one.share:.1%}",
            _often(one.times),
            achieved(one),
            _percent(one.fraction),
            one.bound_by or "–",
        )
        for one in shown
    ]
    columns = [
        "part",
        Column("phase", keep=5),
        "kind",
        Column("bound" if report.static else "time", right=True),
        Column("of step", right=True, keep=7),
        Column("times", right=True, keep=2),
        Column("achieved", right=True, keep=4),
        Column("of roof", right=True),
        Column("bound by", keep=6),
    ]
    rest = len(report.groups) - len(shown)
    foot = f"and {rest} more (--explain shows all)" if rest and not detail else ""
    return table(columns, rows, "where the time goes", foot) if rows else None


def ops(report: "ProfileReport", detail: bool) -> Grid | None:
    """The longest ops."""
    shown = report.ops if detail else report.ops[:OPS]
    overlaps = any(one.seconds > 1.01 * one.exposed_s for one in shown)
    rows = [
        (
            short_name(one.name),
            " ".join(filter(None, (one.section, one.phase))) or "–",
            amount(one.seconds, "s"),
            *([amount(one.exposed_s, "s")] if overlaps else []),
            f"{one.share:.1%}",
            _often(one.times),
            achieved(one),
            _percent(one.fraction),
            one.bound_by or "–",
        )
        for one in shown
    ]
    columns = [
        "op",
        Column("part", keep=6),
        Column("time", right=True),
        *([Column("exposed", right=True)] if overlaps else []),
        Column("of step", right=True),
        Column("times", right=True, keep=3),
        Column("achieved", right=True, keep=4),
        Column("of roof", right=True, keep=7),
        Column("bound by", keep=2),
    ]
    return table(columns, rows, "longest ops") if rows else None


def communication(report: "ProfileReport", detail: bool) -> Grid | None:
    """Collectives by kind and axes; those that take next to nothing only in detail."""
    shown = [one for one in report.communication if detail or report.static or one.seconds > 0.001 * report.step_s][
        : None if detail else LINES
    ]
    rows = [
        (
            one.kind.replace("_", "-"),
            one.over,
            amount(one.exposed_s, "s"),
            amount(one.overlapped_s, "s"),
            _often(one.times),
            amount(one.sent_bytes, "bytes"),
            amount(one.bus_bytes_per_s, "bytes/s"),
            _percent(one.fraction),
        )
        for one in shown
    ]
    columns = [
        "communication",
        "over",
        Column("exposed", right=True),
        Column("overlapped", right=True),
        Column("times", right=True, keep=3),
        Column("sent", right=True, keep=4),
        Column("rate", right=True, keep=5),
        Column("of wires", right=True),
    ]
    return table(columns, rows) if rows else None


def gaps(report: "ProfileReport") -> Grid | None:
    """Idle time by cause."""
    rows = [
        (
            one.cause,
            amount(one.seconds, "s"),
            _often(one.times),
            amount(one.longest_s, "s"),
            ", ".join(short_name(name.removeprefix("[0] "), 34) for name in one.what[:3]) or "–",
        )
        for one in report.gaps
    ]
    columns = [
        "idle",
        Column("time", right=True),
        Column("times", right=True),
        Column("longest", right=True),
        Column("the host meanwhile", wrap=True, keep=5),
    ]
    return table(columns, rows) if rows else None


def waste(report: "ProfileReport") -> Grid | None:
    """Copies and padding."""
    rows = [
        (one.what, amount(one.seconds, "s"), f"{one.share:.1%}", ", ".join(map(short_name, one.ops)))
        for one in report.waste
    ]
    return (
        table(
            ["waste", Column("time", right=True), Column("of step", right=True), Column("largest", wrap=True, keep=5)],
            rows,
        )
        if rows
        else None
    )


def beside(report: "ProfileReport", detail: bool) -> Grid | None:
    """The plan's lines beside what was measured."""
    shown = report.beside if detail else report.beside[:LINES]
    rows = [
        (
            _line_name(one),
            amount(one.measured_s, "s"),
            amount(one.expected_s, "s"),
            _signed(one.difference_s),
            one.why,
        )
        for one in shown
    ]
    columns = [
        "beside the plan",
        Column("measured", right=True),
        Column("expected", right=True),
        Column("more", right=True),
        Column("", wrap=True),
    ]
    rest = len(report.beside) - len(shown)
    return table(columns, rows, "", f"and {rest} more (--explain shows all)" if rest else "") if rows else None


def devices(report: "ProfileReport") -> Grid | None:
    """The parts of a step on each device."""
    rows = [
        (
            f"{one.device} {one.name}",
            *(
                amount(value, "s")
                for value in (one.step_s, one.compute_s, one.communication_s, one.copies_s, one.idle_s)
            ),
        )
        for one in report.by_device
    ]
    columns = ["device", *(Column(name, right=True) for name in ("step", "compute", "exposed comm.", "copies", "idle"))]
    return table(columns, rows) if rows else None


def steps(report: "ProfileReport") -> Grid | None:
    """Each step."""
    rows = [
        (
            one.number,
            one.name or "–",
            amount(one.start_s, "s"),
            amount(one.seconds, "s"),
            "" if one.kept else "left out",
        )
        for one in report.steps.steps[:40]
    ]
    columns = ["step", "name", Column("begins", right=True), Column("takes", right=True), ""]
    return table(columns, rows) if len(rows) > 1 else None


def _line_name(one: "BesideLine") -> str:
    """A line of the plan: `mlp matmul backward`, `all-gather over fsdp`, `idle`."""
    kind = one.kind.replace("_", "-")
    if "_" in one.kind:
        return f"{kind} over {one.section}"
    section = "" if one.section in ("step", one.kind) else one.section
    return " ".join(filter(None, (section, kind, one.phase)))


def achieved(one: "WorkGroup | WorkOp") -> str:
    """The achieved rate of what bounds it."""
    value, unit = rate_of(one.kind, one.bound_by, one.flops_per_s, one.bytes_per_s)
    return render(value, unit) if value else "–"


def rate_of(kind: str, bound_by: str, flops_per_s: float | None, bytes_per_s: float | None) -> tuple[float | None, str]:
    """The rate that says how well work was done, and its unit: FLOP/s of what multiplies, bytes/s of what memory bounds
    and of the rest."""
    multiplies = kind in ("matmul", "grouped matmul", "attention") and bound_by != "memory"
    return (flops_per_s, "FLOP/s") if multiplies and flops_per_s else (bytes_per_s or None, "bytes/s")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _often(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "-") + render(abs(value), "s")
