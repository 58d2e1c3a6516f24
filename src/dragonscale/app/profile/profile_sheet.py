"""`dscale profile` laid out: the step and what it is made of, what would save most, the groups; ops, devices and gaps
behind `--explain`."""

from typing import Any

from dragonscale.app.profile.profile_records import ProfileReport
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.names import short_name
from dragonscale.evidence.profiles.records import BesideLine, WorkGroup, WorkOp
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import (
    BarPart,
    Block,
    Facts,
    Grid,
    Prose,
    Sheet,
    StackedBar,
    Title,
    amount,
    facts,
    folded,
    records,
    table,
)
from dragonscale.sheets.sheet import Column as Col


def profile_sheet(report: ProfileReport, detail: bool) -> Sheet:
    """The whole answer."""
    blocks: list[Block | None] = [
        Title(_title(report), report.source),
        Prose(" ".join(_first(report)), "warn") if _first(report) else None,
        _summary(report),
        None if report.static else _bar(report),
        _savings(report),
        groups(report, detail),
        beside(report, detail),
        communication(report, detail),
        gaps(report) if detail or _idle(report) > 0.05 else None,
        waste(report) if detail else None,
        ops(report, detail),
        devices(report) if detail else None,
        steps(report) if detail else None,
        Prose("\n".join((*report.unknown, *(one for one in report.notes if one not in _first(report)))), "dim"),
    ]
    return Sheet(tuple(one for one in blocks if one is not None and one != Prose("", "dim")))


def _first(report: ProfileReport) -> tuple[str, ...]:
    """What must be known before anything else is read: that the plan is another's, or that the times are the host's."""
    return *report.differs, *(note for note in report.notes if note == NO_KERNELS)


def _title(report: ProfileReport) -> str:
    device = report.device or "no device"
    count = f"{report.devices} x {device}" if report.devices > 1 else device
    if report.static:
        return f"A program that was not timed, at the rates of {report.chip or 'no known chip'}"
    return f"A profile of {count}" + (f", by {report.software}" if report.software else "")


def _summary(report: ProfileReport) -> Facts:
    """The step, its utilisation, and what it waits for."""
    steps = report.steps
    if report.static:
        step = f"{render(report.step_s, 's')} at best: a bound at datasheet rates, not a time"
        return facts(("program", step), _flops(report), _sizes(report), _memory(report))
    middle = f"{render(report.step_s, 's')}"
    if steps.chosen is not None:
        middle += f", step {steps.chosen} of 0 to {steps.count - 1}"
    elif steps.count > 1:
        middle += (
            f", mean of {steps.kept} of {steps.count} steps ({render(steps.fastest_s, 's')} to "
            f"{render(steps.slowest_s, 's')})"
        )
    between = ""
    if steps.between_s > 0.005 * report.step_s or steps.between:
        others = f"; {', '.join(steps.between[:4])}" if steps.between else ""
        between = f"{render(steps.between_s, 's')} from the end of one to the start of the next{others}"
    planned = ""
    if report.planned_step_s:
        ratio = report.step_s / report.planned_step_s
        took = "which is not what was recorded" if report.differs else f"the step took {ratio:.2f} times that"
        planned = f"{render(report.planned_step_s, 's')} expected of {report.plan}: {took}"
    return facts(
        ("step", middle, "key"),
        ("steps by", steps.found_by),
        ("between", between),
        ("planned", planned),
        _flops(report),
        ("bound", _bounded(report)),
        _sizes(report),
        _memory(report),
        (
            "known",
            (
                f"{report.attributed_kind:.1%} of device time by kind, {report.attributed_section:.1%} by part of the "
                "model"
            ),
        ),
    )


def _flops(report: ProfileReport) -> tuple[str, str]:
    parts = []
    if report.mfu is not None:
        parts.append(f"MFU {report.mfu:.1%}")
    if report.hfu is not None:
        parts.append(f"HFU {report.hfu:.1%}")
    if report.computed_flops:
        halved = report.computed_flops < 0.999 * (report.matmul_flops or 0.0)
        parts.append(
            f"{render(report.computed_flops, 'FLOP')} of matmuls and attention on a device"
            + (" (of causal attention the half that is computed)" if halved else "")
        )
    return "compute", ", ".join(parts)


def _bounded(report: ProfileReport) -> str:
    """What most of the step is bound by, in a sentence."""
    time = {"idle": _idle(report) * report.step_s}
    for group in report.groups:
        word = group.bound_by or "not known"
        time[word] = time.get(word, 0.0) + group.exposed_s
    names = {
        "compute": "compute",
        "memory": "HBM bandwidth",
        "network": "exposed communication",
        "launch": "short kernels",
        "idle": "an idle device",
        "host link": "transfers to and from the host",
        "not known": "ops without a known roofline",
    }
    order = sorted((word for word in time if time[word] > 0.02 * report.step_s), key=lambda word: -time[word])
    told = [f"{time[word] / report.step_s:.0%} {names.get(word, word)}" for word in order if report.step_s]
    return ", ".join(told)


def _idle(report: ProfileReport) -> float:
    return next((part.share for part in report.parts if part.name == "idle"), 0.0)


def _sizes(report: ProfileReport) -> tuple[str, str]:
    told = ", ".join(f"{name} {value:,.0f}" for name, value in report.sizes.items())
    return "sizes", f"{told} (from the shapes of its matmuls)" if told else ""


def _memory(report: ProfileReport) -> tuple[str, str]:
    if not report.memory:
        return "memory", ""
    most = max(report.memory, key=lambda one: one.peak_bytes)
    room = f" of {render(most.capacity_bytes, 'bytes')}" if most.capacity_bytes else ""
    return (
        "memory",
        f"{render(most.peak_bytes, 'bytes')}{room} at the peak, {render(most.peak_at_s, 's')} into the recording",
    )


def _bar(report: ProfileReport) -> StackedBar:
    """The step by what the device did: compute by kind of op, and the rest."""
    kinds: dict[str, float] = {}
    for group in report.groups:
        name = group.kind.replace("_", "-") or "not known"
        kinds[name] = kinds.get(name, 0.0) + group.exposed_s
    parts = [
        BarPart(name, seconds, render(seconds, "s"))
        for name, seconds in sorted(kinds.items(), key=lambda one: -one[1])
        if seconds
    ]
    idle = _idle(report) * report.step_s
    if idle > 0:
        parts.append(BarPart("idle", idle, render(idle, "s")))
    return StackedBar("time", folded(parts, "s"), report.step_s, render(report.step_s, "s"))


def _savings(report: ProfileReport) -> Grid | None:
    if not report.savings:
        return None
    rows = [
        (amount(one.seconds, "s"), f"{one.seconds / report.step_s:.0%}", _said(one.what, one.why))
        for one in report.savings
    ]
    return table([Col("saves up to", right=True), Col("of step", right=True), Col("what to look at", wrap=True)], rows)


def _said(what: str, why: str) -> str:
    """A finding and what to do about it, as sentences."""
    first = what[:1].upper() + what[1:] if what.split()[0].strip(",:").isalpha() else what  # not the name of a program
    return f"{first}. {why[:1].upper()}{why[1:]}." if why else f"{first}."


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
