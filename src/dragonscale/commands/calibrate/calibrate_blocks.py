"""`dscale calibrate` laid out: what the profile is worth and how to use it; or what a check found."""

from dragonscale.blocks.sheet import Block, NextStep, Prose, Sheet, Title, facts, table
from dragonscale.commands.calibrate.calibrate_records import CalibrationReport
from dragonscale.commands.grids import grid
from dragonscale.errors import shorten
from dragonscale.physics.units import render

# Lines of a list; `--explain` shows all.
MOST_PLANNED, MOST_CHECKED = 30, 8


def calibration_blocks(report: CalibrationReport, detail: bool) -> Sheet:
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


def _planned(report: CalibrationReport, detail: bool) -> list[Block | None]:
    max_cases = len(report.planned) if detail else MOST_PLANNED
    more = len(report.planned) - max_cases
    head = facts(
        ("to measure", f"{len(report.planned)} cases, those that tell most first"),
        ("takes", f"about {render(report.planned_s, 's')} for all; --minutes ends it sooner"),
        ("records", report.records),
    )
    rows = [(case,) for case in report.planned[:max_cases]]
    return [head, table(["case"], rows, foot=f"… and {more} more" if more > 0 else "")]


def _settled(report: CalibrationReport, detail: bool) -> list[Block | None]:
    """Constants of the stack and the engine, and how steps stand under them; those left out first."""
    steps = [step for step in report.steps if detail or step.use != "fit"]
    steps.sort(key=lambda step: (step.use == "fit", step.case))
    columns = {
        "before": lambda step: f"{step.before_s / step.measured_s - 1:+.1%}",
        "after": lambda step: f"{step.expected_s / step.measured_s - 1:+.1%}",
    }
    measured = f"{report.measured} steps, in {report.records}"
    if report.unknown_rows:
        measured += f" (not used, of no case there is: {', '.join(shorten(key) for key in report.unknown_rows[:5])})"
    line = f"dscale train llama3.2-1b --on {report.chip}:1 --batch 16seq --seq 4096 --stack {report.profile}"
    return [
        facts(("measured", measured), ("stack", report.profile)),
        grid("calibrate-left-out", report.left_out) if report.left_out else None,
        grid("calibrate-constants", report.constants),
        grid("calibrate-steps", steps, own=columns) if steps else None,
        NextStep(line, "plan with this stack"),
    ]


def _fitted(report: CalibrationReport) -> list[Block | None]:
    without = [fitted_table.table for fitted_table in report.tables if fitted_table.error is None]
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
        grid("calibrate-tables", [fitted_table for fitted_table in report.tables if fitted_table.error is not None]),
        grid("calibrate-collectives", report.collectives) if report.collectives else None,
        Prose(f"Without measurements, as in the built-in profile: {', '.join(without)}.", "dim") if without else None,
        NextStep(line, "plan with these kernels") if report.installed or report.profile else None,
    ]


def _host(report: CalibrationReport) -> str:
    if report.host_dispatch_s is None or report.host_round_trip_s is None:
        return ""
    call, waited = render(report.host_dispatch_s, "s"), render(report.host_round_trip_s, "s")
    return f"{call} a call, {waited} with the wait for its result"


def _checked(report: CalibrationReport, detail: bool) -> list[Block | None]:
    missed = [checked_table.table for checked_table in report.checked_tables if not checked_table.holds]
    verdict = f"missed: {', '.join(missed)}" if missed else "holds"
    worst = sorted(report.checked, key=lambda case: -abs(case.error))[: None if detail else MOST_CHECKED]
    columns = {"verdict": lambda checked_table: "holds" if checked_table.holds else "missed"}
    return [
        facts(("profile", report.checked_profile), ("verdict", verdict, "bad" if missed else "good")),
        grid("calibrate-checked", report.checked_tables, own=columns),
        grid("calibrate-farthest", worst),
        NextStep("dscale calibrate", "measure and fit anew") if missed else None,
    ]
