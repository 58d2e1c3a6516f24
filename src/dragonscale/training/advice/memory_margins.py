"""What a fine-tuning plan that fits is close to: the longest sequences that it holds, and what would make it run out.

People's runs differ from a plan in a few ways that nobody writes down: attention that is not fused, weights loaded in
fp32, whole replicas where nothing shards, an older release. Each is judged, and named where the memory does not hold
it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.plan.settings import read_settings, with_settings
from dragonscale.training.advice.inverse import last_fitting
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.builds import trainer_of
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.legal import illegal

# Sequences are tried up to so many tokens, in so many steps of the one that was asked about.
MAX_TOKENS = 2**22
STEPS = 8


@dataclass(frozen=True)
class MemoryMargin:
    """A difference that would make a plan run out of memory, and the bytes that it would need of a chip."""

    what: str
    hbm_bytes: float


def memory_margins(job: Job, plan: Plan) -> list[MemoryMargin]:
    """The differences with which a plan that fits would not fit."""
    margins: list[MemoryMargin] = []
    for what, other, changed in _differences(job, plan):
        size = first_number(judge_one(other, changed).hbm_bytes)
        if size > job.slice.chip.visible:
            margins.append(MemoryMargin(what, size))
    return margins


def _differences(job: Job, plan: Plan) -> Iterator[tuple[str, Job, Plan]]:
    """Ways in which people's runs differ from a plan, each with the job and the plan that it makes."""
    tuning = job.tuning
    if plan.fsdp > 1:
        whole = replace(plan, data=plan.data * plan.fsdp, fsdp=1, zero=0)
        trainer = trainer_of(job.stack.name)
        name = trainer.title if trainer is not None else job.stack.name
        if not illegal(job, whole):
            yield f"whole replicas, as {name} runs without an FSDP or DeepSpeed config", job, whole
    if tuning.attention != "eager":
        yield "eager attention", replace(job, tuning=replace(tuning, attention="eager")), plan
    if tuning.rank and tuning.frozen == "bf16":
        yield "weights loaded in fp32", replace(job, tuning=replace(tuning, frozen="fp32")), plan
    for name, switches in job.stack.older_switches.items():
        changes = read_settings(switches, "memory.loss_chunks=1")
        stack = with_settings(job.stack, changes, f"The stack {job.stack.name}")
        yield name, replace(job, stack=stack), plan


def longest_held(job: Job, plan: Plan) -> int:
    """The most tokens of a sequence that a plan holds, in steps of an eighth of those asked about, or of half of what
    that leads to; 0 where the job's own do not fit."""
    step = max(job.sequence // STEPS // 64 * 64, 64)

    def holds(tokens: int) -> bool:
        longer = replace(job, sequence=tokens)
        return first_number(judge_one(longer, plan).hbm_bytes) <= job.slice.chip.visible

    if not holds(job.sequence):
        return 0
    upper = job.sequence
    while upper < MAX_TOKENS and holds(2 * upper):
        upper *= 2
        step = max(step, upper // (2 * STEPS) // 64 * 64)
    return last_fitting([upper, *range(upper + step, 2 * upper, step)], holds) or job.sequence
