"""The answer to `dscale train`, put together from what was asked."""

from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.hardware import parse_slice
from dragonscale.plan.timeline import save_timeline
from dragonscale.reports.train.best import best_report
from dragonscale.reports.train.extras import (
    batch_rows,
    cheapest_of,
    cheapest_report,
    codesign_report,
    crossover_notes,
    fewest_report,
    largest_report,
    scaling_rows,
)
from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import TrainReport
from dragonscale.reports.train.report import single_report
from dragonscale.training.evaluation import judge_one
from dragonscale.training.plan import Plan, save_plan
from dragonscale.training.scaling import parts_of
from dragonscale.training.search import Progress
from dragonscale.training.step_timeline import step_timeline


def answer(
    asked: TrainAsked, progress: Progress | None = None, scaling: bool = False, codesign: bool = False
) -> TrainReport:
    """The report that answers a question."""
    if asked.question.largest:
        return _largest(asked, progress)
    if asked.piece is None:
        return _which_slice(asked, progress)
    job = asked.job()
    if asked.plan is not None:
        report = single_report(job, asked.plan, asked.tokens)
    elif asked.question.rank == "cost":
        report = _cheapest_part(asked, progress)
    else:
        report = best_report(asked, job, progress)
    if report.plans:
        _add(report, asked, progress, scaling, codesign)
    return report


def _add(report: TrainReport, asked: TrainAsked, progress: Progress | None, scaling: bool, codesign: bool) -> None:
    piece = parse_slice(report.slice)
    if scaling:
        report.scaling = scaling_rows(asked, piece, progress)
        report.batches = batch_rows(asked, piece, Plan(**report.plans[0].plan))
        report.notes += crossover_notes(asked, piece)
    if codesign:
        report.codesign = codesign_report(asked, piece, progress)


def _cheapest_part(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    assert asked.piece is not None
    return cheapest_of(asked, [*parts_of(asked.piece), asked.piece], progress)


def _which_slice(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    return fewest_report(asked, progress) if asked.chip is not None else cheapest_report(asked, progress)


def _largest(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    if asked.piece is None:
        raise InputError(f"--largest needs a slice to fit; --on is {shorten(asked.question.on)}, write e.g. h100:64.")
    return largest_report(asked, progress)


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
