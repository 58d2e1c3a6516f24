"""`dscale calibrate` laid out: what the profile is worth and how to use it; or what a check found."""

from dragonscale.app.calibrate.calibrate_records import CalibrationReport
from dragonscale.errors import shorten
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Block, Column, Grid, NextStep, Prose, Sheet, Title, facts, table

MOST_PLANNED, MOST_CHECKED = 30, 8
"""Lines of a list; `--explain` shows all."""


def calibration_sheet(report: CalibrationReport, detail: bool) -> Sheet:
    """The whole answer."""
    software = ", ".join(f"{name} {version}" for name, version in report.software.items())
    many = f"{report.devices} x " if report.devices > 1 else ""
    title = Title(f"Kernels of {many}{report.device} ({report.chip})", f"timed with {report.timed_with}: {software}")
    if report.steps:
        where = f"{report.device or report.chip} ({report.chip})"
        title = Title(f"Whole steps of our own program on {where}", software and f"timed with {software}")
        blocks = _settled(report, detail)
    elif report.planned:
        blocks = _planned(report, detail)
    elif report.checked_tables:
        blocks = _checked(report, detail)
    else:
        blocks = _fitted(report)
    return Sheet((title, *(block for block in blocks if block is not None)))


def _right(*heads: str) -> list[Column]:
    """Columns of numbers that are text already."""
    return [Column(head, right=True) for head in heads]


def _planned(report: CalibrationReport, detail: bool) -> list[Block | None]:
    most = len(report.planned) if detail else MOST_PLANNED
    more = len(report.planned) - most
    head = facts(
        ("to measure", f"{len(report.planned)} cases, those that tell most first"),
        ("takes", f"about {render(report.planned_s, 's')} for all; --minutes ends it sooner"),
        ("records", report.records),
    )
    rows = [(case,) for case in report.planned[:most]]
    return [head, table(["case"], rows, foot=f"… and {more} more" if more > 0 else "")]


def _settled(report: CalibrationReport, detail: bool) -> list[Block | None]:
    """Constants of the stack and the engine, and how steps stand under them; those left out first."""
    errors = [
        (one.what, one.fitted, one.left_out, _part(one.median_error), _part(one.worst_error)) for one in report.left_out
    ]
    constants = [(f"{one.of} {one.name}", f"{one.before:.4g}", f"{one.after:.4g}") for one in report.constants]
    rows = []
    for step in sorted(report.steps, key=lambda step: (step.use == "fit", step.case)):
        if detail or step.use != "fit":
            off = (f"{seconds / step.measured_s - 1:+.1%}" for seconds in (step.before_s, step.expected_s))
            rows.append((step.case, step.use, render(step.measured_s, "s"), *off))
    right = _right("before", "after")
    measured = f"{report.measured} steps, in {report.records}"
    if report.unknown_rows:
        measured += f" (not used, of no case there is: {', '.join(shorten(key) for key in report.unknown_rows[:5])})"
    line = f"dscale train llama3.2-1b --on {report.chip}:1 --batch 16seq --seq 4096 --stack {report.profile}"
    left_out = ["step", "fitted", "left out", *_right("median error", "worst")]
    return [
        facts(("measured", measured), ("stack", report.profile)),
        table(left_out, errors, "models left out") if errors else None,
        table(["constant", *right], constants, "constants"),
        table(["step", "use", "measured", *right], rows, "expected over measured") if rows else None,
        NextStep(line, "plan with this stack"),
    ]


def _fitted(report: CalibrationReport) -> list[Block | None]:
    taken = [one.table for one in report.tables if one.error is None]
    failed = f", {report.failed} failed" if report.failed else ""
    profile = "" if report.installed else f" --profile {report.profile}"
    line = f"dscale train llama3-8b --on {report.chip}:8 --batch 64seq --seq 4096{profile}"
    return [
        facts(
            ("measured", f"{report.measured} cases{failed}, in {report.records}"),
            ("host", _host(report)),
            ("profile", report.profile),
            ("installed", report.installed),
        ),
        _tables(report),
        _collectives(report),
        Prose(f"Without measurements, as in the built-in profile: {', '.join(taken)}.", "dim") if taken else None,
        NextStep(line, "plan with these kernels") if report.installed or report.profile else None,
    ]


def _host(report: CalibrationReport) -> str:
    if report.host_dispatch_s is None or report.host_round_trip_s is None:
        return ""
    call, waited = render(report.host_dispatch_s, "s"), render(report.host_round_trip_s, "s")
    return f"{call} a call, {waited} with the wait for its result"


def _tables(report: CalibrationReport) -> Grid:
    rows = []
    for one in report.tables:
        if one.error is not None:
            errors = (one.built_in_error, one.error, one.held_out_error, one.unseen_shapes_error)
            rows.append((one.table, one.rows, *map(_part, errors)))
    errors = _right("built-in", "fitted", "half left out", "shapes left out")
    return table(["table", "rows", *errors], rows, "median errors")


def _collectives(report: CalibrationReport) -> Grid | None:
    rows = []
    for one in report.collectives:
        expected = "" if one.expected_s is None else render(one.expected_s, "s")
        rows.append((one.collective, render(one.bytes, "bytes"), one.devices, render(one.measured_s, "s"), expected))
    foot = "expected: by the built-in profile of the network, which these measurements do not change"
    columns = ["collective", "bytes", "devices", "measured", "expected"]
    return table(columns, rows, "collectives", foot) if rows else None


def _checked(report: CalibrationReport, detail: bool) -> list[Block | None]:
    missed = [one.table for one in report.checked_tables if not one.holds]
    verdict = f"missed: {', '.join(missed)}" if missed else "holds"
    rows = [
        (one.table, one.cases, _part(one.error), _part(one.stated_error), "holds" if one.holds else "missed")
        for one in report.checked_tables
    ]
    worst = sorted(report.checked, key=lambda case: -abs(case.error))[: None if detail else MOST_CHECKED]
    cases = [(one.case, render(one.measured_s, "s"), render(one.expected_s, "s"), f"{one.error:+.1%}") for one in worst]
    return [
        facts(("profile", report.checked_profile), ("verdict", verdict, "bad" if missed else "good")),
        table(["table", "cases", *_right("error now", "it states"), "verdict"], rows, "median errors"),
        table(["case", "measured", "expected", *_right("error")], cases, "farthest off"),
        NextStep("dscale calibrate", "measure and fit anew") if missed else None,
    ]


def _part(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
