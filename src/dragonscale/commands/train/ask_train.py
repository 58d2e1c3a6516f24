"""`dscale train` asked: the question read, decided and answered (a given plan against the best one, a measured step
against what was expected of it); and what can be made of the answer."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.given import check_named, unnamed
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.train import slices
from dragonscale.commands.train.goodput import add_goodput
from dragonscale.commands.train.measured import against_measured, measured_step
from dragonscale.commands.train.plans import (
    add_neighbours,
    best_report,
    plan_report,
    single_report,
    stack_row,
    why_not_recommended,
)
from dragonscale.commands.train.train_charts import draw
from dragonscale.commands.train.train_question import TrainAsked, read_question
from dragonscale.commands.train.train_records import PlanReport, SettingChange, TrainReport
from dragonscale.commands.train.train_sheet import train_sheet
from dragonscale.errors import shorten
from dragonscale.listener import Listener
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.timeline import save_timeline
from dragonscale.training.advice.changes import towards
from dragonscale.training.cost.evaluation import Job, nearest_jobs, unusual_jobs, usual_jobs
from dragonscale.training.cost.step_timeline import step_timeline
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.builds import expert_ranks_note, release_of
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import TUNED, TrainingFile, given_settings, is_plan_path, save_training_file
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.plan.tuning import FIELDS
from dragonscale.training.search.allowed_space import offered, refusals, settled, settlements
from dragonscale.training.search.data_ranks import read_ranks
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import Candidate, Found, Progress, search, space_size
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import stack_of

BOUNDED = 2_500_000
"""Plans that a comparison looks through at most; of larger spaces the usual words alone."""
SEARCHED = ("tokens", "price", "pricing", "owned", "dtype", "fix", "remat", "optimizer")
"""Flags that a search for another plan takes over from a question."""
SEEN = 0.002
"""Changes of less are left out."""


def space_around(job: Job, plan: Plan, space: Space) -> Space:
    """The plans to compare a given one with: in its formats, and where there are too many of them, its own words and
    the usual ones."""
    own = ("dtype", "optimizer", "offload", "sequence", "etp", "layout")
    space = replace(space, words=replace(space.words, **{name: plan[name] for name in own}))
    if space_size(job, space) <= BOUNDED:
        return space
    remat = plan.remat, *(one for one in offered(job, space).remat if one != "matmuls")
    words = {
        "remat": remat,
        "schedule": (plan.schedule, "1f1b", "interleaved"),
        "context_by": (plan.context_by, "ring"),
    }
    zero = tuple(one for one in space.zero if one in (plan.zero, 1, 3)) or space.zero
    return replace(space, zero=zero, **{name: tuple(dict.fromkeys(some)) for name, some in words.items()})


def against_best(asked: TrainAsked, job: Job, plan: Plan, report: TrainReport, progress: Progress | None) -> None:
    """Add to the report of a given plan what is recommended instead, and which single change brings most of it."""
    found = search(job, space_around(job, plan, asked.space), 1, progress, asked.slack)
    report.searched, report.search_s = found.searched + 1, found.seconds
    if not found.best:
        if not report.plans[0].feasible and not refusals(job, asked.space):
            add_neighbours(asked, job, report, found.nearest)
        return
    given, best = report.plans[0], found.best[0].plan
    report.better = chosen = plan_report(job, best, asked.tokens, brief=True)
    report.stacks = [stack_row(job, found.best[0])]
    # a plan of other chips has no step that a change could be held against
    for one in towards(job, plan, best) if plan.chips == job.slice.chips else []:
        gain = given.step_s / one.seconds - 1
        if abs(gain) < SEEN if given.feasible else illegal(job, one.plan):
            continue
        report.changes.append(SettingChange(one.setting, one.old, one.new, one.seconds, gain, str(one.plan)))
    report.comparison = comparison(given, chosen, report.changes, found)
    if given.feasible and given.step_s < chosen.step_s * (1 - SEEN):
        faster = Candidate(plan, given.step_s, given.hbm_bytes, roomy=not given.tight)
        report.notes.append(why_not_recommended(job, found.best[0], faster))


def comparison(given: PlanReport, best: PlanReport, changes: list[SettingChange], found: Found) -> str:
    """How far a plan is from the recommended one, and what brings most of it."""
    if not given.feasible:
        start = f"{short_plan(best.plan)}: {best.mfu_text}; the given plan cannot run."
        fits = [one for one in changes if one.gain > -1]
        one = f" It runs with {fits[0].setting}={fits[0].new} ({render(fits[0].step_s, 's')})." if fits else ""
        return f"{start}{one}"
    gain = given.step_s / best.step_s - 1
    if given.plan == best.plan:
        return f"the given one, {given.mfu_text}: the best of {found.searched:,} plans."
    if gain <= 0.005:
        return (
            f"the given one: {given.mfu_text}, and nothing better among {found.searched:,} plans "
            f"({short_plan(best.plan)} has {best.own_mfu:.1%})."
        )
    text = f"{short_plan(best.plan)}: {best.own_mfu:.1%} MFU ({gain:+.1%} tokens/s), not {given.mfu_text}"
    first = next((one for one in changes if one.gain > 0.005), None)
    if first is None:
        return f"{text}; no single change brings any of it."
    part = "most of it" if first.gain > gain / 2 else "the largest part"
    return f"{text}; {part} by {first.setting}={first.new} alone ({first.gain:+.1%})."


def ask(question: TrainQuestion, listener: Listener, brief: bool = False) -> TrainReport:
    """Read a question, tell how it was read, and answer it; briefly, a given plan by itself."""
    asked = understood(question)
    for text in asked.notes:
        listener.note(text)
    report = answer(asked, listener.step, brief)
    return report.came_from(replace(asked, taken=report.workload.stack), listener.notes)


def understood(question: TrainQuestion) -> TrainAsked:
    """The question read, with its plan as the stack runs it: the rest of the chips as replicas, and words that it does
    not name as the stack has them."""
    asked = read_question(question)
    plan, question = asked.plan, asked.question
    if plan is None:
        return asked
    given = given_settings(written(question.plan)) | ({"dtype"} if question.dtype else set())
    usual, nearest = usual_jobs(asked.job()), nearest_jobs(asked.job())
    taken = _stack_run(usual, plan, given, asked.slack)
    if illegal(taken.job, taken.plan) and (unusual := unusual_jobs(asked.job())):
        other = _stack_run(unusual, plan, given, asked.slack)
        if not illegal(other.job, other.plan):
            names = " and ".join(job.stack.name for job in usual)
            note = f"{names} cannot run the plan as it is; it is judged with {other.job.stack.name}, which can."
            taken = replace(other, notes=[*other.notes, note])
    if illegal(taken.job, taken.plan) and nearest:
        taken = _stack_run([*usual, *nearest], plan, given, asked.slack)
    notes = [*asked.notes, *taken.notes]
    typed = not is_plan_path(written(question.plan))
    if typed and "expert" in given and (spread := expert_ranks_note(taken.job.stack.name, taken.plan)):
        notes.append(spread)
    return replace(asked, plan=taken.plan, notes=notes, taken=taken.job.stack.name)


@dataclass(frozen=True)
class _StackRun:
    """A given plan as a stack runs it, with what to say of that."""

    job: Job
    plan: Plan
    notes: list[str]


def _stack_run(jobs: list[Job], plan: Plan, given: frozenset[str], slack: float) -> _StackRun:
    """A given plan with the stack to take for it, of the stacks of some jobs."""
    runs = [_StackRun(job, *_as_run(job, plan, given)) for job in jobs]
    return runs[stack_of([(run.job, run.plan) for run in runs], slack)]


def _as_run(job: Job, plan: Plan, given: frozenset[str]) -> tuple[Plan, list[str]]:
    """A given plan as the job's stack runs it, with what to say of that."""
    notes: list[str] = []
    chips, world = job.slice.chips, family(job.slice.chip)
    if not given & {"data", "fsdp"} and plan.chips < chips and chips % plan.chips == 0:
        usual = rules(job.stack.name, world, plan.pipe > 1).data_zero
        zero = usual if usual and "zero" not in given else plan.zero
        plan = replace(plan, fsdp=chips // plan.chips, zero=zero)
        notes.append(
            f"The rest of the {chips:,} chips are replicas: fsdp={plan.fsdp} (data={plan.fsdp},fsdp=1: whole ones)."
        )
    plan, read = read_ranks(plan, given, job.stack.name, world)
    notes += [read] if read else []
    if plan.zero and plan.data > 1 and plan.fsdp * plan.expert * plan.context == 1:
        notes.append(
            f"zero={plan.zero} shards nothing over data={plan.data}: each replica holds all weights, gradients and the "
            f"optimizer; write fsdp={plan.data} to shard them."
        )
    taken = settled(job, plan, given)
    return taken, [*notes, *settlements(plan, taken, job.stack.name)]


def answer(asked: TrainAsked, progress: Progress | None = None, brief: bool = False) -> TrainReport:
    """The report that answers a question, with the prices that it reckons with. In brief a given plan is judged by
    itself: no advice, no search for a better one."""
    if brief and asked.plan is not None and asked.piece is not None:
        report = single_report(asked.job(), asked.plan, asked.tokens, asked.question.force, brief=True)
    else:
        report = _answer(asked, progress)
    report.release = release_of(report.workload.stack)
    chips = [chip for chip, _ in asked.targets.values()]
    report.prices = price_rows(chips)
    if asked.question.numerics and not load_stack(report.workload.stack).production:
        report.notes.append(f"--numerics changes nothing: {report.workload.stack} has one way to add gradients.")
    by_cost = asked.everywhere or asked.question.rank == "cost"
    if asked.tokens and report.plans and report.plans[0].feasible:
        add_goodput(asked, report)
    note = unpriced(chips, by_cost, asked.question.pricing) if asked.tokens or by_cost or len(chips) > 1 else ""
    report.notes += [note] if note else []
    return report


def _answer(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    question = asked.question
    if question.largest:
        return slices.largest_report(asked, progress)
    if asked.piece is None:
        report = (slices.several_report if asked.chip is None else slices.fewest_report)(asked, progress)
    elif asked.plan is not None:
        report = _given(asked, asked.plan, progress)
    elif question.rank == "cost":
        report = slices.cheapest_part(asked, progress)
    else:
        report = best_report(asked, asked.job(), progress, near=True)
    asked = replace(asked, taken=report.workload.stack)
    if report.plans:
        report.unchanged = slices.unchanged(asked, slices.chosen_slice(asked, report), progress)
    if question.scaling and report.plans:
        piece = slices.chosen_slice(asked, report)
        report.scaling = slices.scaling_rows(asked, piece, progress)
        report.notes += slices.crossover_notes(asked, piece)
    if question.codesign and report.plans:
        report.codesign = slices.codesign_report(
            asked, slices.chosen_slice(asked, report), [one.plan for one in report.plans[1:]], progress
        )
    return report


def _given(asked: TrainAsked, plan: Plan, progress: Progress | None) -> TrainReport:
    """A given plan, against the best and against what was measured of it."""
    job, text = asked.job(), asked.question.measured.strip()
    measured = measured_step(text, job, plan.dtype) if text else None
    report = single_report(job, plan, asked.tokens, asked.question.force)
    if not asked.question.alone:
        against_best(asked, job, plan, report, progress)
    if measured is not None:
        report.measured = against_measured(job, plan, report.plans[0], measured.seconds)
        report.notes += [measured.note] if measured.note else []
    return report


def next_command(asked: TrainAsked, report: TrainReport, detail: bool = False) -> str:
    """What to ask next of the first plan: how its step comes about; in detail, XLA's witness where there is one. Of a
    plan that is slower than the best, or fails, what to run instead."""
    runs = report.best is not None  # else what is there to run is the same job with other flags, or on another slice
    lighter = "" if runs else report.lighter
    near = None if runs or lighter else next(iter(report.neighbours), None)
    question, work = asked.question, report.workload
    if not (runs or lighter or near) or question.largest or unnamed(question.model, question.on):
        return ""
    model = shlex.quote(written(question.model))
    where = slices.written_slice(asked, near or report)
    sizes = {"on": where, "batch": f"{near.sequences if near else work.sequences}seq", "seq": work.seq}
    job = _flags(sizes, lighter).strip()  # what the remedy says itself is not said twice
    best = report.plans[0] if report.plans else None
    said = {name: written(getattr(question, name)) for name in FIELDS if getattr(question, name)}
    if best is None or not best.feasible:
        said |= {name: getattr(question, name).strip() for name in SEARCHED}
    taken = best.stack if best and best.feasible else question.stack  # the same stack, whatever plan is asked about
    said = ({"stack": taken} if taken != AUTO else {}) | said | {"numerics": question.numerics}
    command, plans, other = "explain train", f'"{short_plan(best.plan)}"' if best else "", report.better
    if best is None or (not best.feasible and asked.plan is not None):
        return f"dscale train {model} {job}{_flags(said, lighter)} {lighter}".rstrip()
    if other is not None and best.step_s > 1.005 * other.step_s:
        command, plans = "compare", f'{plans} "{short_plan(other.plan)}"'
    elif detail and best.verifiable and best.feasible:
        # verified is our own program, which may hold more: whether the plan fits is for its own stack to say
        command, said = "verify", {"stack": best.stack}
    return f"dscale {command} {plans} --model {model} {job}{_flags(said)}"


def _flags(said: dict[str, Any], given: str = "") -> str:
    """Flags with their values, but for those that are given already."""
    kept = {f"--{name.replace('_', '-')}": shlex.quote(str(value)) for name, value in said.items() if value}
    return "".join(f" {flag} {value}" for flag, value in kept.items() if f"{flag} " not in f"{given} ")


def recommended(asked: TrainAsked, report: TrainReport) -> TrainingFile:
    """The best plan of a report, with everything it was worked out for."""
    question, work = asked.question, report.workload
    tuning: dict[str, Any] = {name: written(getattr(question, name)) for name in TUNED}
    tuning["lora_rank"] = question.lora_rank or 0
    return TrainingFile(
        report.plans[0].plan,
        model=report.model if question.largest == "model" else written(question.model),
        slice=slices.written_slice(asked, report),
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
    sheet, command = train_sheet(report, detail), report.asked and next_command(report.asked, report, detail)
    return Sheet((*sheet.blocks, NextStep(command, "Next:"))) if command else sheet


def _ledger(report: TrainReport) -> Ledger:
    report.first("none has a ledger")
    return slices.first_verdict(report.asked, report).ledger


def _save(report: TrainReport, path: str) -> str:
    """Write the first plan as TOML, for `--plan`, `dscale verify` and `dscale run`."""
    best, asked = report.first(f"none is written to {shorten(path)}"), report.asked
    check_named(asked.question.model, asked.question.on)
    save_training_file(recommended(asked, report), path)
    offers = [] if report.workload.unbuilt else [f"`dscale export {path} --to NAME` writes it for a trainer"]
    offers += [f"`dscale verify {path}` compiles it"] if best.verifiable else []
    return f"; {', '.join(offers)}" if offers else ""


def _save_step(report: TrainReport, path: str) -> str:
    """Write the step of the first plan as a timeline for ui.perfetto.dev."""
    plan = report.first(f"none is written to {shorten(path)}").plan
    many = report.asked.job(slices.chosen_slice(report.asked, report)).batch / (plan.replicas * plan.microbatch)
    title = f"{report.model} on {report.slice}: {plan}"
    save_timeline(step_timeline(slices.first_verdict(report.asked, report).ledger, many, title), path)
    return "; open it at https://ui.perfetto.dev"


def _verify(report: TrainReport) -> Record:
    from dragonscale.commands.verify.ask_verify import verified
    from dragonscale.commands.verify.verify_question import training_question

    report.first("none is compiled")
    return verified(training_question(report.asked, report))


bind(TrainReport, Face(_sheet, draw, _save, timeline=_save_step, verify=_verify, ledger=_ledger))
