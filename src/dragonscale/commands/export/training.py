"""A training plan judged as the target's stack runs it."""

import shlex
from dataclasses import asdict, dataclass, replace

from dragonscale.commands.export.plans import GivenPlan, with_flags
from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.ask_train import ask as ask_train
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import PlanReport
from dragonscale.errors import Infeasible
from dragonscale.exports.judges import stack_for
from dragonscale.exports.runs import ServingRun, TrainingRun
from dragonscale.exports.target import Target, of_kind
from dragonscale.listener import Listener
from dragonscale.models.load import model_fields
from dragonscale.physics.units import render
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.advice.assessment import assess
from dragonscale.training.advice.neighbours import neighbours
from dragonscale.training.plan.plan import Plan, effective, short_plan
from dragonscale.training.plan.plan_file import TrainingFile
from dragonscale.training.plan.stack import spelt_stack
from dragonscale.training.plan.tuning import FIELDS

# Differences in step time (a fraction) and in memory (bytes) from which on another plan is worth a note.
MIN_SLOWDOWN = 5e-4
MIN_BYTES = 1e8


@dataclass(frozen=True)
class JudgedPlan:
    """A run to write down, and what is expected of it: the numbers of an `ExportReport` by their names."""

    run: TrainingRun | ServingRun
    numbers: dict[str, float | None]


def judged_training(
    question: ExportQuestion, given: GivenPlan, target: Target, as_run: Plan | ServingPlan | None
) -> JudgedPlan:
    """The plan judged under the target's stack; `as_run` is the plan that the target runs instead of the one given."""
    assert isinstance(given.file, TrainingFile)
    file = with_flags(given.file, question)
    if file.method not in ("", "full") and not target.tunes:
        others = ", ".join(tuner.name for tuner in of_kind("training") if tuner.tunes)
        raise Infeasible(f"{target.title} is written for training every weight, and not {file.method}; take {others}.")
    # the target's own, or a variant of it that the plan was made for
    stack = stack_for(target, spelt_stack(question.stack) or file.stack)
    understood, row = _judged(question, file, stack, target)
    assert understood.job.plan is not None
    assert understood.job.slice is not None
    # the file as it is written: what the question left open is filled in
    file = replace(
        file,
        plan=effective(understood.job.plan),
        model=written(understood.question.model),
        slice=str(understood.job.slice),
        stack=stack,
        batch=understood.job.batch,
        seq=understood.job.sequence,
    )
    expected, expected_numbers = [expectation(row, target)], _numbers(row)
    if isinstance(as_run, Plan) and as_run != file.plan:
        _, as_run_row = _judged(question, replace(file, plan=as_run), stack, target)
        expected += instead(row, as_run_row)
        expected_numbers = {**_numbers(as_run_row), "planned_s": row.step_s}
    run = TrainingRun(
        file,
        understood.job.model,
        model_fields(understood.question.model),
        understood.job.slice,
        tuple(expected),
        command(question),
        expected_numbers["step_s"] or 0.0,
    )
    return JudgedPlan(run, expected_numbers)


def _judged(
    question: ExportQuestion, file: TrainingFile, stack: str, target: Target
) -> tuple[TrainRequest, PlanReport]:
    """A plan judged under a stack; refused where it does not run, unless that is forced."""
    train_question = _question(question, file, stack)
    report = ask_train(train_question, Listener())
    understood, row = report.asked, report.plans[0]
    if not row.feasible and not question.force:
        raise _refused(understood, effective(understood.job.plan), target, row, train_question)
    return understood, row


def _question(question: ExportQuestion, file: TrainingFile, stack: str) -> TrainQuestion:
    """The plan as a question to `dscale train`, with the settings that its file names."""
    settings = asdict(file.plan)
    return TrainQuestion(
        model=file.model,
        on=file.slice,
        batch=question.batch or (f"{file.batch}seq" if file.batch else ""),
        seq=question.seq or str(file.seq or ""),
        tokens=file.tokens,
        documents=file.documents,
        **{name: getattr(file, name) for name in FIELDS if getattr(file, name)},
        skew=file.skew or 1.0,
        capacity=file.capacity,
        price=file.price,
        plan={name: value for name, value in settings.items() if not file.named or name in file.named},
        alone=True,
        stack=stack,
        numerics=file.numerics,
        force=question.force,
    )


def _refused(
    understood: TrainRequest, plan: Plan, target: Target, row: PlanReport, question: TrainQuestion
) -> Infeasible:
    """Why a plan does not run, with the nearest that does: another batch, one change of the plan, or what is
    recommended."""
    if row.illegal:
        who = f"{target.title} cannot run"
    else:
        who = f"{understood.job.slice} does not run"
    why = "; ".join(row.illegal or row.problems).removesuffix("; take --stack auto")
    sequences = plan.replicas * plan.microbatch  # of one pass of all replicas, which must divide the batch
    if understood.job.batch % sequences:
        remedy = f"take a batch of {max(round(understood.job.batch / sequences), 1) * sequences} sequences"
    elif (nearest := _nearest_that_runs(understood, plan, question)) is not None:
        remedy = f"the nearest that runs is {short_plan(nearest)}"
    else:
        remedy = "nothing there does"
    return Infeasible(f"{who} {short_plan(plan)}: {why}; {remedy}.")


def _nearest_that_runs(understood: TrainRequest, plan: Plan, question: TrainQuestion) -> Plan | None:
    """The first plan one change away that runs, else the one that is recommended there."""
    job = understood.job.on_slice()
    for neighbour in neighbours(job, plan):
        if assess(job, neighbour).feasible:
            return neighbour
    best = ask_train(replace(question, plan="", alone=False, top=1), Listener()).best
    if best is None:
        return None
    return best.plan


def expectation(row: PlanReport, target: Target) -> str:
    """What is expected, with its band, and by which stack where that is not the target's own."""
    stack = f"{'' if row.stack in target.runs else 'planned '}with stack {row.stack}"
    band = f"{render(row.step_low_s, 's')} to {render(row.step_high_s, 's')} in four of five runs of this kind"
    return (
        f"{render(row.step_s, 's')} a step ({band}), {row.mfu_text}, {render(row.hbm_bytes, 'bytes')} of "
        f"{render(row.hbm_limit_bytes, 'bytes')} of HBM, {stack}."
    )


def instead(row: PlanReport, as_run: PlanReport) -> list[str]:
    """What differs in time and memory, where the target runs another plan; nothing where nothing does."""
    slowdown, more_bytes = as_run.step_s / row.step_s - 1, as_run.hbm_bytes - row.hbm_bytes
    if abs(slowdown) < MIN_SLOWDOWN and abs(more_bytes) < MIN_BYTES:
        return []
    memory = f"{render(as_run.hbm_bytes, 'bytes')} of {render(as_run.hbm_limit_bytes, 'bytes')} of HBM"
    return [f"as it runs here, {render(as_run.step_s, 's')} a step ({slowdown:+.1%}), {memory}."]


def _numbers(row: PlanReport) -> dict[str, float | None]:
    return {"step_s": row.step_s, "hbm_bytes": row.hbm_bytes}


def command(question: ExportQuestion) -> str:
    """The command that makes the export again."""
    parts = ["dscale export", shlex.quote(written(question.plan)), "--to", question.to]
    job = ("model", "on", "batch", "seq", "tokens", "prompt", "output", "rate")
    for name in (*job, "stack", "numerics", "engine", "price"):
        if value := written(getattr(question, name)):
            parts += [f"--{name}", shlex.quote(value)]
    return " ".join(parts)
