"""`--on h100:64,v5p:4x4x8` and `--on any`: the same job on several slices, a row for each, the best in full."""

from dataclasses import replace

from dragonscale.app.given import slice_of
from dragonscale.app.questions.flag import written
from dragonscale.app.train.other_stacks import other_stacks, slices_note
from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import SliceRow, StackRow, TrainReport
from dragonscale.app.train.report import best_report, workload_of
from dragonscale.physics.hardware import Slice
from dragonscale.training.budget import run_budget
from dragonscale.training.evaluation import Verdict, judge_one
from dragonscale.training.inverse import quick
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.search import Progress
from dragonscale.training.space import Space
from dragonscale.training.targets import Tried, compare


def several_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """The recommended plan on every slice, best first by `--rank` (the cheapest, where every chip was meant)."""
    rank = "cost" if asked.everywhere else asked.question.rank
    space = quick(asked.space)
    limits = {"deadline": asked.deadline, "tokens": asked.tokens}
    tried = compare(asked.job, asked.targets.values(), space, rank, asked.slack, **limits, progress=progress)
    rows = [slice_row(one, asked.tokens, _others(one, space, asked.slack)) for one in tried]
    best = tried[0]
    if best.best is None:
        work = workload_of(best.job, asked.space.words, asked.tokens)
        goal = "can do this run" if asked.deadline is None else f"meets the deadline of {asked.question.deadline}"
        sentence = f"No slice of those tried {goal}."
        where = written(asked.question.on)
        return TrainReport(asked.model.name, where, work, 0, 0.0, [], 0, {}, [], [sentence], slices=rows)
    report = best_report(replace(asked, space=space), best.job, others=rows[0].others if best.job.auto else None)
    report.slices = rows
    report.notes += slices_note(rows)
    return report


def _others(one: Tried, space: Space, slack: float) -> list[StackRow]:
    return [] if one.best is None else other_stacks(one.job, space, slack)


def slice_row(one: Tried, tokens: float | None, others: list[StackRow]) -> SliceRow:
    """A slice in numbers."""
    job, best, name = one.job, one.best, str(one.job.slice)
    if best is None:
        return SliceRow(
            name if one.note.startswith("no") else job.slice.chip.name, job.slice.chips, *[None] * 7, note=one.note
        )
    price = job.slice.chip.price
    budget = run_budget(tokens, job.tokens, best.seconds, job.slice.chips, price) if tokens else None
    mfu = job.model_flops / (best.seconds * job.slice.flops)
    return SliceRow(
        name,
        job.slice.chips,
        short_plan(best.plan),
        best.seconds,
        one.tokens_per_s,
        mfu,
        one.usd_per_mtok,
        budget.days if budget else None,
        budget.cost_usd if budget else None,
        "" if job.slice.chip.price is not None else "no price known",
        job.stack.name,
        others,
        not one.roomy,
    )


def chosen_slice(asked: TrainAsked, report: TrainReport) -> Slice:
    """The slice that a report is about, whatever file its chip came from."""
    if asked.piece is not None and str(asked.piece) == report.slice:
        return asked.piece
    return slice_of(report.slice, (chip for chip, _ in asked.targets.values()))


def first_verdict(asked: TrainAsked, report: TrainReport) -> Verdict:
    """What the first plan of a report was read off; judged again where the report comes from elsewhere."""
    best = report.plans[0]
    return best.verdict or judge_one(asked.job(chosen_slice(asked, report)), Plan(**best.plan))


def written_slice(asked: TrainAsked, report: TrainReport) -> str:
    """The slice as a command reads it: with the path of its chip's file, where it has one."""
    name, _, topology = report.slice.rpartition(":")
    paths = [text for text, (chip, _) in asked.targets.items() if chip.name == name and ".toml" in text]
    return f"{paths[0].partition('.toml')[0]}.toml:{topology}" if paths else report.slice
