"""Faster parts, more chips and larger batches never make things worse: of given plans under every kind of stack, and of
the best plan of a search."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.physics.hardware import Chip, parse_slice
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, misfits
from tests.training.plans import DENSE, SPARSE, judged, seconds

ROUNDING = 1 + 1e-9
WIRES = ("levels.node.bandwidth", "levels.leaf.bandwidth", "levels.spine.bandwidth", "ici.link", "dcn.egress", "pcie")
FACTS = ("memory.hbm.bandwidth", "matrix.bf16", "vector.fp32", *WIRES)
ON = {
    "h100:64": ("megatron-core", "megatron-bridge", "torchtitan", "llm-foundry", "nanotron", "deepspeed", "generic"),
    "gb200:64": ("megatron-core", "megatron-bridge"),
    "mi300x:64": ("megatron-core", "torchtitan"),
    "v5p:4x4x4": ("maxtext", "generic"),
}
PLANS = (
    "fsdp=64,zero=3",
    "fsdp=64,zero=2,microbatch=2",
    "data=64,zero=0",
    "data=4,fsdp=16,zero=3",
    "fsdp=8,tensor=8,zero=1",
    "fsdp=16,tensor=4,zero=3",
    "fsdp=8,pipe=8,zero=1",
    "fsdp=4,tensor=4,pipe=4,virtual=4,schedule=interleaved,zero=1",
    "fsdp=16,context=4,zero=3",
    "fsdp=16,context=4,context_by=ring,zero=1",
    "fsdp=8,expert=8,zero=1",
    "fsdp=8,expert=8,zero=3",
    "fsdp=4,expert=8,tensor=2,zero=1",
    "fsdp=2,expert=8,pipe=4,virtual=2,schedule=interleaved,zero=1",
)


def better(chip: Chip, fact: str, factor: float) -> Chip:
    return chip.with_facts(**{fact: chip.facts[fact].value * factor})


@st.composite
def given_plans(draw):
    """A job, and a plan that its stack runs."""
    on = draw(st.sampled_from(sorted(ON)))
    stack, model = draw(st.sampled_from(ON[on])), draw(st.sampled_from((DENSE, SPARSE)))
    sequence, batch = draw(st.sampled_from((512, 2048, 8192))), draw(st.sampled_from((128, 256)))
    job = make_job(model, parse_slice(on), batch, sequence, stack)
    every = (replace(parse_plan(text), remat=remat) for text, remat in itertools.product(PLANS, ("none", "block")))
    return job, draw(st.sampled_from([one for one in every if not illegal(job, one) and not misfits(job, one)]))


@settings(max_examples=30, deadline=None)
@given(given_plans(), st.floats(1.05, 4.0), st.data())
def test_faster_parts_never_slow_a_given_plan(case, factor, data):
    job, plan = case
    fact = data.draw(st.sampled_from([one for one in FACTS if one in job.slice.chip.facts]))
    quick = replace(job, slice=replace(job.slice, chip=better(job.slice.chip, fact, factor)))
    assert seconds(judged(plan, quick)) <= seconds(judged(plan, job)) * ROUNDING


@settings(max_examples=20, deadline=None)
@given(given_plans(), st.sampled_from(("batch", "sequence")))
def test_more_tokens_take_longer_and_a_larger_batch_less_for_each(case, name):
    job, plan = case
    once, twice = (seconds(judged(plan, one)) for one in (job, replace(job, **{name: 2 * getattr(job, name)})))
    assert once <= twice * ROUNDING
    assert name == "sequence" or twice <= 2 * once * ROUNDING


SPACE = Space(remat=("none", "block"), zero=(1, 3), schedule=("1f1b", "interleaved"), fixed={"microbatch": 1})
SEARCHED = [
    (DENSE, "h100:16", "megatron-core"),
    (DENSE, "a100:16", "torchtitan"),
    (DENSE, "v5e:4x4", "maxtext"),
    (SPARSE, "gb200:16", "megatron-bridge"),
]


def best(job: Job, slack: float = 0.0) -> float:
    """The step of the recommended plan; without slack, of the fastest that leaves room."""
    return search(job, SPACE, 1, slack=slack).best[0].seconds


def job_of(model, on: str, stack: str, batch: int = 64) -> Job:
    return make_job(model, parse_slice(on), batch, 4096, stack)


@pytest.mark.parametrize(("model", "on", "stack"), SEARCHED)
def test_faster_parts_and_more_memory_never_slow_the_best_plan(model, on, stack):
    job = job_of(model, on, stack)
    chip, before = job.slice.chip, best(job)
    wires = "ici.link" if "ici.link" in chip.facts else "levels.node.bandwidth"
    for fact in ("memory.hbm.visible", wires):
        quick = replace(job, slice=replace(job.slice, chip=better(chip, fact, 1.3)))
        assert best(quick) <= before * ROUNDING, fact
        assert best(quick, SLACK) <= before * (1 + SLACK) ** 2, fact


@pytest.mark.parametrize(("model", "on", "stack"), SEARCHED)
def test_more_chips_and_larger_batches_never_slow_the_best_plan(model, on, stack):
    more = {"h100:16": "h100:32", "a100:16": "a100:32", "v5e:4x4": "v5e:4x8", "gb200:16": "gb200:32"}[on]
    assert best(job_of(model, more, stack)) <= best(job_of(model, on, stack)) * ROUNDING
    small, large = (best(job_of(model, on, stack, batch)) / batch for batch in (64, 128))
    assert large <= small * ROUNDING
