"""How much of a chip's memory a recommended plan may fill.

A plan that fits by a hair runs out of memory where its peak is more than predicted. `peaks.toml` has, by family of
software, how much more than predicted 19 of 20 measured programs took at most: a plan is recommended while it would
fit with that much more, so that its chance of running out is one in twenty at most. Experts are judged with an uneven
load (`expert_load.UNEVEN`). `--headroom` says otherwise. Fuller plans are listed and marked; given plans are judged as
they are.
"""

from dataclasses import replace
from typing import Any

from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job, Verdict, first, judge_one
from dragonscale.training.plan.expert_load import UNEVEN, uneven
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.run_kinds import family, kind_of

CHANCE = 0.05
"""Of running out of memory, at most."""
EVERY = "all"


def peaks() -> dict[str, dict[str, Any]]:
    """By family of software the runs with a measured peak, and how much more than predicted all but `CHANCE` of them
    took at most."""
    return shipped_table("training.search", "peaks.toml")


def peak_kind(job: Job) -> str:
    """The family whose measured peaks speak for a job."""
    name = family(kind_of(job).stack)
    return name if name in peaks() else EVERY


def headroom(job: Job) -> float:
    """The part of memory that a recommended plan leaves free.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.training.cost.evaluation import make_job
    >>> job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, "megatron-core")
    >>> 0.05 < headroom(job) < 0.12, headroom(replace(job, headroom=0.2))
    (True, 0.2)
    """
    return 1 - 1 / (1 + peaks()[peak_kind(job)]["over"]) if job.headroom is None else job.headroom


def room_bytes(job: Job) -> float:
    """Bytes of a chip that a recommended plan may fill."""
    return (1 - headroom(job)) * job.slice.chip.visible


def headroom_text(job: Job) -> str:
    """Why that much is left free, in words."""
    free = f"{headroom(job):.0%} is left free"
    if job.headroom is not None:
        return f"{free} (--headroom)"
    kind = peak_kind(job)
    runs = f"the {peaks()[kind]['runs']} measured runs{'' if kind == EVERY else f' of {kind}'}"
    return f"{free}: 19 of 20 of {runs} took no more beyond what was predicted (--headroom)"


def leaves_room(job: Job, plan: Plan, verdict: Verdict) -> bool:
    """Whether a judged plan leaves that much free, with an uneven load of experts too."""
    held, room = first(verdict.hbm_bytes), room_bytes(job)
    state = sum(first(verdict.ledger.memory.get(part, 0.0)) for part in ("weights", "optimizer"))
    if job.experts and held <= room < state + UNEVEN * (held - state):  # otherwise no load makes a difference
        held = first(judge_one(replace(job, stack=uneven(job.stack)), plan).hbm_bytes)
    return held <= room
