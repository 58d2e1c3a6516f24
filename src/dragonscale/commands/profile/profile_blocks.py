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


def profile_blocks(report: ProfileReport, detail: bool) -> sheet.Sheet:
    """The whole answer."""
    blocks: list[sheet.Block | None] = [
        sheet.Title(_title(report), report.source),
        sheet.Prose(" ".join(_first(report)), "warn") if _first(report) else None,
        _summary(report),
        None if report.static else _bar(report),
        _savings(report),
        _groups(report, detail),
        _beside(report, detail),
        _communication(report, detail),
        _grid("gaps", report.gaps) if detail or _idle(report) > 0.05 else None,
        _grid("waste", report.waste) if detail else None,
        _ops(report, detail),
        _grid("by_device", report.by_device) if detail else None,
        _grid("steps", report.steps.steps[:STEPS]) if detail and len(report.steps.steps) > 1 else None,
        sheet.Prose(
            "\n".join((*report.unknown, *(block for block in report.notes if block not in _first(report)))), "dim"
        ),
    ]
    return sheet.Sheet(tuple(block for block in blocks if block is not None and block != sheet.Prose("", "dim")))


def _first(report: ProfileReport) -> tuple[str, ...]:
    """What must be known before anything else is read: that the plan is another's, or that the times are the host's."""
    return *report.differs, *(note for note in report.notes if note == NO_KERNELS)


def _title(report: ProfileReport) -> str:
    device = report.device or "no device"
    if report.devices > 1:
        count = f"{report.devices} x {device}"
    else:
        count = device
    if report.static:
        return f"A program that was not timed, at the rates of {report.chip or 'no known chip'}"
    return f"A profile of {count}" + (f", by {report.software}" if report.software else "")


def _summary(report: ProfileReport) -> sheet.Facts:
    """The step, its utilisation, and what it waits for."""
    steps = report.steps
    if report.static:
        step = f"{render(report.step_s, 's')} at best: a bound at datasheet rates, not a time"
        return sheet.facts(("program", step), _flops(report), _sizes(report), _memory(report))
    middle = f"{render(report.step_s, 's')}"
    if steps.chosen is not None:
        middle += f", step {steps.chosen} of 0 to {steps.count - 1}"
    elif steps.count > 1:
        reach = f"{render(steps.fastest_s, 's')} to {render(steps.slowest_s, 's')}"
        middle += f", mean of {steps.kept} of {steps.count} steps ({reach})"
    between = ""
    if steps.between_s > 0.005 * report.step_s or steps.between:
        others = f"; {', '.join(steps.between[:4])}" if steps.between else ""
        between = f"{render(steps.between_s, 's')} from the end of one to the start of the next{others}"
    planned = ""
    if report.planned_step_s:
        ratio = report.step_s / report.planned_step_s
        if report.differs:
            took = "which is not what was recorded"
        else:
            took = f"the step took {ratio:.2f} times that"
        planned = f"{render(report.planned_step_s, 's')} expected of {report.plan}: {took}"
    parts = report.attributed_section - report.guessed_section
    attributed = f"{report.attributed_kind:.1%} of device time by kind, {parts:.1%} by part of the model"
    if report.guessed_section:
        attributed += f"; of {report.guessed_section:.1%} the part is a guess from the order of kernels"
    return sheet.facts(
        ("step", middle, "key"),
        ("steps by", steps.found_by),
        ("between", between),
        ("planned", planned),
        _flops(report),
        ("bound", _bounded(report)),
        _sizes(report),
        _memory(report),
        ("known", attributed),
    )


def _flops(report: ProfileReport) -> tuple[str, str]:
    rates = {"MFU": report.mfu, "HFU": report.hfu}
    parts = [f"{name} {rate:.1%}" for name, rate in rates.items() if rate is not None]
    if report.computed_flops:
        halved = report.computed_flops < 0.999 * (report.matmul_flops or 0.0)
        half = ""
        if halved:
            half = " (of causal attention the half that is computed)"
        parts.append(f"{render(report.computed_flops, 'FLOP')} of matmuls and attention on a device{half}")
    return "compute", ", ".join(parts)


def _bounded(report: ProfileReport) -> str:
    """What most of the step is bound by, in a sentence."""
    time = {"idle": _idle(report) * report.step_s}
    for group in report.groups:
        word = group.bound_by or "not known"
        time[word] = time.get(word, 0.0) + group.exposed_s
    order = sorted((word for word in time if time[word] > 0.02 * report.step_s), key=lambda word: -time[word])
    parts = [
        f"{time[word] / report.step_s:.0%} {_words()['bounds'].get(word, word)}" for word in order if report.step_s
    ]
    return ", ".join(parts)


def _idle(report: ProfileReport) -> float:
    return next((part.share for part in report.parts if part.name == "idle"), 0.0)


def _sizes(report: ProfileReport) -> tuple[str, str]:
    sizes = ", ".join(f"{name} {value:,.0f}" for name, value in report.sizes.items())
    return "sizes", f"{sizes} (from the shapes of its matmuls)" if sizes else ""


def _memory(report: ProfileReport) -> tuple[str, str]:
    if not report.memory:
        return "memory", ""
    fullest = max(report.memory, key=lambda use: use.peak_bytes)
    capacity = ""
    if fullest.capacity_bytes:
        capacity = f" of {render(fullest.capacity_bytes, 'bytes')}"
    peak, when = render(fullest.peak_bytes, "bytes"), render(fullest.peak_at_s, "s")
    return "memory", f"{peak}{capacity} at the peak, {when} into the recording"


def _bar(report: ProfileReport) -> sheet.StackedBar:
    """The step by what the device did: compute by kind of op, and the rest."""
    kinds: dict[str, float] = {}
    for group in report.groups:
        name = group.kind.replace("_", "-") or "not known"
        kinds[name] = kinds.get(name, 0.0) + group.exposed_s
    longest = dict(sorted(kinds.items(), key=lambda kind: -kind[1])) | {"idle": _idle(report) * report.step_s}
    parts = [sheet.BarPart(name, seconds, render(seconds, "s")) for name, seconds in longest.items() if seconds > 0]
    return sheet.StackedBar("time", sheet.folded(parts, "s"), report.step_s, render(report.step_s, "s"))


def _savings(report: ProfileReport) -> sheet.Grid | None:
    if not report.savings:
        return None
    rows = []
    for saving in report.savings:
        share = f"{saving.seconds / report.step_s:.0%}"
        rows.append((sheet.amount(saving.seconds, "s"), share, _said(saving.what, saving.why)))
    columns = (sheet.Column(name, right=True) for name in ("saves up to", "of step"))
    return sheet.table([*columns, sheet.Column("what to look at", wrap=True)], rows)


def _said(what: str, why: str) -> str:
    """A finding and what to do about it, as sentences."""
    # not the name of a program
    if what.split()[0].strip(",:").isalpha():
        first = what[:1].upper() + what[1:]
    else:
        first = what
    if why:
        return f"{first}. {why[:1].upper()}{why[1:]}."
    return f"{first}."


GROUPS, OPS, LINES, STEPS = 14, 10, 12, 40
# How a cell is shown, by the forms of `blocks.toml`.
_FORMS: dict[str, Callable[[Any], str]] = {
    "word": lambda value: value or "–",
    "kind": lambda value: value.replace("_", "-") or "–",
    "1%": lambda value: f"{value:.1%}",
    "0%": lambda value: "–" if value is None else f"{value:.0%}",
    "times": lambda value: f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}",
    "rate": lambda value: render(*value) if value[0] else "–",
    "more": lambda value: ("+" if value >= 0 else "-") + render(abs(value), "s"),
    "op": short_name,
    "ops": lambda value: ", ".join(map(short_name, value)),
    "host": lambda value: ", ".join(short_name(name.removeprefix("[0] "), 34) for name in value[:3]) or "–",
    "kept": lambda value: "" if value else "left out",
    "part": lambda op: " ".join(filter(None, (op.section, op.phase))) or "–",
    "device": lambda time: f"{time.device} {time.name}",
    "line": lambda line: _line_name(line),
}
_FLUSH_RIGHT = ("1%", "0%", "times", "rate", "more")


@cache
def _words() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("blocks.toml").read_text("utf-8"))


def _grid(name: str, rows: Sequence[Any], foot: str = "", renamed: Mapping[str, str | None] = {}) -> sheet.Grid | None:
    """A table of `blocks.toml` where there are rows; a column that is `renamed` to None is left out."""
    described = _words()[name]
    heads = ((renamed.get(head, head), field, form) for head, field, form in described["columns"])
    columns = {head: _column(field, form) for head, field, form in heads if head is not None}
    if rows:
        return sheet.records(rows, columns, described.get("title", ""), foot, described.get("how"))
    return None


def _column(field: str, form: str) -> Any:
    """A column as `records` takes it."""
    if form not in _FORMS:
        if form:
            return (field, form)
        return field

    def shown(row: Any) -> str:
        return _FORMS[form](getattr(row, field) if field else row)

    if form in _FLUSH_RIGHT:
        return (shown, "")
    return shown


def _more(rows: Sequence[Any], shown: Sequence[Any]) -> str:
    rest = len(rows) - len(shown)
    if rest:
        return f"and {rest} more (--explain shows all)"
    return ""


def _groups(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """Time by part, phase and kind, each against its roofline."""
    shown = [group for group in report.groups if detail or group.share > 0.003][: None if detail else GROUPS]
    return _grid(
        "groups", shown, "" if detail else _more(report.groups, shown), {"time": "bound"} if report.static else {}
    )


def _ops(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """The longest ops; what is exposed of them only where that is less."""
    shown = report.ops if detail else report.ops[:OPS]
    overlaps = any(op.seconds > 1.01 * op.exposed_s for op in shown)
    return _grid("ops", shown, renamed={} if overlaps else {"exposed": None})


def _communication(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """Collectives by kind and axes; those that take next to nothing only in detail."""
    all_moves = detail or report.static
    shown = [move for move in report.communication if all_moves or move.seconds > 0.001 * report.step_s]
    return _grid("communication", shown[: None if detail else LINES])


def _beside(report: ProfileReport, detail: bool) -> sheet.Grid | None:
    """The plan's lines beside what was measured."""
    shown = report.beside if detail else report.beside[:LINES]
    return _grid("beside", shown, _more(report.beside, shown))


def _line_name(line: BesideLine) -> str:
    """A line of the plan: `mlp matmul backward`, `all-gather over fsdp`, `idle`."""
    kind = line.kind.replace("_", "-")
    if "_" in line.kind:
        return f"{kind} over {line.section}"
    section = "" if line.section in ("step", line.kind) else line.section
    return " ".join(filter(None, (section, kind, line.phase)))
