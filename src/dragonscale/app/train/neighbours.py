"""What is said of sizes that do not divide: the nearest batch or number of chips that works, or works much better."""

from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import Neighbour, TrainReport
from dragonscale.training.evaluation import Job
from dragonscale.training.keeper import Candidate
from dragonscale.training.neighbours import Near, better_batch, nearest_possible
from dragonscale.training.plan import short_plan


def add_neighbours(asked: TrainAsked, job: Job, report: TrainReport, nearest: Candidate | None) -> None:
    """Add to a report the sizes near those asked for that would do better; `nearest` is the plan that misses the memory
    by least."""
    if not report.plans:
        missing = max(1.0, nearest.hbm_bytes / job.slice.chip.visible) if nearest is not None else 1.0
        found = nearest_possible(job, asked.space, missing)
        report.notes += [_works(job, near) for near in found]
    else:
        best = report.plans[0]
        near = better_batch(job, asked.space, best.mfu)
        found = [near] if near is not None else []
        report.notes += [
            f"{job.batch:,} sequences do not divide well over {job.slice.chips:,} chips: with {one.job.batch:,} "
            f"({one.job.tokens:,} tokens) a chip does {one.mfu / best.mfu - 1:.0%} more tokens a second."
            for one in found
        ]
    report.neighbours = [_row(near) for near in found]


def _works(job: Job, near: Near) -> str:
    with_plan = f"{short_plan(near.best.plan)}, MFU {near.mfu:.1%}"
    if near.job.batch != job.batch:
        tokens = f"--batch {near.job.batch}seq, {near.job.tokens:,} tokens"
        return f"The nearest batch with a plan is {near.job.batch:,} sequences ({tokens}): {with_plan}."
    return f"The nearest slice with a plan is {near.job.slice}: {with_plan}."


def _row(near: Near) -> Neighbour:
    plan = short_plan(near.best.plan)
    return Neighbour(str(near.job.slice), near.job.batch, plan, near.best.seconds, near.mfu)
