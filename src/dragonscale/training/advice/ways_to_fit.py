"""What to change where a job has no plan, and the sizes near it that would divide better.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> run = TrainingJob(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, stack="megatron-lm")
>>> from dragonscale.training.plan.plan import Plan
>>> nearest = Candidate(Plan(fsdp=8), 1.0, hbm_bytes=160e9)
>>> round(missing_memory(run.on_slice(), nearest), 2)
1.88
"""

import math
from dataclasses import dataclass, replace

from dragonscale.errors import Infeasible
from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.budget import planned_run, run_budget
from dragonscale.training.advice.inverse import Fit, nearest_possible
from dragonscale.training.advice.remedies import (
    LargerSlices,
    Remedy,
    combined_remedies,
    larger_slices,
    longest_sequence,
    memory_remedies,
)
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job, judge_one, tuned, unusual_jobs
from dragonscale.training.cost.goodput import Run
from dragonscale.training.plan.tuning import DEFAULT_RANK, Tuning
from dragonscale.training.search.search import Candidate
from dragonscale.training.search.stack_search import search_stacks


@dataclass(frozen=True)
class LighterMethod:
    """A less usual stack, or a method of fine-tuning that holds less, with which a job fits."""

    stack: str
    """Empty where the method is what changes."""
    tuning: Tuning
    job: Job
    best: Candidate
    run: Run | None
    """The whole run with failures, where its tokens are known."""


@dataclass(frozen=True)
class WaysToFit:
    """Everything that was found to make a job fit, in the order in which it is tried."""

    methods: list[LighterMethod]
    remedies: list[Remedy]
    """Other software, numerics, optimizers, and state in the host's memory."""
    longest: Fit | None
    """The longest sequences that fit."""
    larger: LargerSlices | None
    """What more chips do, where memory is what is missing."""
    sizes: list[Fit]
    """The nearest batch and the nearest slice with a plan."""
    combined: list[Remedy]
    """Several changes at once, tried where no single one is enough."""


def ways_to_fit(run: TrainingJob, job: Job, nearest: Candidate | None) -> WaysToFit:
    """What makes a job fit that has no plan; `nearest` is the plan that misses the memory by least."""
    methods = lighter_methods(run, job)
    remedies = list(memory_remedies(job, run.space))
    longest = longest_sequence(job, run.space)
    missing = missing_memory(job, nearest)
    larger = None
    # memory is enough, so what fails is how sizes divide: batches and slices near may do
    if missing <= 1:
        sizes = nearest_possible(job, run.space)
    else:
        larger = larger_slices(job, run.space, missing)
        sizes = [larger.fit] if larger.fit else []
    # the most expensive searches, so only where nothing simpler helps
    combined: list[Remedy] = []
    single_change = methods or remedies or longest is not None or sizes
    if missing > 1 and not single_change:
        method = job.tuning.method if job.tuning.asked else ""
        combined = list(combined_remedies(job, run.space, method, missing))
    return WaysToFit(methods, remedies, longest, larger, sizes, combined)


def missing_memory(job: Job, nearest: Candidate | None) -> float:
    """How many times the memory there is the nearest plan needs, of the chip or, where that is enough, of its host; 1
    where nothing is missing."""
    if nearest is None:
        return 1.0
    chip = job.slice.chip
    if math.isfinite(nearest.hbm_bytes):
        needed = nearest.hbm_bytes / chip.visible
    else:  # how a search marks plans that the host's memory cannot hold
        needed = first_number(judge_one(job, nearest.plan).ledger.host_bytes) / chip.host_memory
    return max(1.0, needed)


def lighter_methods(run: TrainingJob, job: Job) -> list[LighterMethod]:
    """What fits where the method that was asked for does not: it with a less usual stack, then LoRA, then QLoRA, up to
    the first that leaves room in memory."""
    tuning = job.tuning
    if tuning.frozen != "bf16" or not tuning.asked:
        return []
    # adapters alone carry gradients and optimizer state; QLoRA stores the frozen weights in 4 bits too
    lora = tuning if tuning.rank else replace(tuning, method="lora", rank=DEFAULT_RANK, copies=0.0)
    qlora = replace(lora, method="qlora" if lora.method == "lora" else lora.method, frozen="nf4")
    attempts = [(other.stack.name, other) for other in unusual_jobs(job)]
    attempts += [("", tuned(job, lighter)) for lighter in (lora, qlora) if lighter != tuning]
    fitting: list[LighterMethod] = []
    for stack, lighter_job in attempts:
        result = search_stacks(lighter_job, run.space, 1)[0]
        if result.best is None:
            continue
        whole = whole_run(result.job, result.best, run.tokens)
        fitting.append(LighterMethod(stack, lighter_job.tuning, result.job, result.best, whole))
        if result.best.roomy:
            break
    return fitting


def whole_run(job: Job, best: Candidate, tokens: float | None) -> Run | None:
    """The run of all tokens with a plan, failures included; None where the tokens are not known, or failures leave it
    no time to make progress."""
    if not tokens:
        return None
    clean = run_budget(tokens, job.tokens, best.seconds, job.slice.chips)
    try:
        return planned_run(job, best.plan, clean.seconds)
    except Infeasible:
        return None
