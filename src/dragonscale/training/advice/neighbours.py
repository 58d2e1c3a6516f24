"""Training plans one change away from one that does not run."""

from collections.abc import Iterator
from dataclasses import replace

from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.allowed_space import settled

# Policies that recompute more and more.
RECOMPUTE = ("selective", "matmuls", "block")


def neighbours(job: Job, plan: Plan) -> Iterator[Plan]:
    """Plans one change away, the least of them first: the stack's own settings, smaller microbatches, more
    recomputation."""
    allowed = settled(job, plan, frozenset())  # what the stack makes of settings that it does not have
    row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    if allowed != plan:
        yield allowed
    if plan.microbatch > 1:
        yield replace(allowed, microbatch=1)
    for remat in RECOMPUTE:
        if remat in row.remat and not (remat == "selective" and row.selective):
            yield replace(allowed, remat=remat)
            yield replace(allowed, remat=remat, microbatch=1)
