"""`dscale profile` laid out: the step and what it is made of, what would save most, the groups; ops, devices and gaps
behind `--explain`."""

from dragonscale.app.profile import profile_tables as tables
from dragonscale.app.profile.profile_records import ProfileReport
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
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
        tables.groups(report, detail),
        tables.beside(report, detail),
        tables.communication(report, detail),
        tables.gaps(report) if detail or _idle(report) > 0.05 else None,
        tables.waste(report) if detail else None,
        tables.ops(report, detail),
        tables.devices(report) if detail else None,
        tables.steps(report) if detail else None,
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
