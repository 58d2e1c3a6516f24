"""The tables of `dscale profile`: groups, ops, communication, gaps, waste, devices, steps, and the plan beside them."""

from typing import Any

from dragonscale.app.profile.profile_records import ProfileReport
from dragonscale.evidence.profiles.names import short_name
from dragonscale.evidence.profiles.records import BesideLine, WorkGroup, WorkOp
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Grid, records

GROUPS, OPS, LINES = 14, 10, 12
_SHARE = (lambda row: f"{row.share:.1%}", "")
_TIMES = (lambda row: f"{row.times:,.0f}" if row.times >= 10 or row.times == int(row.times) else f"{row.times:.1f}", "")
_FRACTION = (lambda row: "–" if row.fraction is None else f"{row.fraction:.0%}", "")
_ROOFLINE = {
    "of step": _SHARE,
    "times": _TIMES,
    "achieved": (lambda row: _achieved(row), ""),
    "of roof": _FRACTION,
    "bound by": lambda row: row.bound_by or "–",
}
"""What a group and an op have in common: how well each did against its roofline."""


def _grid(rows: Any, columns: dict[str, Any], title: str = "", foot: str = "", **how: dict[str, Any]) -> Grid | None:
    """A table where there are rows; `keep` says which columns stay longest where there is little room, `wrap` which
    may take several lines, each by its heading."""
    words: dict[str, dict[str, Any]] = {}
    for word, values in how.items():
        for name, value in values.items():
            words.setdefault(name, {})[word] = value
    return records(rows, columns, title, foot, words) if rows else None


def _more(every: Any, shown: Any) -> str:
    rest = len(every) - len(shown)
    return f"and {rest} more (--explain shows all)" if rest else ""


def groups(report: ProfileReport, detail: bool) -> Grid | None:
    """Time by part, phase and kind, each against its roofline."""
    shown = [group for group in report.groups if detail or group.share > 0.003][: None if detail else GROUPS]
    columns = {
        "part": lambda row: row.section or "–",
        "phase": lambda row: row.phase or "–",
        "kind": lambda row: row.kind.replace("_", "-") or "–",
        "bound" if report.static else "time": ("exposed_s", "s"),
        **_ROOFLINE,
    }
    keep = {"phase": 5, "of step": 7, "times": 2, "achieved": 4, "bound by": 6}
    return _grid(shown, columns, "where the time goes", "" if detail else _more(report.groups, shown), keep=keep)


def ops(report: ProfileReport, detail: bool) -> Grid | None:
    """The longest ops."""
    shown = report.ops if detail else report.ops[:OPS]
    overlaps = any(op.seconds > 1.01 * op.exposed_s for op in shown)
    columns = {
        "op": lambda row: short_name(row.name),
        "part": lambda row: " ".join(filter(None, (row.section, row.phase))) or "–",
        "time": ("seconds", "s"),
        **({"exposed": ("exposed_s", "s")} if overlaps else {}),
        **_ROOFLINE,
    }
    keep = {"part": 6, "times": 3, "achieved": 4, "of roof": 7, "bound by": 2}
    return _grid(shown, columns, "longest ops", keep=keep)


def communication(report: ProfileReport, detail: bool) -> Grid | None:
    """Collectives by kind and axes; those that take next to nothing only in detail."""
    every = detail or report.static
    shown = [move for move in report.communication if every or move.seconds > 0.001 * report.step_s]
    columns = {
        "communication": lambda row: row.kind.replace("_", "-"),
        "over": "over",
        "exposed": ("exposed_s", "s"),
        "overlapped": ("overlapped_s", "s"),
        "times": _TIMES,
        "sent": ("sent_bytes", "bytes"),
        "rate": ("bus_bytes_per_s", "bytes/s"),
        "of wires": _FRACTION,
    }
    return _grid(shown[: None if detail else LINES], columns, keep={"times": 3, "sent": 4, "rate": 5})


def gaps(report: ProfileReport) -> Grid | None:
    """Idle time by cause."""
    host = "the host meanwhile"
    columns = {
        "idle": "cause",
        "time": ("seconds", "s"),
        "times": _TIMES,
        "longest": ("longest_s", "s"),
        host: lambda row: ", ".join(short_name(name.removeprefix("[0] "), 34) for name in row.what[:3]) or "–",
    }
    return _grid(report.gaps, columns, keep={host: 5}, wrap={host: True})


def waste(report: ProfileReport) -> Grid | None:
    """Copies and padding."""
    largest = {"largest": lambda row: ", ".join(map(short_name, row.ops))}
    columns = {"waste": "what", "time": ("seconds", "s"), "of step": _SHARE, **largest}
    return _grid(report.waste, columns, keep={"largest": 5}, wrap={"largest": True})


def beside(report: ProfileReport, detail: bool) -> Grid | None:
    """The plan's lines beside what was measured."""
    shown = report.beside if detail else report.beside[:LINES]
    columns = {
        "beside the plan": _line_name,
        "measured": ("measured_s", "s"),
        "expected": ("expected_s", "s"),
        "more": (lambda row: ("+" if row.difference_s >= 0 else "-") + render(abs(row.difference_s), "s"), ""),
        "": "why",
    }
    return _grid(shown, columns, "", _more(report.beside, shown), wrap={"": True})


def devices(report: ProfileReport) -> Grid | None:
    """The parts of a step on each device."""
    columns = {
        "device": lambda row: f"{row.device} {row.name}",
        "step": ("step_s", "s"),
        "compute": ("compute_s", "s"),
        "exposed comm.": ("communication_s", "s"),
        "copies": ("copies_s", "s"),
        "idle": ("idle_s", "s"),
    }
    return _grid(report.by_device, columns)


def steps(report: ProfileReport) -> Grid | None:
    """Each step."""
    shown = report.steps.steps[:40]
    columns = {
        "step": "number",
        "name": lambda row: row.name or "–",
        "begins": ("start_s", "s"),
        "takes": ("seconds", "s"),
        "": lambda row: "" if row.kept else "left out",
    }
    return _grid(shown, columns) if len(shown) > 1 else None


def _line_name(line: BesideLine) -> str:
    """A line of the plan: `mlp matmul backward`, `all-gather over fsdp`, `idle`."""
    kind = line.kind.replace("_", "-")
    if "_" in line.kind:
        return f"{kind} over {line.section}"
    section = "" if line.section in ("step", line.kind) else line.section
    return " ".join(filter(None, (section, kind, line.phase)))


def _achieved(work: WorkGroup | WorkOp) -> str:
    """The achieved rate of what bounds it."""
    value, unit = work.achieved
    return render(value, unit) if value else "–"
