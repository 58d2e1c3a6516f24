"""The answer to `dscale train`, put together from what was asked."""

import shlex
from dataclasses import replace
from typing import Any

from dragonscale.app.given import check_named, unnamed
from dragonscale.app.prices import price_rows
from dragonscale.app.questions.flag import written
from dragonscale.app.questions.train import TrainQuestion
from dragonscale.app.train.inverse import cheapest_part, fewest_report, largest_report
from dragonscale.app.train.judged import against_best, against_measured
from dragonscale.app.train.question import TrainAsked, read_question
from dragonscale.app.train.records import TrainReport
from dragonscale.app.train.report import best_report, single_report
from dragonscale.app.train.scaling import batch_rows, codesign_report, crossover_notes, scaling_rows
from dragonscale.app.train.several import chosen_slice, first_verdict, several_report, written_slice
from dragonscale.listener import Listener
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.timeline import save_timeline
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.plan_file import TrainingFile, save_training_file
from dragonscale.training.search import Progress
from dragonscale.training.step_timeline import step_timeline


def ask(question: TrainQuestion, listener: Listener) -> TrainReport:
    """Read a question, tell how it was read, and answer it."""
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return answer(asked, listener.step).came_from(asked, listener.notes)


def answer(asked: TrainAsked, progress: Progress | None = None, brief: bool = False) -> TrainReport:
    """The report that answers a question, with the prices that it reckons with. In brief a given plan is judged by
    itself: no advice, no search for a better one."""
    if brief and asked.plan is not None and asked.piece is not None:
        report = single_report(asked.job(), asked.plan, asked.tokens, asked.question.force, brief=True)
    else:
        report = _answer(asked, progress, asked.question.scaling, asked.question.codesign)
    chips = [chip for chip, _ in asked.targets.values()]
    report.prices = price_rows(chips)
    ranked = len(chips) > 1 or asked.question.rank == "cost"
    report.notes += [unpriced(chips)] if (asked.tokens or ranked) and unpriced(chips) else []
    return report


def _answer(asked: TrainAsked, progress: Progress | None, scaling: bool, codesign: bool) -> TrainReport:
    if asked.question.largest:
        return largest_report(asked, progress)
    if asked.piece is None:
        return (several_report if asked.chip is None else fewest_report)(asked, progress)
    if asked.plan is not None:
        report = _given(asked, asked.plan, progress)
    elif asked.question.rank == "cost":
        report = cheapest_part(asked, progress)
    else:
        report = best_report(asked, asked.job(), progress, near=True)
    if scaling and report.plans:
        piece = chosen_slice(asked, report)
        report.scaling = scaling_rows(asked, piece, progress)
        report.batches = batch_rows(asked, piece, Plan(**report.plans[0].plan))
        report.notes += crossover_notes(asked, piece)
    if codesign and report.plans:
        report.codesign = codesign_report(asked, chosen_slice(asked, report), progress)
    return report


def _given(asked: TrainAsked, plan: Plan, progress: Progress | None) -> TrainReport:
    """A given plan, against the best and against what was measured of it."""
    job = asked.job()
    report = single_report(job, plan, asked.tokens, asked.question.force)
    if not asked.question.alone:
        against_best(asked, job, plan, report, progress)
    if asked.measured is not None:
        report.measured = against_measured(job, plan, report.plans[0], asked.measured)
    return report


def next_command(asked: TrainAsked, report: TrainReport) -> str:
    """What to ask next of the first plan: XLA's witness where there is one, its formulas otherwise; a search after a
    plan that fails."""
    if not report.plans or asked.question.largest or unnamed(asked.question.model, asked.question.on):
        return ""
    best, work = report.plans[0], report.workload
    command = "verify" if best.verifiable and best.feasible else "explain train"
    model = shlex.quote(written(asked.question.model))
    job = f"--on {written_slice(asked, report)} --batch {work.sequences}seq --seq {work.seq}"
    stack = f" --stack {asked.question.stack}" if asked.question.stack != "auto" else ""
    if not best.feasible and asked.plan is not None:
        return f"dscale train {model} {job}{stack}"
    job = f"--model {model} {job}"
    return f'dscale {command} "{short_plan(Plan(**best.plan))}" {job}{stack}'


def first_ledger(asked: TrainAsked, report: TrainReport) -> Ledger:
    """The ledger of the first plan of a report."""
    return first_verdict(asked, report).ledger


def save_step(asked: TrainAsked, report: TrainReport, path: str) -> None:
    """Write the step of the best plan of a report as a timeline."""
    job, plan = asked.job(chosen_slice(asked, report)), Plan(**report.plans[0].plan)
    many = job.batch / (plan.replicas * plan.microbatch)
    title = f"{report.model} on {report.slice}: {plan}"
    save_timeline(step_timeline(first_ledger(asked, report), many, title), path)


def save_best(asked: TrainAsked, report: TrainReport, path: str) -> None:
    """Write the best plan of a report as TOML."""
    check_named(asked.question.model, asked.question.on)
    save_training_file(recommended(asked, report), path)


def recommended(asked: TrainAsked, report: TrainReport) -> TrainingFile:
    """The best plan of a report, with everything it was worked out for."""
    words: dict[str, Any] = report.plans[0].plan
    question, work = asked.question, report.workload
    return TrainingFile(
        replace(Plan(), **words),
        model=report.model if question.largest == "model" else written(question.model),
        slice=written_slice(asked, report),
        stack=report.plans[0].stack,
        tokens=question.tokens.strip(),
        price=question.price.strip(),
        documents=question.documents.strip(),
        batch=work.sequences,
        seq=work.seq,
        skew=question.skew,
        capacity=question.capacity,
    )
