"""Kinds of plan that somebody has published go first; others must gain what predictions are wrong by."""

from dataclasses import replace

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import stacks
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.run_kinds import (
    GENERATIONS,
    SPLITS,
    UNPUBLISHED_GAINS,
    RunKind,
    family,
    kind_of,
    needed_gains,
    published_kinds,
    published_limits,
    split_codes,
    split_of,
)
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space


def job(on: str, stack: str = "megatron-core", model: str = "llama3-70b", batch: int = 1024, seq: int = 8192) -> Job:
    return make_job(load_model(model), parse_slice(on), batch, seq, stack)


def gain(here: Job, plan: str, error: float = 0.07) -> float:
    one = parse_plan(plan)
    return float(needed_gains(here, vars(one), one.zero, error, one.dtype))


def test_splits_of_many_meshes_are_those_of_each() -> None:
    texts = ["fsdp8", "pp2 fsdp4 z1", "fsdp2 tp4 z2", "cp8 z3", "ep8 z1", "dp8 z0", "pp2 tp2 ep2 z1", "tp8 z3"]
    plans = [parse_plan(text) for text in texts]
    for zero in (1, 3):
        numbers = {name: numpy.array([getattr(one, name) for one in plans]) for name in vars(plans[0])}
        found = [SPLITS[code] for code in split_codes(numbers, zero)]
        assert found[0] == ("fsdp" if zero == 3 else "replicas")
        assert found[1] == "pipeline"
        assert found[7] == "replicas+tp"  # nothing to share state with
    assert [split_of(one) for one in plans[3:6]] == ["fsdp+cp", "replicas+ep", "replicas"]


def test_every_published_kind_can_be_a_kind_of_plan() -> None:
    for name, row in published_kinds():
        model, chips, stack, split = name.split()
        assert model in ("dense", "moe")
        assert chips in GENERATIONS
        assert stack in {family(one) for one in stacks()}
        assert split in SPLITS
        assert (row["pipe"] > 1) == split.startswith("pipeline")
    assert kind_of(job("h100:64"), parse_plan("pp4 fsdp4 tp4 z1 nvfp4")) == RunKind(
        "h100", "megatron-core", False, "pipeline+tp", "fp4"
    )


@pytest.mark.parametrize(
    ("on", "plan", "published"),
    [
        ("h100:1024", "pp4 fsdp64 tp4 z1", True),
        ("h100:1024", "fsdp512 tp2 z3", False),
        ("h100:1024", "fsdp1024 z3", False),  # eight GPUs were published
        ("h100:32", "fsdp32 z3", False),  # in fp8 alone
        ("h100:32", "fsdp32 z3 fp8", True),
        ("h100:1024", "pp16 fsdp16 tp4 z1", True),
        ("h100:1024", "pp32 fsdp8 tp4 z1", False),
        ("gb200:64", "fsdp64 z3", True),
        ("gb200:2304", "fsdp2304 z3", False),
        ("l40s:512", "pp8 fsdp32 tp2 z1", True),  # as on other GPUs: nothing is published there
        ("l40s:512", "pp8 fsdp64 z1", False),  # sixty-four GPUs, without TP
        ("l40s:512", "fsdp256 tp2 z3", True),
    ],
)
def test_what_is_published(on: str, plan: str, published: bool) -> None:
    assert (gain(job(on), plan) == 0) == published


def test_what_is_not_published_must_gain_the_error_within_limits() -> None:
    here = job("h100:1024")
    assert [gain(here, "fsdp512 tp2 z3", error) for error in (0.01, 0.07, 0.3)] == [0.05, 0.07, 0.10]
    assert UNPUBLISHED_GAINS == (0.05, 0.10)


def test_a_known_kind_taken_further_must_gain_less_than_an_unknown_one() -> None:
    """Runs of MoE models on Hopper with a pipeline, TP and EP are known in fp8 up to eight stages; none with FSDP."""
    here = replace(job("h100:1024"), model=load_model("deepseek-v3"))
    plans = ("pp8 fsdp8 ep8 tp2 z1 fp8", "pp16 fsdp4 ep8 tp2 z1 fp8", "pp8 fsdp8 ep8 tp2 z1", "dp2 fsdp256 ep2 z3 fp8")
    assert [gain(here, plan, 0.3) for plan in plans] == [0.0, 0.05, 0.05, 0.10]


def test_context_at_short_sequences_must_gain_the_error_where_none_is_published() -> None:
    assert gain(job("h100:64"), "pp4 fsdp2 tp4 cp2 z1", 0.2) == 0.0
    assert gain(job("h100:64", seq=4096), "pp4 fsdp2 tp4 cp2 z1", 0.2) == 0.2
    tpu = job("v5p:4x4x4", "maxtext")
    assert gain(tpu, "fsdp32 cp2 z3", 0.2) == 0.2
    assert gain(job("v5p:4x4x4", "maxtext", seq=16384), "fsdp32 cp2 z3", 0.2) == 0.0
    assert gain(tpu, "fsdp64 z3", 0.2) == 0.0


def test_a_stack_of_which_nothing_is_published_has_no_rare_plans() -> None:
    here = job("h100:64", "dragonscale")
    assert numpy.isinf(published_limits(kind_of(here)).chips).all()
    assert gain(here, "fsdp16 tp4 z3") == gain(here, "pp32 fsdp2 z1") == 0
    assert gain(here, "fsdp32 cp2 z3", 0.2) == 0.2
    assert gain(job("h100:512", "generic"), "fsdp512 z3") == 0  # llm-foundry's


def test_a_published_kind_of_plan_goes_first() -> None:
    """Pipelines of MaxText on TPUs, which nobody has published, are quicker here by less than they must gain."""
    here = job("v5e:16x16*16", "maxtext", "llama2-70b", 4096, 2048)
    space = Space(
        remat=("none", "selective"), zero=(3,), schedule=("interleaved",), fixed={"context": 1, "microbatch": 1}
    )
    best, fastest = (search(here, space, 1, slack=slack).best[0] for slack in (0.01, 0.0))
    assert fastest.plan.pipe > 1
    assert best.plan.pipe == 1
    assert fastest.seconds < best.seconds < fastest.seconds * (1 + job_error(here)) * 1.01


def test_sharded_weights_and_whole_ones_are_different_kinds() -> None:
    """Of Megatron on A100s data parallelism was published, and no FSDP."""
    here = job("a100:64", model="llama3-8b", batch=512)
    space = Space(remat=("block",), zero=(1, 3), fixed={"context": 1, "pipe": 1, "tensor": 1, "data": 1})
    found = search(here, space, 4)
    assert found.best[0].plan.zero == 1
    assert search(here, replace(space, fixed=space.fixed | {"fsdp": 64}, zero=(3,)), 1).best[0].plan.zero == 3


def test_state_sharded_over_experts_or_context_is_fsdp_too() -> None:
    splits = [split_of(parse_plan(text)) for text in ("ep8 z3", "cp8 z2", "ep8 z1")]
    assert splits == ["fsdp+ep", "fsdp+cp", "replicas+ep"]
