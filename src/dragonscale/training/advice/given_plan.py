"""A plan that is given: how a stack would run it, and how far it is from the best one.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 64, 8192, "megatron-lm")
>>> run = as_stack_runs(job, parse_plan("tp8"), frozenset({"tensor"}))
>>> run.plan.fsdp, run.replicated
(2, True)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.training.advice.assessment import PlanAssessment, assess
from dragonscale.training.advice.changes import Changed, towards
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job, nearest_jobs, offload_jobs, unusual_jobs, usual_jobs
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import HOSTED_STATE, Plan
from dragonscale.training.search.allowed_space import offered, settled
from dragonscale.training.search.data_ranks import read_expert_ranks, read_ranks
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import Candidate, Found, Progress, search, space_size
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import stack_of

# A space of more plans is compared with by the plan's own settings and the usual ones alone.
MAX_PLANS_COMPARED = 2_500_000
# Single changes that bring less of the step are left out.
MIN_CHANGE = 0.002
# Sequences of a chip alone that fine-tuning takes in one pass where a plan says no microbatch.
MAX_DEVICE_BATCH = 8
SAME_FORMAT = ("dtype", "optimizer", "offload", "sequence", "etp", "layout")
"""Settings in which the plans that a given one is compared with do not differ from it."""


@dataclass(frozen=True)
class StackRun:
    """A given plan as a stack runs it."""

    job: Job
    plan: Plan
    named: Plan
    """The same before settings that were not given became those of the stack."""
    replicated: bool
    """Whether the rest of the chips became replicas."""
    ranks_note: str
    """How its data-parallel ranks were read, where that needs a sentence."""
    refused_by: tuple[str, ...] = ()
    """The usual stacks that cannot run it, where it is taken by one that is less usual."""

    @property
    def unsharded(self) -> bool:
        """Whether a stage of ZeRO is given and there are no ranks that it shards over."""
        return bool(self.named.zero and self.named.data > 1) and (
            self.named.fsdp * self.named.expert * self.named.context == 1
        )


def run_given_plan(job: TrainingJob, plan: Plan, named: frozenset[str]) -> StackRun:
    """A plan with the stack to take for it; `given` are the settings that were written out.

    The usual stacks come first, then those that take what the usual ones do not, and last the trainers that do not
    build the model.
    """
    start = job.on_slice()
    usual = usual_jobs(start)
    run = _best_run(usual, plan, named, job.slack)
    if not illegal(run.job, run.plan):
        return run
    unusual = unusual_jobs(start)
    if plan.offload in HOSTED_STATE:
        unusual += offload_jobs(start)
    if unusual:
        other = _best_run(unusual, plan, named, job.slack)
        if not illegal(other.job, other.plan):
            return replace(other, refused_by=tuple(refusing.stack.name for refusing in usual))
    nearest = nearest_jobs(start)
    return _best_run([*usual, *nearest], plan, named, job.slack) if nearest else run


def _best_run(jobs: Sequence[Job], plan: Plan, named: frozenset[str], slack: float) -> StackRun:
    runs = [as_stack_runs(job, plan, named) for job in jobs]
    return runs[stack_of([(run.job, run.plan) for run in runs], slack)]


def as_stack_runs(job: Job, plan: Plan, named: frozenset[str]) -> StackRun:
    """A plan as the job's stack runs it: the rest of the chips as replicas, and what was not given as the stack has
    it."""
    chips = job.slice.chips
    chip_family = family(job.slice.chip)
    plan, experts_note = read_expert_ranks(plan, named, chips)
    if plan.data * plan.fsdp == 1:
        named -= {"data", "fsdp"}  # all ranks that were named are expert ranks
    replicated = not named & {"data", "fsdp"} and plan.chips < chips and chips % plan.chips == 0
    if replicated:
        usual_zero = rules(job.stack.name, chip_family, plan.pipe > 1).data_zero
        zero = plan.zero if "zero" in named else usual_zero or plan.zero
        plan = replace(plan, fsdp=chips // plan.chips, zero=zero)
    alone = chips == 1 and 1 < job.batch <= MAX_DEVICE_BATCH
    if alone and job.tuning.tunes and plan.microbatch == 1 and "microbatch" not in named:
        # a few sequences on a chip alone are what fine-tuners call the batch of a device, without accumulation
        plan = replace(plan, microbatch=job.batch)
    # `data=8 zero=1` means sharded ranks in most trainers, whole replicas in others
    plan, ranks_note = read_ranks(plan, named, job.stack.name, chip_family)
    ranks_note = " ".join(filter(None, (experts_note, ranks_note)))
    return StackRun(job, settled(job, plan, named), plan, replicated, ranks_note)


def space_around(job: Job, plan: Plan, space: Space) -> Space:
    """The plans to compare a given one with: in its formats, and where there are too many of them, its own settings and
    the usual ones."""
    # a plan in another format or with offloading is not the same training
    formats = {name: plan[name] for name in SAME_FORMAT}
    # settings that the space leaves open stay open, if there are few enough plans
    space = replace(space, words=replace(space.words, **formats), named=space.named | {"optimizer"})
    if space_size(job, space) <= MAX_PLANS_COMPARED:
        return space
    remat = (plan.remat, *(policy for policy in offered(job, space).remat if policy != "matmuls"))
    schedule = (plan.schedule, "1f1b", "interleaved")
    context_by = (plan.context_by, "ring")
    return replace(
        space,
        zero=tuple(stage for stage in space.zero if stage in (plan.zero, 1, 3)) or space.zero,
        remat=tuple(dict.fromkeys(remat)),
        schedule=tuple(dict.fromkeys(schedule)),
        context_by=tuple(dict.fromkeys(context_by)),
    )


@dataclass(frozen=True)
class PlanComparison:
    """A given plan beside the best one: what a search found, and single changes of the given plan towards it."""

    result: Found
    best: PlanAssessment | None
    """The recommended plan; None where no plan fits."""
    changes: list[Changed]
    faster: Candidate | None
    """The given plan, where it is faster than the recommended one."""


def compare_with_best(
    job: Job, assessed: PlanAssessment, space: Space, slack: float, tokens: float | None, progress: Progress | None
) -> PlanComparison:
    """What is recommended instead of a given plan, and which single change brings most of it."""
    plan = assessed.plan
    result = search(job, space_around(job, plan, space), 1, progress, slack)
    if not result.best:
        return PlanComparison(result, None, [], None)
    best = assess(job, result.best[0].plan, tokens)
    changes: list[Changed] = []
    if plan.chips == job.slice.chips:  # a plan for other chips has no step that a change could be held against
        for change in towards(job, plan, best.plan):
            if assessed.feasible:
                worth_naming = abs(assessed.step_s / change.seconds - 1) >= MIN_CHANGE
            else:
                worth_naming = not illegal(job, change.plan)
            if worth_naming:
                changes.append(change)
    faster = None
    if assessed.feasible and assessed.step_s < best.step_s * (1 - MIN_CHANGE):
        tight = assessed.fits and not assessed.roomy
        faster = Candidate(plan, assessed.step_s, assessed.hbm_bytes, roomy=not tight)
    return PlanComparison(result, best, changes, faster)
