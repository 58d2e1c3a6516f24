"""A training plan judged as the target's stack runs it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.commands.export.plans import GivenPlan, with_flags
from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.ask_train import ask as ask_train
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import PlanReport
from dragonscale.errors import Infeasible
from dragonscale.exports.runs import ServingRun, TrainingRun
from dragonscale.exports.target import Target, of_kind
from dragonscale.listener import Listener
from dragonscale.models.load import model_fields
from dragonscale.physics.units import render
from dragonscale.training.advice.assessment import assess
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import Plan, effective, short_plan
from dragonscale.training.plan.plan_file import TrainingFile
from dragonscale.training.plan.stack import spelt_stack, stacks
from dragonscale.training.plan.tuning import FIELDS
from dragonscale.training.search.allowed_space import settled


@dataclass(frozen=True)
class JudgedPlan:
    """A run to write down, and what is expected of it."""

    run: TrainingRun | ServingRun
    numbers: dict[str, float | None]


def judged_training(question: ExportQuestion, given: GivenPlan, target: Target, as_run: Any) -> JudgedPlan:
    """The plan judged under the target's stack; `as_run` is the plan that the target runs instead of the one given."""
    assert isinstance(given.file, TrainingFile)
    file = with_flags(given.file, question)
    if file.method not in ("", "full") and not target.tunes:
        others = ", ".join(one.name for one in of_kind("training") if one.tunes)
        raise Infeasible(f"{target.title} is written for training every weight, and not {file.method}; take {others}.")
    stack = stack_for(target, spelt_stack(question.stack) or file.stack)
    report = ask_train(_question(question, file, stack), Listener())
    asked = report.asked
    job = asked.job
    plan, found = effective(job.plan), report.plans[0]
    if not found.feasible and not question.force:
        raise _refused(asked, plan, target, found, _question(question, file, stack))
    file = replace(
        file,
        plan=plan,
        model=written(asked.question.model),
        slice=str(job.slice),
        stack=stack,
        batch=job.batch,
        seq=job.sequence,
    )
    expected, numbers = [expectation(found, target)], _numbers(found)
    if as_run is not None and as_run != plan:
        changed = _question(question, replace(file, plan=as_run), stack)
        other = ask_train(changed, Listener()).plans[0]
        if not other.feasible and not question.force:
            raise _refused(asked, as_run, target, other, changed)
        expected += instead(found, other)
        numbers = {**_numbers(other), "planned_s": found.step_s}
    run = TrainingRun(
        file,
        job.model,
        model_fields(asked.question.model),
        job.slice,
        tuple(expected),
        command(question),
        numbers["step_s"] or 0.0,
    )
    return JudgedPlan(run, numbers)


def _question(question: ExportQuestion, file: TrainingFile, stack: str) -> TrainQuestion:
    named = file.named or frozenset(Plan.__dataclass_fields__)
    values = {name: getattr(file.plan, name) for name in Plan.__dataclass_fields__ if name in named}
    text = ",".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()
    )
    return TrainQuestion(
        model=file.model,
        on=file.slice,
        batch=question.batch or (f"{file.batch}seq" if file.batch else ""),
        seq=question.seq or (str(file.seq) if file.seq else ""),
        tokens=file.tokens,
        documents=file.documents,
        **{name: getattr(file, name) for name in FIELDS if getattr(file, name)},
        skew=file.skew or 1.0,
        capacity=file.capacity,
        price=file.price,
        plan=text,
        alone=True,
        stack=stack,
        numerics=file.numerics,
        force=question.force,
    )


def stack_for(target: Target, named: str) -> str:
    """The stack that judges: the plan's own where the target runs it, the target's otherwise.

    >>> from dragonscale.exports.target import target_named
    >>> [stack_for(target_named("megatron"), name) for name in ("torchtitan", "megatron-core", "megatron-overlap")]
    ['megatron-lm', 'megatron-lm', 'megatron-overlap']
    """
    named = target.same.get(named, named)
    own = next((name for name in target.runs if name in stacks()), target.runs[0])
    return named if named in stacks() and runs_stack(target, named) else own


def runs_stack(target: Target, name: str) -> bool:
    """Whether a target runs the plans of a stack: one of its own, or a variant of one."""
    while name:
        if name in target.runs:
            return True
        name = stacks()[name].base if name in stacks() else ""
    return False


def _refused(asked: TrainRequest, plan: Plan, target: Target, found: PlanReport, question: TrainQuestion) -> Infeasible:
    """Why a plan does not run, with the nearest that does: another batch, one change of the plan, or what is
    recommended."""
    who = f"{target.title} cannot run" if found.illegal else f"{asked.job.slice} does not run"
    why = "; ".join(found.illegal or found.problems).removesuffix("; take --stack auto")
    ways = plan.replicas * plan.microbatch
    if asked.job.batch % ways:
        rest = f"take a batch of {max(round(asked.job.batch / ways), 1) * ways} sequences"
    else:
        near = next((one for one in _neighbours(asked, plan) if _runs(asked, one)), None) or _best(question)
        rest = f"the nearest that runs is {short_plan(near)}" if near is not None else "nothing there does"
    return Infeasible(f"{who} {short_plan(plan)}: {why}; {rest}.")


def _neighbours(asked: TrainRequest, plan: Plan) -> Iterator[Plan]:
    """Plans one change away, the least of them first: the stack's own words, smaller microbatches,
    more recomputation."""
    job = asked.job.on_slice()
    near = settled(job, plan, frozenset())
    row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    if near != plan:
        yield near
    if plan.microbatch > 1:
        yield replace(near, microbatch=1)
    for remat in ("selective", "matmuls", "block"):
        if remat in row.remat and not (remat == "selective" and row.selective):
            yield replace(near, remat=remat)
            yield replace(near, remat=remat, microbatch=1)


def _best(question: TrainQuestion) -> Plan | None:
    """What is recommended there."""
    best = ask_train(replace(question, plan="", alone=False, top=1), Listener()).best
    return None if best is None else best.plan


def _runs(asked: TrainRequest, plan: Plan) -> bool:
    """Whether a plan of a question runs as it is."""
    return assess(asked.job.on_slice(), plan).feasible


def expectation(found: PlanReport, target: Target) -> str:
    """What is expected, with its band, and by which stack where that is not the target's own."""
    stack = f"{'' if found.stack in target.runs else 'planned '}with stack {found.stack}"
    between = f"{render(found.step_low_s, 's')} to {render(found.step_high_s, 's')} in four of five runs of this kind"
    return (
        f"{render(found.step_s, 's')} a step ({between}), {found.mfu_text}, {render(found.hbm_bytes, 'bytes')} of "
        f"{render(found.hbm_limit_bytes, 'bytes')} of HBM, {stack}."
    )


def instead(found: PlanReport, other: PlanReport) -> list[str]:
    """What differs in time and memory, where the target runs another plan; nothing where nothing does."""
    longer, more = other.step_s / found.step_s - 1, other.hbm_bytes - found.hbm_bytes
    if abs(longer) < 5e-4 and abs(more) < 1e8:
        return []
    held = f"{render(other.hbm_bytes, 'bytes')} of {render(other.hbm_limit_bytes, 'bytes')} of HBM"
    return [f"as it runs here, {render(other.step_s, 's')} a step ({longer:+.1%}), {held}."]


def _numbers(found: PlanReport) -> dict[str, float | None]:
    return {"step_s": found.step_s, "hbm_bytes": found.hbm_bytes}


def command(question: ExportQuestion) -> str:
    """The command that makes the export again."""
    words = ["dscale export", shlex.quote(written(question.plan)), "--to", question.to]
    job = ("model", "on", "batch", "seq", "tokens", "prompt", "output", "rate")
    for name in (*job, "stack", "numerics", "engine", "price"):
        value = written(getattr(question, name))
        words += [f"--{name}", shlex.quote(value)] if value else []
    return " ".join(words)
