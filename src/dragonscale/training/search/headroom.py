"""How much of a chip's memory a recommended plan may fill.

A plan that fits by a hair runs out of memory where its peak is more than predicted. `peaks.toml` has, by family of
software, how much more than predicted 19 of 20 measured programs took at most: a plan is recommended if it would fit
with that much more, so that its chance of running out is one in twenty at most. Experts are judged with an uneven
load (`expert_load.UNEVEN`). `--headroom` overrides it. Fuller plans are listed and marked; given plans are judged as
they are.
"""

from dataclasses import replace
from typing import Any

from dragonscale.physics.numbers import first_number
from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.plan.expert_load import UNEVEN, uneven
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.run_kinds import family, kind_of

# The largest chance of running out of memory.
CHANCE = 0.05

# The row of all families of software.
ALL_FAMILIES = "all"


def peaks() -> dict[str, dict[str, Any]]:
    """By family of software the runs with a measured peak, and how much more than predicted all but `CHANCE` of them
    took at most."""
    return shipped_table("training.search", "peaks.toml")


def peak_kind(job: Job) -> str:
    """The family whose measured peaks speak for a job."""
    name = family(kind_of(job).stack)
    return name if name in peaks() else ALL_FAMILIES


def headroom(job: Job) -> float:
    """The fraction of memory that a recommended plan leaves free.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.training.cost.evaluation import make_job
    >>> job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, "megatron-core")
    >>> 0.05 < headroom(job) < 0.12, headroom(replace(job, headroom=0.2))
    (True, 0.2)
    """
    if job.headroom is not None:
        return job.headroom
    return 1 - 1 / (1 + peaks()[peak_kind(job)]["over"])


def room_bytes(job: Job) -> float:
    """Bytes of a chip that a recommended plan may fill."""
    return (1 - headroom(job)) * job.slice.chip.visible


def headroom_text(job: Job) -> str:
    """Why that much is left free, in words."""
    free = f"{headroom(job):.0%} is left free"
    if job.headroom is not None:
        return f"{free} (--headroom)"
    kind = peak_kind(job)
    runs = f"the {peaks()[kind]['runs']} measured runs"
    if kind != ALL_FAMILIES:
        runs += f" of {kind}"
    return f"{free}: 19 of 20 of {runs} took no more beyond what was predicted (--headroom)"


def leaves_room(job: Job, plan: Plan, verdict: Verdict) -> bool:
    """Whether a judged plan leaves that much free, with an uneven load of experts too."""
    hbm_bytes, allowed = first_number(verdict.hbm_bytes), room_bytes(job)
    state = sum(first_number(verdict.ledger.memory.get(part, 0.0)) for part in ("weights", "optimizer"))
    # An uneven load adds rows of tokens, so at most this much; only plans between the two need to be judged again.
    at_most = state + UNEVEN * (hbm_bytes - state)
    if job.experts and hbm_bytes <= allowed < at_most:
        hbm_bytes = first_number(judge_one(replace(job, stack=uneven(job.stack)), plan).hbm_bytes)
    return hbm_bytes <= allowed
