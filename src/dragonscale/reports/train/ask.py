"""The answer to `dscale train`, put together from what was asked."""

from dataclasses import replace
from typing import Any

from dragonscale.hardware import parse_slice
from dragonscale.plan.timeline import save_timeline
from dragonscale.reports.train.inverse import cheapest_part, cheapest_report, fewest_report, largest_report
from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import TrainReport
from dragonscale.reports.train.report import best_report, single_report
from dragonscale.reports.train.scaling import batch_rows, codesign_report, crossover_notes, scaling_rows
from dragonscale.training.evaluation import judge_one
from dragonscale.training.plan import Plan, save_plan
from dragonscale.training.search import Progress
from dragonscale.training.step_timeline import step_timeline


def answer(
    asked: TrainAsked, progress: Progress | None = None, scaling: bool = False, codesign: bool = False
) -> TrainReport:
    """The report that answers a question."""
    if asked.question.largest:
        return largest_report(asked, progress)
    if asked.piece is None:
        return (cheapest_report if asked.chip is None else fewest_report)(asked, progress)
    if asked.plan is not None:
        report = single_report(asked.job(), asked.plan, asked.tokens, asked.question.force)
    elif asked.question.rank == "cost":
        report = cheapest_part(asked, progress)
    else:
        report = best_report(asked, asked.job(), progress)
    if scaling and report.plans:
        piece = parse_slice(report.slice)
        report.scaling = scaling_rows(asked, piece, progress)
        report.batches = batch_rows(asked, piece, Plan(**report.plans[0].plan))
        report.notes += crossover_notes(asked, piece)
    if codesign and report.plans:
        report.codesign = codesign_report(asked, parse_slice(report.slice), progress)
    return report


def save_step(asked: TrainAsked, report: TrainReport, path: str) -> None:
    """Write the step of the best plan of a report as a timeline."""
    job, plan = asked.job(parse_slice(report.slice)), Plan(**report.plans[0].plan)
    many = job.batch / (plan.replicas * plan.microbatch)
    title = f"{report.model} on {report.slice}: {plan}"
    save_timeline(step_timeline(judge_one(job, plan).ledger, many, title), path)


def save_best(report: TrainReport, path: str) -> None:
    """Write the best plan of a report as TOML."""
    words: dict[str, Any] = report.plans[0].plan
    save_plan(replace(Plan(), **words), path, report.model, report.slice, report.plans[0].stack)
