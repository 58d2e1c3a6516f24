"""`dscale profile` laid out: the step and what it is made of, what would save most, the groups; ops, devices and gaps
behind `--explain`."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dragonscale.blocks import sheet
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.names import short_name
from dragonscale.evidence.profiles.records import BesideLine
from dragonscale.physics.units import render

# Rows of a table without `--explain`: groups, ops, lines of a plan or collectives; and steps with it.
MAX_GROUPS = 14
MAX_OPS = 10
MAX_LINES = 12
MAX_STEPS = 40
# Fractions of the step below which something is left to `--explain`: idle time, a bound, a group, a collective, and
# the time between two steps.
MIN_IDLE = 0.05
MIN_BOUND = 0.02
MIN_GROUP = 0.003
MIN_MOVE = 0.001
MIN_BETWEEN = 0.005


def profile_blocks(report: ProfileReport, detail: bool) -> sheet.Sheet:
    """The whole answer."""
    warnings = _warnings(report)
    remarks = "\n".join((*report.unknown, *(note for note in report.notes if note not in warnings)))
    blocks: list[sheet.Block | None] = [sheet.Title(_title(report), report.source)]
    if warnings:
        blocks.append(sheet.Prose(" ".join(warnings), "warn"))
    blocks.append(_summary(report))
    if not report.static:
        blocks.append(_bar(report))
    blocks += [_savings(report), _groups(report, detail), _beside(report, detail), _communication(report, detail)]
    if detail or _idle(report) > MIN_IDLE:
        blocks.append(_grid("gaps", report.gaps))
    if detail:
        blocks.append(_grid("waste", report.waste))
    blocks.append(_ops(report, detail))
    if detail:
        blocks.append(_grid("by_device", report.by_device))
        if len(report.steps.steps) > 1:
            blocks.append(_grid("steps", report.steps.steps[:MAX_STEPS]))
    if remarks:
        blocks.append(sheet.Prose(remarks, "dim"))
    return sheet.sheet(*blocks)


def _warnings(report: ProfileReport) -> list[str]:
    """What must be known before anything else is read: that the plan is another's, or that the times are the host's."""
    return [*report.differs, *(note for note in report.notes if note == NO_KERNELS)]


def _title(report: ProfileReport) -> str:
    if report.static:
        return f"A program that was not timed, at the rates of {report.chip or 'no known chip'}"
    title = report.device or "no device"
    if report.devices > 1:
        title = f"{report.devices} x {title}"
    if report.software:
        title += f", by {report.software}"
    return f"A profile of {title}"


def _summary(report: ProfileReport) -> sheet.Facts:
    """The step, its utilisation, and what it waits for."""
    if report.static:
        step = f"{render(report.step_s, 's')} at best: a bound at datasheet rates, not a time"
        return sheet.facts(("program", step), _flops(report), _sizes(report), _memory(report))
    return sheet.facts(
        ("step", _step(report), "key"),
        ("steps by", report.steps.found_by),
        ("between", _between(report)),
        ("planned", _planned(report)),
        _flops(report),
        ("bound", _bounded(report)),
        _sizes(report),
        _memory(report),
        ("known", _attributed(report)),
    )


def _step(report: ProfileReport) -> str:
    """The step, and of which steps it is the mean."""
    steps, text = report.steps, render(report.step_s, "s")
    if steps.chosen is not None:
        return f"{text}, step {steps.chosen} of 0 to {steps.count - 1}"
    if steps.count == 1:
        return text
    reach = f"{render(steps.fastest_s, 's')} to {render(steps.slowest_s, 's')}"
    return f"{text}, mean of {steps.kept} of {steps.count} steps ({reach})"


def _between(report: ProfileReport) -> str:
    """The time from one step to the next, with what ran in it."""
    steps = report.steps
    if steps.between_s <= MIN_BETWEEN * report.step_s and not steps.between:
        return ""
    others = ""
    if steps.between:
        others = f"; {', '.join(steps.between[:4])}"
    return f"{render(steps.between_s, 's')} from the end of one to the start of the next{others}"


def _planned(report: ProfileReport) -> str:
    """The plan's step against the measured one."""
    if not report.planned_step_s:
        return ""
    outcome = f"the step took {report.step_s / report.planned_step_s:.2f} times that"
    if report.differs:
        outcome = "which is not what was recorded"
    return f"{render(report.planned_step_s, 's')} expected of {report.plan}: {outcome}"


def _attributed(report: ProfileReport) -> str:
    """How much of the device's time is attributed to kinds of ops and parts of the model."""
    parts = report.attributed_section - report.guessed_section
    text = f"{report.attributed_kind:.1%} of device time by kind, {parts:.1%} by part of the model"
    if report.guessed_section:
        text += f"; of {report.guessed_section:.1%} the part is a guess from the order of kernels"
    return text


def _flops(report: ProfileReport) -> tuple[str, str]:
    parts: list[str] = []
    if report.mfu is not None:
        parts.append(f"MFU {report.mfu:.1%}")
    if report.hfu is not None:
        parts.append(f"HFU {report.hfu:.1%}")
    if report.computed_flops:
        text = f"{render(report.computed_flops, 'FLOP')} of matmuls and attention on a device"
        if report.computed_flops < 0.999 * (report.matmul_flops or 0.0):
            text += " (of causal attention the half that is computed)"
        parts.append(text)
    return "compute", ", ".join(parts)


def _bounded(report: ProfileReport) -> str:
    """What most of the step is bound by, in a sentence."""
    seconds = {"idle": _idle(report) * report.step_s}
    for group in report.groups:
        bound = group.bound_by or "not known"
        seconds[bound] = seconds.get(bound, 0.0) + group.exposed_s
    parts: list[str] = []
    for bound in sorted(seconds, key=lambda bound: -seconds[bound]):
        if report.step_s and seconds[bound] > MIN_BOUND * report.step_s:
            parts.append(f"{seconds[bound] / report.step_s:.0%} {_described()['bounds'].get(bound, bound)}")
    return ", ".join(parts)


def _idle(report: ProfileReport) -> float:
    """The fraction of the step in which the device is idle."""
    return next((part.share for part in report.parts if part.name == "idle"), 0.0)


def _sizes(report: ProfileReport) -> tuple[str, str]:
    if not report.sizes:
        return "sizes", ""
    sizes = ", ".join(f"{name} {value:,.0f}" for name, value in report.sizes.items())
    return "sizes", f"{sizes} (from the shapes of its matmuls)"


def _memory(report: ProfileReport) -> tuple[str, str]:
    """The peak of the fullest device."""
    if not report.memory:
        return "memory", ""
    fullest = max(report.memory, key=lambda use: use.peak_bytes)
    peak = render(fullest.peak_bytes, "bytes")
    if fullest.capacity_bytes:
        peak += f" of {render(fullest.capacity_bytes, 'bytes')}"
    return "memory", f"{peak} at the peak, {render(fullest.peak_at_s, 's')} into the recording"


def _bar(report: ProfileReport) -> sheet.StackedBar:
    """The step by what the device did: compute by kind of op, the longest first, and idle time."""
    kinds: dict[str, float] = {}
    for group in report.groups:
        name = group.kind.replace("_", "-") or "not known"
        kinds[name] = kinds.get(name, 0.0) + group.exposed_s
    ordered = dict(sorted(kinds.items(), key=lambda kind: -kind[1])) | {"idle": _idle(report) * report.step_s}
    parts = [sheet.BarPart(name, seconds, render(seconds, "s")) for name, seconds in ordered.items() if seconds > 0]
    return sheet.StackedBar("time", sheet.folded(parts, "s"), report.step_s, render(report.step_s, "s"))


def _savings(report: ProfileReport) -> sheet.Grid | None:
    if not report.savings:
        return None
    rows: list[tuple[str, str, str]] = []
    for saving in report.savings:
        share = f"{saving.seconds / report.step_s:.0%}"
        rows.append((sheet.amount(saving.seconds, "s"), share, _finding(saving.what, saving.why)))
    saved, share = sheet.Column("saves up to", right=True), sheet.Column("of step", right=True)
    return sheet.table([saved, share, sheet.Column("what to look at", wrap=True)], rows)


def _finding(what: str, why: str) -> str:
    """A finding and what to do about it, as sentences."""
    if what.split()[0].strip(",:").isalpha():  # not the name of a program
        what = what[:1].upper() + what[1:]
    if why:
        return f"{what}. {why[:1].upper()}{why[1:]}."
    return f"{what}."


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0%}"


def _times(value: float) -> str:
    """How often a step runs an op: a mean over steps, so it need not be whole."""
    if value >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}"


def _rate(value: tuple[float, str]) -> str:
    """A rate in its own unit: FLOP/s of a matmul, bytes/s of a copy."""
    if not value[0]:
        return "–"
    return render(*value)


# How a cell is shown, by the forms of `blocks.toml`.
_FORMS: dict[str, Callable[[Any], str]] = {
    "word": lambda value: value or "–",
    "kind": lambda value: value.replace("_", "-") or "–",
    "1%": lambda value: f"{value:.1%}",
    "0%": _share,
    "times": _times,
    "rate": _rate,
    "more": lambda value: ("+" if value >= 0 else "-") + render(abs(value), "s"),
    "op": short_name,
    "ops": lambda value: ", ".join(map(short_name, value)),
    "host": lambda value: ", ".join(short_name(name.removeprefix("[0] "), 34) for name in value[:3]) or "–",
    "kept": lambda value: "" if value else "left out",
    "part": lambda op: " ".join(filter(None, (op.section, op.phase))) or "–",
    "device": lambda time: f"{time.device} {time.name}",
    "line": lambda line: _line_name(line),
}
# Forms of numbers, whose columns are set flush right.
_FLUSH_RIGHT = ("1%", "0%", "times", "rate", "more")


@cache
def _described() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("blocks.toml").read_text("utf-8"))


def _grid(name: str, rows: Sequence[Any], foot: str = "", renamed: Mapping[str, str | None] = {}) -> sheet.Grid | None:
    """A table of `blocks.toml` where there are rows; a column that is `renamed` to None is left out."""
    if not rows:
        return None
    described = _described()[name]
    columns: dict[str, Any] = {}
    for head, field, form in described["columns"]:
        title = renamed.get(head, head)
        if title is not None:
            columns[title] = _column(field, form)
    return sheet.records(rows, columns, described.get("title", ""), foot, described.get("how"))


def _column(field: str, form: str) -> Any:
    """A column as `records` takes it: a field, or a function of the row, with the dimension that it is shown in."""
    if form not in _FORMS:
        return (field, form) if form else field

    def shown(row: Any) -> str:
        if field:
            row = getattr(row, field)
        return _FORMS[form](row)

    if form in _FLUSH_RIGHT:  # a column with a dimension, if an empty one, is one of numbers
        return shown, ""
    return shown


def _more(rows: Sequence[Any], shown: Sequence[Any]) -> str:
    """The line under a table that does not show all rows."""
    rest = len(rows) - len(shown)
    if not rest:
        return ""
    return f"and {rest} more (--explain shows all)"


def _groups(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """Time by part, phase and kind, each against its roofline."""
    # what was not timed has a bound and no time
    renamed = {}
    if report.static:
        renamed = {"time": "bound"}
    if detail:
        return _grid("groups", report.groups, renamed=renamed)
    shown = [group for group in report.groups if group.share > MIN_GROUP][:MAX_GROUPS]
    return _grid("groups", shown, _more(report.groups, shown), renamed)


def _ops(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """The longest ops; what is exposed of them only where that is less."""
    shown = report.ops
    if not detail:
        shown = shown[:MAX_OPS]
    renamed: dict[str, str | None] = {"exposed": None}
    if any(op.seconds > 1.01 * op.exposed_s for op in shown):
        renamed = {}
    return _grid("ops", shown, renamed=renamed)


def _communication(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """Collectives by kind and axes; those that take next to nothing only in detail."""
    shown = report.communication
    if not (detail or report.static):
        shown = [move for move in shown if move.seconds > MIN_MOVE * report.step_s]
    if not detail:
        shown = shown[:MAX_LINES]
    return _grid("communication", shown)


def _beside(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """The plan's lines beside what was measured."""
    shown = report.beside
    if not detail:
        shown = shown[:MAX_LINES]
    return _grid("beside", shown, _more(report.beside, shown))


def _line_name(line: BesideLine) -> str:
    """A line of the plan: `mlp matmul backward`, `all-gather over fsdp`, `idle`."""
    kind = line.kind.replace("_", "-")
    if "_" in line.kind:
        return f"{kind} over {line.section}"
    if line.section in ("step", line.kind):  # `optimizer`, not `optimizer optimizer`
        return f"{kind} {line.phase}".strip()
    return " ".join(filter(None, (line.section, kind, line.phase)))
