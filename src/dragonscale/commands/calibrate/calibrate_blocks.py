"""`dscale calibrate` laid out: what the profile is worth and how to use it; or what a check found."""

from dragonscale.blocks.sheet import Block, NextStep, Prose, Sheet, Title, facts, sheet, table
from dragonscale.commands.calibrate.calibrate_records import CalibrationReport
from dragonscale.commands.grids import grid
from dragonscale.errors import shorten
from dragonscale.physics.units import render

# Rows of a list without `--explain`: cases to measure, cases farthest from the profile, keys that are not known.
MAX_PLANNED = 30
MAX_CHECKED = 8
MAX_UNKNOWN = 5


def calibration_blocks(report: CalibrationReport, detail: bool) -> Sheet:
    """The whole answer."""
    software = ", ".join(f"{name} {version}" for name, version in report.software.items())
    if report.steps:
        where = f"{report.device or report.chip} ({report.chip})"
        aside = ""
        if software:
            aside = f"timed with {software}"
        return sheet(Title(f"Whole steps of our own program on {where}", aside), *_settled(report, detail))
    count = ""
    if report.devices > 1:
        count = f"{report.devices} x "
    title = Title(f"Kernels of {count}{report.device} ({report.chip})", f"timed with {report.timed_with}: {software}")
    if report.planned:
        return sheet(title, *_planned(report, detail))
    if report.checked_tables:
        return sheet(title, *_checked(report, detail))
    return sheet(title, *_fitted(report))


def _planned(report: CalibrationReport, detail: bool) -> list[Block]:
    """What would be measured, and how long that takes."""
    head = facts(
        ("to measure", f"{len(report.planned)} cases, those that tell most first"),
        ("takes", f"about {render(report.planned_s, 's')} for all; --minutes ends it sooner"),
        ("records", report.records),
    )
    shown = report.planned if detail else report.planned[:MAX_PLANNED]
    rest = len(report.planned) - len(shown)
    foot = f"… and {rest} more" if rest else ""
    return [head, table(["case"], [(case,) for case in shown], foot=foot)]


def _settled(report: CalibrationReport, detail: bool) -> list[Block]:
    """Constants of the stack and the engine, and how steps compare with them; those left out first."""
    steps = [step for step in report.steps if detail or step.use != "fit"]
    steps.sort(key=lambda step: (step.use == "fit", step.case))
    columns = {
        "before": lambda step: f"{step.before_s / step.measured_s - 1:+.1%}",
        "after": lambda step: f"{step.expected_s / step.measured_s - 1:+.1%}",
    }
    measured = f"{report.measured} steps, in {report.records}"
    if report.unknown_rows:
        measured += f" (not used, of unknown cases: {', '.join(map(shorten, report.unknown_rows[:MAX_UNKNOWN]))})"
    command = f"dscale train llama3.2-1b --on {report.chip}:1 --batch 16seq --seq 4096 --stack {report.profile}"
    return [
        facts(("measured", measured), ("stack", report.profile)),
        grid("calibrate-left-out", report.left_out),
        grid("calibrate-constants", report.constants),
        grid("calibrate-steps", steps, own=columns),
        NextStep(command, "plan with this stack"),
    ]


def _fitted(report: CalibrationReport) -> list[Block]:
    """The tables that were fitted with their errors, and those that are as in the built-in profile."""
    fitted = [row for row in report.tables if row.error is not None]
    built_in = [row.table for row in report.tables if row.error is None]
    measured = f"{report.measured} cases"
    if report.failed:
        measured += f", {report.failed} failed"
    blocks: list[Block] = [
        facts(
            ("measured", f"{measured}, in {report.records}"),
            ("host", _host(report)),
            ("profile", report.profile),
            ("installed", report.installed),
        ),
        grid("calibrate-tables", fitted),
        grid("calibrate-collectives", report.collectives),
    ]
    if built_in:
        blocks.append(Prose(f"Without measurements, as in the built-in profile: {', '.join(built_in)}.", "dim"))
    command = f"dscale train llama3-8b --on {report.chip}:8 --batch 64seq --seq 4096"
    if not report.installed:  # an installed profile is found by itself
        command += f" --profile {report.profile}"
    if report.installed or report.profile:
        blocks.append(NextStep(command, "plan with these kernels"))
    return blocks


def _host(report: CalibrationReport) -> str:
    """What a call costs the host."""
    if report.host_dispatch_s is None or report.host_round_trip_s is None:
        return ""
    call, round_trip = render(report.host_dispatch_s, "s"), render(report.host_round_trip_s, "s")
    return f"{call} a call, {round_trip} with the wait for its result"


def _checked(report: CalibrationReport, detail: bool) -> list[Block]:
    """Whether a profile holds here, by table, and the cases that are farthest from it."""
    missed = [row.table for row in report.checked_tables if not row.holds]
    farthest = sorted(report.checked, key=lambda case: -abs(case.error))
    columns = {"verdict": lambda row: "holds" if row.holds else "missed"}
    verdict = ("verdict", f"missed: {', '.join(missed)}", "bad") if missed else ("verdict", "holds", "good")
    return [
        facts(("profile", report.checked_profile), verdict),
        grid("calibrate-checked", report.checked_tables, own=columns),
        grid("calibrate-farthest", farthest if detail else farthest[:MAX_CHECKED]),
        NextStep("dscale calibrate" if missed else "", "measure and fit anew"),
    ]
