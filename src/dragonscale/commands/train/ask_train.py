"""`dscale train`: the question read, answered, and what can be made of the answer: blocks, charts, files, a ledger."""

import shlex
from dataclasses import replace
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.given import check_named, unnamed
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.train.answered_slice import chosen_slice, first_verdict, written_slice
from dragonscale.commands.train.best_report import best_report
from dragonscale.commands.train.fit_notes import margin_notes
from dragonscale.commands.train.given_notes import add_comparison, reading_notes
from dragonscale.commands.train.goodput import add_goodput
from dragonscale.commands.train.hardware_changes import codesign_report, unchanged
from dragonscale.commands.train.measured import ReportedStep, measured_row, measured_step
from dragonscale.commands.train.plans import Answered, single_report
from dragonscale.commands.train.scaling import crossover_notes, scaling_rows
from dragonscale.commands.train.slices import cheapest_report, fewest_report, largest_report, several_report
from dragonscale.commands.train.train_blocks import train_blocks
from dragonscale.commands.train.train_charts import draw
from dragonscale.commands.train.train_question import TrainRequest, read_question
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.commands.train.train_verdict import verdict_text
from dragonscale.errors import shorten
from dragonscale.listener import Listener
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.physics.numbers import first_number
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.timeline import save_timeline
from dragonscale.training.advice.given_plan import run_given_plan
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.cost.step_timeline import step_timeline
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.builds import release_of
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import TUNED, TrainingFile, given_settings, is_plan_path, save_training_file
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.plan.tuning import FIELDS
from dragonscale.training.search.search import Progress

OF_SEARCH = ("tokens", "price", "pricing", "owned", "dtype", "fix", "remat", "optimizer")
"""Flags that a search for another plan takes over from a question."""
# A plan that takes so many times the step of the recommended one is compared with it next.
SLOWER = 1.005


def ask(question: TrainQuestion, listener: Listener, brief: bool = False) -> TrainReport:
    """A question about one stack and method answered, with notes on how it was read told first; in brief, a given plan
    by itself. (`ask_training` compares several.)"""
    request = understood(question)
    for note in request.notes:
        listener.note(note)
    return _answer(request, listener.step, brief, listener.notes)


def understood(question: TrainQuestion) -> TrainRequest:
    """The question read, with its plan as the stack runs it: the rest of the chips as replicas, and settings that it
    does not name as the stack has them."""
    request = read_question(question)
    if request.job.plan is None:
        return request
    text = written(request.question.plan)
    in_plan = given_settings(text)
    settings = set(in_plan)
    if isinstance(request.question.plan, Plan):
        settings |= {"remat", "optimizer"}  # a plan as a record leaves nothing open
    # these flags stand for settings of the plan
    if request.question.dtype:
        settings.add("dtype")
    if request.question.optimizer:
        settings.add("optimizer")
    run = run_given_plan(request.job, request.job.plan, frozenset(settings))
    notes = reading_notes(run, expert_written="expert" in in_plan and not is_plan_path(text))
    # of several stacks that `auto` weighs, later steps take the one that runs the plan best
    job = replace(request.job, plan=run.plan, chosen_stack=run.job.stack.name)
    # a rate that was measured may be of one chip or of all: how it is read is said before the verdict on it
    measured = request.question.measured.strip()
    if measured:
        notes += filter(None, [_reported(measured, job.on_slice(), run.plan).note])
    return replace(request, job=job, notes=[*request.notes, *notes])


def answer(request: TrainRequest, progress: Progress | None = None, brief: bool = False) -> TrainReport:
    """The report that answers a question. In brief a given plan is judged by itself: no advice, no search for a better
    one."""
    return _answer(request, progress, brief, [])


def _answer(request: TrainRequest, progress: Progress | None, brief: bool, notes: list[str]) -> TrainReport:
    job, question = request.job, request.question
    # the page and comparisons judge many plans by themselves
    if brief and job.plan is not None and job.slice is not None:
        answered = single_report(job.on_slice(), job.plan, job.tokens, question.force, brief=True)
    else:
        answered = _planned(request, progress)
    report = answered.report
    stack = report.workload.stack
    report.release = release_of(stack)
    chips = [chip for chip, _ in job.targets]
    report.prices = price_rows(chips)
    if question.numerics and not load_stack(stack).production:
        report.notes.append(f"--numerics changes nothing: {stack} has one way to add gradients.")
    # failures and checkpoints are of a whole run, whose tokens have to be known
    if job.tokens and report.plans and report.plans[0].feasible:
        add_goodput(request, answered)
    by_cost = request.everywhere or question.rank == "cost"
    if job.tokens or by_cost or len(chips) > 1:
        report.notes += filter(None, [unpriced(chips, by_cost, question.pricing)])
    report.verdict = verdict_text(report)
    return report.came_from(replace(request, job=replace(job, chosen_stack=stack), answered=answered.first), notes)


def _planned(request: TrainRequest, progress: Progress | None) -> Answered:
    """The plan or slice that was asked for, with what else was asked about it."""
    question, job = request.question, request.job
    if question.largest:
        return largest_report(request, progress)
    if job.slice is None and job.chip is None:
        answered = several_report(request, progress)
    elif job.slice is None:
        answered = fewest_report(request, progress)
    elif job.plan is not None:
        answered = _given(request, job.plan, progress)
    elif question.rank == "cost":
        answered = cheapest_report(request, progress)
    else:
        answered = best_report(request, job.on_slice(), progress, nearby=True)
    report = answered.report
    # nothing fits: there is no slice or plan to ask more about
    if not report.plans:
        return answered
    request = replace(request, job=replace(job, chosen_stack=report.workload.stack))
    # of several slices or a bare chip, the one that the answer recommends
    target = chosen_slice(request, report)
    report.unchanged = unchanged(request, target, progress)
    if question.scaling:
        report.scaling = list(scaling_rows(request, target, progress))
        report.notes += crossover_notes(request, target)
    if question.codesign:
        # the next best plans, of which one may overtake the best on a better chip
        rivals = [row.plan for row in report.plans[1:]]
        report.codesign = codesign_report(request, target, rivals, progress)
    return answered


def _reported(text: str, job: Job, plan: Plan) -> ReportedStep:
    """A measured step as it is reported; what has no unit is read by what is expected of the plan."""
    expected_s = first_number(judge_one(job, plan).seconds)
    return measured_step(text, job, plan.dtype, expected_s)


def _given(request: TrainRequest, plan: Plan, progress: Progress | None) -> Answered:
    """A given plan, against the best and against what was measured of it."""
    job = request.job.on_slice()
    text = request.question.measured.strip()
    # read before the plan is judged, so that a mistyped step is refused at once
    measured = None
    if text:
        measured = _reported(text, job, plan)
    answered = single_report(job, plan, request.job.tokens, request.question.force)
    assert answered.first is not None
    assessed = answered.first.assessed
    if not request.question.alone:
        add_comparison(request, answered, assessed, progress)
    if assessed.feasible and assessed.job.tuning.tunes:
        answered.report.margins = margin_notes(assessed.job, assessed.plan)
    if measured is not None:
        answered.report.measured = measured_row(assessed, measured.seconds)
        answered.report.notes += filter(None, [measured.note])
    return answered


def next_command(request: TrainRequest, report: TrainReport, detail: bool = False) -> str:
    """What to ask next of the first plan: how its step comes about; in detail, XLA's witness where there is one. Of a
    plan that is slower than the best, or fails, what to run instead."""
    question, work = request.question, report.workload
    if question.largest or unnamed(question.model, question.on):
        return ""
    lighter, neighbour = "", None
    sequences = work.sequences
    if report.best is None:
        # nothing runs here: the next question is about the same job with other flags, or on another slice
        lighter = report.lighter
        if not lighter and not report.neighbours:
            return ""
        if not lighter:
            neighbour = report.neighbours[0]
            sequences = neighbour.sequences
    # the command is pasted into a shell
    model = shlex.quote(written(question.model))
    sizes = {
        "on": written_slice(request, neighbour or report),
        "batch": f"{sequences}seq",
        "seq": work.seq,
    }
    job = _flags(sizes, lighter).strip()
    first = next(iter(report.plans), None)
    flags = _flags_of_job(request, first)
    if first is None or (not first.feasible and request.job.plan is not None):
        return f"dscale train {model} {job}{_flags(flags, lighter)} {lighter}".rstrip()
    command, plans = "explain train", f'"{short_plan(first.plan)}"'
    better = report.better
    # a given plan that is slower than the best: side by side, they show why
    if better is not None and first.step_s > SLOWER * better.step_s:
        command, plans = "compare", f'{plans} "{short_plan(better.plan)}"'
    elif detail and first.verifiable and first.feasible:
        # what is verified is our own program, which may hold more: whether the plan fits is for its own stack to say
        command, flags = "verify", {"stack": first.stack}
    return f"dscale {command} {plans} --model {model} {job}{_flags(flags)}"


def _flags_of_job(request: TrainRequest, first: PlanReport | None) -> dict[str, Any]:
    """The flags beside model, slice and batch that another command about the first plan of an answer needs."""
    question = request.question
    flags: dict[str, Any] = {}
    stack = question.stack
    feasible = first is not None and first.feasible
    if first is not None and first.feasible:
        stack = first.stack  # the same stack, whatever plan is asked about
    if stack != AUTO:
        flags["stack"] = stack
    for name in FIELDS:
        if value := getattr(question, name):
            flags[name] = written(value)
    if not feasible:
        for name in OF_SEARCH:
            flags[name] = getattr(question, name).strip()
    flags["numerics"] = question.numerics
    return flags


def _flags(values: dict[str, Any], command: str = "") -> str:
    """Flags with their values, without empty ones and those that are given already."""
    text = ""
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if value and f"{flag} " not in f"{command} ":
            text += f" {flag} {shlex.quote(str(value))}"
    return text


def recommended(request: TrainRequest, report: TrainReport) -> TrainingFile:
    """The best plan of a report, with everything it was worked out for."""
    question, work = request.question, report.workload
    tuning: dict[str, Any] = {name: written(getattr(question, name)) for name in TUNED}
    tuning["lora_rank"] = question.lora_rank or 0
    return TrainingFile(
        report.plans[0].plan,
        model=report.model if question.largest == "model" else written(question.model),
        slice=written_slice(request, report),
        stack=report.plans[0].stack,
        numerics=question.numerics,
        tokens=question.tokens.strip(),
        price=question.price.strip(),
        documents=question.documents.strip(),
        batch=work.sequences,
        seq=work.seq,
        skew=question.skew,
        capacity=question.capacity,
        **tuning,
    )


def _sheet(report: TrainReport, detail: bool) -> Sheet:
    """The blocks of an answer, with the command that follows from it."""
    sheet = train_blocks(report, detail)
    if not report.asked:
        return sheet
    command = next_command(report.asked, report, detail)
    why = "Next:" if detail else "More with --explain. Next:"
    return Sheet((*sheet.blocks, NextStep(command, why))) if command else sheet


def _ledger(report: TrainReport) -> Ledger:
    report.first("none has a ledger")
    return first_verdict(report.asked, report).ledger


def _save(report: TrainReport, path: str) -> str:
    """Write the first plan as TOML, for `--plan`, `dscale verify` and `dscale run`; returns what else can be done with
    the file."""
    best, request = report.first(f"none is written to {shorten(path)}"), report.asked
    check_named(request.question.model, request.question.on)
    save_training_file(recommended(request, report), path)
    offers = []
    # no export is written for a trainer that does not build the model
    if not report.workload.unbuilt:
        offers.append(f"`dscale export {path} --to NAME` writes it for a trainer")
    if best.verifiable:
        offers.append(f"`dscale verify {path}` compiles it")
    return f"; {', '.join(offers)}" if offers else ""


def _save_step(report: TrainReport, path: str) -> str:
    """Write the step of the first plan as a timeline for ui.perfetto.dev."""
    plan = report.first(f"none is written to {shorten(path)}").plan
    # the timeline draws so many passes of a stage
    microbatches = report.workload.sequences / (plan.replicas * plan.microbatch)
    title = f"{report.model} on {report.slice}: {plan}"
    ledger = first_verdict(report.asked, report).ledger
    save_timeline(step_timeline(ledger, microbatches, title), path)
    return "; open it at https://ui.perfetto.dev"


def _verify(report: TrainReport) -> Record:
    # the verifier loads XLA's programs, which other answers need not
    from dragonscale.commands.verify.ask_verify import verified
    from dragonscale.commands.verify.verify_question import training_question

    report.first("none is compiled")
    return verified(training_question(report.asked, report))


bind(TrainReport, Face(_sheet, draw, _save, timeline=_save_step, verify=_verify, ledger=_ledger))
