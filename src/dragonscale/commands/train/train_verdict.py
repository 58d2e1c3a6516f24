"""The verdict of `dscale train`: one line that answers what was asked, before anything else."""

from dragonscale.blocks.sheet import amount, several
from dragonscale.commands.train.train_records import Measured, PlanReport, TrainReport
from dragonscale.training.plan.plan import short_plan


def verdict_text(report: TrainReport) -> str:
    """Whether it fits and how fast it is; of a measured step whether it is normal."""
    if not report.plans:
        return _unfit(report)
    first = report.plans[0]
    if not first.feasible:
        other = f"; {short_plan(report.better.plan)} does" if report.better is not None else ""
        return f"Does not run: {first.problems[0]}{other}."
    if report.measured is not None:
        return _measured(report.measured, first)
    if report.answer:
        return report.answer
    left = (first.hbm_limit_bytes - first.hbm_bytes) / 1e9
    memory = f"only {left:.1f}GB a chip left" if first.tight else f"{left:.1f}GB a chip left"
    slower = ""
    if report.better is not None and report.better.step_s < first.step_s:
        slower = f"; {first.step_s / report.better.step_s - 1:.0%} slower than the best plan"
    return f"Fits: {amount(first.step_s, 's')} a step, {first.own_mfu:.1%} MFU, {memory}{slower}."


def _measured(measured: Measured, first: PlanReport) -> str:
    """Whether a measured step is what is expected."""
    band = f"{amount(first.step_low_s, 's')} to {amount(first.step_high_s, 's')}"
    if measured.impossible:
        return (
            f"Not possible: {amount(measured.step_s, 's')} a step is less than the datasheet allows; check the timing."
        )
    if measured.within_band:
        return f"Normal: {amount(measured.step_s, 's')} a step is within the {band} expected."
    pace = "Slow" if measured.ratio > 1 else "Faster than expected"
    text = f"{pace}: {amount(measured.step_s, 's')} a step is {measured.ratio:.2f}x what is expected ({band})"
    if measured.normal_for:
        text += f"; normal for releases of {measured.normal_for}"
    return f"{text}."


def _unfit(report: TrainReport) -> str:
    """What is missing by how much, and the nearest that fits."""
    text = f"Does not fit {report.slice}" if report.slice else "Does not fit"
    if report.missing_bytes is not None:
        text += f": {report.missing_bytes / 1e9:.1f}GB a chip are missing"
    ways: list[str] = []
    if report.lighter:
        ways.append(f"with {report.lighter}")
    if report.neighbours:
        nearest = report.neighbours[0]
        ways.append(
            f"on {nearest.slice}" if nearest.slice != report.slice else f"with {several(nearest.sequences, 'sequence')}"
        )
    if not ways and report.missing_bytes is None and report.notes:
        return report.notes[0]
    return f"{text}{'; it fits ' if ways else ''}{' or '.join(ways)}."
