"""Experts: an uneven router, their capacity, slices of them, and the axes they are spread over."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.train_question import read_question
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.expert_load import chip_load, dropped_share
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import change
from dragonscale.training.search.search import search
from dragonscale.training.search.space import misfits, parse_space
from tests.training.plans import held, seconds, sent, term

MANY = make_job(load_model("qwen3-30b-a3b"), parse_slice("h100:64"), 256, 8192)
ALL_TO_ALL = "expert all-to-all"


def judged(plan: str, **experts):
    job = replace(MANY, stack=change(MANY.stack, "experts", **experts))
    return judge_one(job, parse_plan(plan))


PLANS = (
    "fsdp=4,expert=16",
    "expert=64,zero=1",
    "fsdp=4,expert=8,tensor=2,etp=true",
    "fsdp=2,expert=4,context=8,fold=context",
)


@pytest.mark.parametrize("plan", PLANS)
def test_more_skew_is_never_faster_and_never_takes_less_memory(plan):
    every = [judged(plan, skew=skew) for skew in (1.0, 1.2, 2.0, 5.0)]
    for quantity in (
        seconds,
        held,
        lambda v: held(v, "activations"),
        lambda v: sent(v, ALL_TO_ALL),
        lambda v: term(v, "experts matmuls"),
    ):
        found = [quantity(verdict) for verdict in every]
        assert found == sorted(found)
        assert found[-1] > found[0]


@pytest.mark.parametrize("plan", PLANS)
def test_capacity_caps_what_skew_costs(plan):
    free, capped, even = judged(plan, skew=4.0), judged(plan, skew=4.0, capacity=1.25, pads=False), judged(plan)
    assert seconds(even) < seconds(capped) < seconds(free)
    assert held(even) < held(capped) < held(free)
    assert seconds(judged(plan, skew=1.1, capacity=2.0, pads=False)) == seconds(judged(plan, skew=1.1))


def test_padding_computes_the_capacity_whatever_is_routed():
    even, padded = judged("expert=64"), judged("expert=64", capacity=1.5)
    rows = [
        sum(line.total("flops") for line in v.ledger.lines if line.kind == "grouped matmul") for v in (even, padded)
    ]
    assert rows[1] == pytest.approx(1.5 * rows[0], rel=1e-3)
    assert seconds(judged("expert=64", capacity=1.5, skew=3.0)) == seconds(padded)


def test_a_chip_with_every_expert_does_not_mind_the_router():
    assert seconds(judged("fsdp=64", skew=4.0)) == pytest.approx(seconds(judged("fsdp=64")))


@given(st.floats(1, 8), st.sampled_from([2, 8, 64, 256]), st.integers(0, 8))
def test_the_load_of_a_chip_lies_between_the_mean_and_the_busiest_expert(skew, experts, power):
    held = min(2**power, experts)
    load = chip_load(skew, experts, held)
    assert 1 - 1e-9 <= load <= skew + 1e-9
    assert load <= chip_load(skew, experts, max(1, held // 2)) + 1e-9


@settings(max_examples=50)
@given(st.floats(1, 10), st.floats(0.2, 10))
def test_dropping_grows_with_skew_and_falls_with_capacity(skew, capacity):
    share = dropped_share(skew, capacity)
    assert 0 <= share < 1
    assert share >= 1 - capacity - 1e-9
    assert dropped_share(skew + 0.5, capacity) >= share - 1e-9
    assert dropped_share(skew, capacity + 0.5) <= share + 1e-9


def test_slicing_experts_sends_fewer_rows_away_and_gathers_them_over_tensor():
    folded, sliced = judged("fsdp=4,expert=8,tensor=2,zero=1"), judged("fsdp=4,expert=8,tensor=2,zero=1,etp=true")
    assert sent(sliced, ALL_TO_ALL) < sent(folded, ALL_TO_ALL)
    assert sent(sliced, "tensor collectives") > sent(folded, "tensor collectives")
    hidden = [
        sum(line.bytes for line in v.ledger.held if line.part == "weights" and "block" in (line.section or ""))
        for v in (folded, sliced)
    ]
    assert hidden[0] == pytest.approx(hidden[1])  # the same experts' weights, dealt or sliced


def test_spreading_experts_over_context_saves_their_state_and_sends_tokens():
    apart, folded = judged("fsdp=8,context=8,zero=0"), judged("fsdp=8,context=8,zero=0,fold=context")
    assert held(folded, "weights") < held(apart, "weights") / 3
    assert sent(apart, ALL_TO_ALL) == 0 < sent(folded, ALL_TO_ALL)


def test_a_search_keeps_experts_whole_unless_told_and_tries_both_ways_to_fold():
    found = search(MANY, parse_space("context=8,microbatch=1,schedule=1f1b,pipe=1,remat=block"), count=400)
    assert {one.plan.fold for one in found.best} == {"tensor", "context"}
    assert not any(one.plan.etp for one in found.best)
    found = search(MANY, parse_space("tensor=2,expert=8,microbatch=1,pipe=1,etp=true"), count=5)
    assert found.best
    for one in found.best:
        assert one.plan.etp
        assert one.seconds == pytest.approx(seconds(judge_one(MANY, one.plan)), rel=1e-9)
        assert one.hbm_bytes == pytest.approx(held(judge_one(MANY, one.plan)), rel=1e-9)


def test_folded_plans_of_a_search_equal_the_same_plans_alone():
    found = search(MANY, parse_space("context=8,fold=context,microbatch=1,remat=block"), count=5)
    assert found.best
    for one in found.best:
        assert one.plan.fold == "context"
        assert one.seconds == pytest.approx(seconds(judge_one(MANY, one.plan)), rel=1e-9)
        assert one.hbm_bytes == pytest.approx(held(judge_one(MANY, one.plan)), rel=1e-9)


@pytest.mark.parametrize(
    ("stack", "plan", "said"),
    [
        ("generic", "expert=32,context=8,fold=context", "128 experts do not divide over the 256 chips"),
        ("maxtext", "expert=2,context=8,fold=context", "maxtext does not spread experts over context"),
    ],
)
def test_experts_that_cannot_be_spread_are_named(stack, plan, said):
    job = Job(MANY.model, MANY.slice, 256, 8192, make_job(MANY.model, MANY.slice, 256, 8192, stack).stack)
    assert any(said in text for text in misfits(job, parse_plan(plan)))


def question(**flags) -> TrainQuestion:
    return TrainQuestion(**{"model": "qwen3-30b-a3b", "on": "h100:64", "batch": "256seq", "seq": "4096"} | flags)


def test_capacity_says_how_many_tokens_it_drops():
    asked = read_question(question(skew=2.0, capacity=1.25))
    assert "14.1% of the rows" in " ".join(asked.notes)
    assert asked.job.on_slice().stack.experts.capacity == 1.25


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"capacity": -1.0}, "--capacity is -1.0"), ({"model": "llama3-8b", "capacity": 1.0}, "has no experts")],
)
def test_a_capacity_without_sense_is_refused(flags, said):
    with pytest.raises(InputError, match=said):
        read_question(question(**flags))
