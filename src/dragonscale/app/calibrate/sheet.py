"""`dscale calibrate` laid out: what the profile is worth and how to use it; or what a check found."""

from dragonscale.app.calibrate.records import CalibrationReport
from dragonscale.errors import shorten
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Block, Column, Grid, NextStep, Prose, Sheet, Title, facts, table

MOST_PLANNED = 30


def calibration_sheet(report: CalibrationReport, detail: bool) -> Sheet:
    """The whole answer."""
    software = ", ".join(f"{name} {version}" for name, version in report.software.items())
    many = f"{report.devices} x " if report.devices > 1 else ""
    title = Title(f"Kernels of {many}{report.device} ({report.chip})", f"timed with {report.timed_with}: {software}")
    if report.steps:
        title = Title(
            f"Whole steps of our own program on {report.device or report.chip} ({report.chip})",
            software and f"timed with {software}",
        )
        blocks = _settled(report, detail)
    elif report.planned:
        blocks = _planned(report, detail)
    elif report.checked_tables:
        blocks = _checked(report, detail)
    else:
        blocks = _fitted(report)
    return Sheet((title, *(one for one in blocks if one is not None)))


def _planned(report: CalibrationReport, detail: bool) -> list[Block | None]:
    most = len(report.planned) if detail else MOST_PLANNED
    more = len(report.planned) - most
    return [
        facts(
            ("to measure", f"{len(report.planned)} cases, those that tell most first"),
            ("takes", f"about {render(report.planned_s, 's')} for all; --minutes ends it sooner"),
            ("records", report.records),
        ),
        table(["case"], [(one,) for one in report.planned[:most]], foot=f"… and {more} more" if more > 0 else ""),
    ]


def _settled(report: CalibrationReport, detail: bool) -> list[Block | None]:
    """Constants of the stack and the engine, and how steps stand under them; those left out first."""
    errors = [
        (one.what, one.fitted, one.left_out, _part(one.median_error), _part(one.worst_error)) for one in report.left_out
    ]
    constants = [(f"{one.of} {one.name}", f"{one.before:.4g}", f"{one.after:.4g}") for one in report.constants]
    steps = sorted(report.steps, key=lambda one: (one.use == "fit", one.case))
    rows = [
        (
            one.case,
            one.use,
            render(one.measured_s, "s"),
            f"{one.before_s / one.measured_s - 1:+.1%}",
            f"{one.expected_s / one.measured_s - 1:+.1%}",
        )
        for one in steps
        if detail or one.use != "fit"
    ]
    right = [Column("before", right=True), Column("after", right=True)]
    measured = f"{report.measured} steps, in {report.records}"
    if report.unknown_rows:
        measured += f" (not used, of no case there is: {', '.join(shorten(one) for one in report.unknown_rows[:5])})"
    return [
        facts(("measured", measured), ("stack", report.profile)),
        table(
            ["step", "fitted", "left out", Column("median error", right=True), Column("worst", right=True)],
            errors,
            title="models left out",
        )
        if errors
        else None,
        table(["constant", *right], constants, title="constants"),
        table(["step", "use", "measured", *right], rows, title="expected over measured") if rows else None,
        NextStep(
            f"dscale train llama3.2-1b --on {report.chip}:1 --batch 16seq --seq 4096 --stack {report.profile}",
            "plan with this stack",
        ),
    ]


def _fitted(report: CalibrationReport) -> list[Block | None]:
    taken = [one.table for one in report.tables if one.error is None]
    failed = f", {report.failed} failed" if report.failed else ""
    where = report.installed or report.profile
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
        NextStep(
            f"dscale train llama3-8b --on {report.chip}:8 --batch 64seq --seq 4096"
            + ("" if report.installed else f" --profile {where}"),
            "plan with these kernels",
        )
        if where
        else None,
    ]


def _host(report: CalibrationReport) -> str:
    if report.host_dispatch_s is None or report.host_round_trip_s is None:
        return ""
    return (
        f"{render(report.host_dispatch_s, 's')} a call, {render(report.host_round_trip_s, 's')} with the wait for its "
        "result"
    )


def _tables(report: CalibrationReport) -> Grid:
    rows = [
        (
            one.table,
            one.rows,
            *map(_part, (one.built_in_error, one.error, one.held_out_error, one.unseen_shapes_error)),
        )
        for one in report.tables
        if one.error is not None
    ]
    columns = [
        "table",
        "rows",
        Column("built-in", right=True),
        Column("fitted", right=True),
        Column("half left out", right=True),
        Column("shapes left out", right=True),
    ]
    return table(columns, rows, title="median errors")


def _collectives(report: CalibrationReport) -> Grid | None:
    rows = [
        (
            one.collective,
            render(one.bytes, "bytes"),
            one.devices,
            render(one.measured_s, "s"),
            "" if one.expected_s is None else render(one.expected_s, "s"),
        )
        for one in report.collectives
    ]
    columns = ["collective", "bytes", "devices", "measured", "expected"]
    foot = "expected: by the built-in profile of the network, which these measurements do not change"
    return table(columns, rows, title="collectives", foot=foot) if rows else None


def _checked(report: CalibrationReport, detail: bool) -> list[Block | None]:
    missed = [one for one in report.checked_tables if not one.holds]
    says = f"missed: {', '.join(one.table for one in missed)}" if missed else "holds"
    columns = ["table", "cases", Column("error now", right=True), Column("it states", right=True), "verdict"]
    rows = [
        (one.table, one.cases, _part(one.error), _part(one.stated_error), "holds" if one.holds else "missed")
        for one in report.checked_tables
    ]
    worst = sorted(report.checked, key=lambda one: -abs(one.error))
    cases = [(one.case, render(one.measured_s, "s"), render(one.expected_s, "s"), f"{one.error:+.1%}") for one in worst]
    return [
        facts(("profile", report.checked_profile), ("verdict", says, "bad" if missed else "good")),
        table(columns, rows, title="median errors"),
        table(
            ["case", "measured", "expected", Column("error", right=True)],
            cases if detail else cases[:8],
            title="farthest off",
        ),
        NextStep("dscale calibrate", "measure and fit anew") if missed else None,
    ]


def _part(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
