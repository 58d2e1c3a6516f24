"""Settings of the same software on the same chips with which a job fits where it does not as it was asked: gradients in
fewer bits, and state in the host's memory. Each is searched, so that what is named has a plan.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.evaluation import make_job
>>> job = make_job(load_model("llama1-30b"), parse_slice("a100-40gb:8"), 64, 2048, "hf")
>>> [(one.flags, one.best.plan.offload) for one in software_remedies(job, Space())]
[('--fix offload=optimizer', 'optimizer')]
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.training.evaluation import Job, usual_jobs, with_numerics
from dragonscale.training.keeper import Candidate
from dragonscale.training.plan import HOSTED_STATE
from dragonscale.training.space import Space
from dragonscale.training.stack_search import search_stacks


@dataclass(frozen=True)
class SoftwareRemedy:
    """Flags with which a job fits, and the plan that it then has."""

    flags: str
    job: Job
    best: Candidate


def software_remedies(job: Job, space: Space) -> Iterator[SoftwareRemedy]:
    """Gradients as published benchmarks have them, and the first offload to the host's memory that is enough."""
    benchmark = with_numerics(job, "benchmark")
    changed = any(one.stack != other.stack for one, other in zip(usual_jobs(job), usual_jobs(benchmark), strict=True))
    if job.numerics != "benchmark" and changed:
        yield from _fitting("--numerics benchmark", benchmark, space)
    if space.words.offload != "none" or "offload" in space.named:
        return
    for offload in HOSTED_STATE:
        hosted = replace(space, words=replace(space.words, offload=offload), named=space.named | {"offload"})
        found = list(_fitting(f"--fix offload={offload}", job, hosted))
        if found:
            yield from found
            return


def _fitting(flags: str, job: Job, space: Space) -> Iterator[SoftwareRemedy]:
    """The remedy, if the job has a plan with it."""
    found = search_stacks(job, space, 1)[0]
    if found.best is not None:
        yield SoftwareRemedy(flags, found.job, found.best)
