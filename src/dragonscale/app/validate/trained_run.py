"""The log of a training run against its plan: the step, MFU and memory that were measured beside those that were
expected.

The plan is read as `dscale train --plan` reads it. What the log says of the batch, the sequence and the chips is what
ran: the plan is judged at that batch, and a log of another number of chips is no log of this plan.
"""

from typing import Any

from dragonscale.app.questions.flag import written
from dragonscale.app.questions.train import TrainQuestion
from dragonscale.app.questions.validate import TrainingScoreQuestion
from dragonscale.app.train.ask_train import against_measured, understood
from dragonscale.app.train.plans import plan_report
from dragonscale.app.train.train_question import TrainAsked
from dragonscale.app.train.train_records import Measured, PlanReport
from dragonscale.app.validate.validate_records import MeasureRow, RunScore, measure, slice_for
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.logs.reading import read_training_log
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.training_log import LoggedStep, SettledStep, TrainingLog, settled
from dragonscale.evidence.memory import peak_of
from dragonscale.listener import Listener
from dragonscale.physics.units import render
from dragonscale.training.evaluation import Job, judge_one
from dragonscale.training.plan import Plan, short_plan


def ask_trained(question: TrainingScoreQuestion, text: LogText, listener: Listener) -> RunScore:
    """Score a log."""
    log = read_training_log(text)
    asked = understood(_train_question(question, log, text))
    for note in asked.notes:
        listener.note(note)
    plan, job = asked.plan, asked.job()
    assert plan is not None
    if log.chips and log.chips != job.slice.chips:
        raise InputError(
            f"{text.shown} is of a run on {log.chips:,} chips, and the plan is for {job.slice.chips:,} ({job.slice}); "
            "give the plan that ran."
        )
    step = settled(log, lambda one: _seconds(one, job))
    if step is None:
        raise InputError(f"{text.shown} of {log.software} holds no step with a time.")
    return _score(asked, job, plan, log, step).came_from(asked, listener.notes)


def _train_question(question: TrainingScoreQuestion, log: TrainingLog, text: LogText) -> TrainQuestion:
    """The plan as a question to `dscale train`; what is not given is taken from the log where it says it."""
    plan = question.plan if written(question.plan).strip() else log.plan
    if not plan:
        raise InputError(
            f"{text.shown} of {log.software} does not say how the run was split; give the plan that ran: --plan "
            "plan.toml, "
            '--plan "tp8 pp4 dp16", or the config or command that was run.'
        )
    batch = next((one.batch for one in reversed(log.steps) if one.batch), log.batch)
    given: dict[str, Any] = {
        "model": question.model or (log.model if not written(question.plan) else ""),
        "on": slice_for(question.on, log.chip if not written(question.plan) else "", log.chips),
        "batch": question.batch or (f"{batch}seq" if batch else ""),
        "seq": question.seq or (str(log.seq) if log.seq else ""),
    }
    return TrainQuestion(plan=plan, stack=question.stack or "auto", alone=True, force=True, **given)


def _seconds(step: LoggedStep, job: Job) -> float | None:
    """The time of a step, from what was logged of it."""
    if step.seconds is not None:
        return step.seconds
    if step.tokens:
        return job.tokens / (step.tokens * job.slice.chips)
    return job.batch / step.samples if step.samples else None


def _score(asked: TrainAsked, job: Job, plan: Plan, log: TrainingLog, step: SettledStep) -> RunScore:
    given = plan_report(job, plan, asked.tokens, force=True, brief=True)
    compared = against_measured(job, plan, given, step.seconds)
    rows = [*_times(given, compared, step), *_memory(job, plan, log)]
    notes = [*log.notes, *step.notes, *_own(log, step, compared), *_unexpected(given)]
    return RunScore(
        "training",
        log.software,
        job.model.name,
        str(job.slice),
        short_plan(given.plan),
        f"the stack {given.stack}",
        f"{job.batch:,} sequences of {job.sequence:,} tokens a step",
        rows,
        compared.within_band,
        compared.text,
        step.counted,
        step.skipped,
        step.starts,
        band=given.band,
        suspects=compared.suspects,
        notes=notes,
    )


def _times(given: PlanReport, compared: Measured, step: SettledStep) -> list[MeasureRow]:
    low, high = given.step_low_s, given.step_high_s
    rate = given.tokens_per_s_per_chip
    fewest, most = given.step_s / high, given.step_s / low
    spread = (step.low, step.high) if step.counted > 2 else None
    return [
        measure("step", "s", step.seconds, given.step_s, (low, high), spread),
        measure("MFU", "share", compared.mfu, given.mfu, (given.mfu * fewest, given.mfu * most)),
        measure("tokens/s a chip", "count", rate / compared.ratio, rate, (rate * fewest, rate * most)),
    ]


def _memory(job: Job, plan: Plan, log: TrainingLog) -> list[MeasureRow]:
    if log.memory_bytes is None:
        return []
    expected = peak_of(judge_one(job, plan), job, log.memory_counter)
    return [measure(f"memory ({log.memory_counter})", "bytes", log.memory_bytes, expected)]


def _own(log: TrainingLog, step: SettledStep, compared: Measured) -> list[str]:
    """What the trainer says of itself, which counts FLOPs in its own way."""
    own = [f"{render(step.flops, 'FLOP/s')} a chip"] if step.flops else []
    own += [f"{log.mfu:.1%} MFU"] if log.mfu else []
    ours = f"by the planner's count of the model's FLOPs it is {compared.mfu:.1%} MFU"
    return [f"{log.software} itself says {' and '.join(own)}; {ours}."] if own else []


def _unexpected(given: PlanReport) -> list[str]:
    """Why the planner would not have let the plan run."""
    told = [*given.problems, *given.illegal]
    return [f"It ran, and by the planner's count it should not have: {shorten(told[0], 300)[1:-1]}."] if told else []
