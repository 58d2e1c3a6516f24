"""The stack that is taken where none is named."""

from dataclasses import replace

import pytest

from dragonscale.app.train.plans import plan_report
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.units import render
from dragonscale.training.auto import auto_choices, auto_stack, usual_choices
from dragonscale.training.bands import in_production
from dragonscale.training.evaluation import make_job, moved
from dragonscale.training.legal import trains_in
from dragonscale.training.legality import family, rules
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.search import search
from dragonscale.training.space import Space
from dragonscale.training.stack import change, stacks


@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "deepseek-v3"])
def test_the_stack_of_every_chip_trains_on_it(chip: str, model: str) -> None:
    known = load_chip(chip)
    name = auto_stack(parse_slice(f"{chip}:{known.default_slice}"), load_model(model))
    assert trains_in(known, rules(name, family(known)))


def test_the_table_names_known_stacks_with_reasons() -> None:
    assert {one.stack for one in auto_choices()} <= set(stacks())
    assert all(one.why and (one.source or one.stack == "generic") for one in auto_choices())


@pytest.mark.parametrize(
    ("on", "model", "dtype", "expected"),
    [
        ("v5p:8x8x8", "llama3-70b", "bf16", "maxtext"),
        ("h100:8", "llama3-8b", "bf16", "torchtitan"),
        ("h100:8", "llama3-8b", "fp8", "megatron-core"),
        ("h100:16384", "llama3-405b", "bf16", "megatron-core"),
        ("h800:2048", "deepseek-v3", "bf16", "megatron-core"),
        ("gb200:64", "deepseek-v3", "bf16", "megatron-bridge"),
        ("a100:64", "llama3-8b", "bf16", "torchtitan"),
        ("v100:64", "gpt2-xl", "bf16", "megatron-2021"),
        ("mi300x:8", "llama3-8b", "bf16", "torchtitan"),
        ("mi300x:64", "mixtral-8x7b", "bf16", "megatron-core"),
    ],
)
def test_what_people_run(on: str, model: str, dtype: str, expected: str) -> None:
    assert auto_stack(parse_slice(on), load_model(model), dtype) == expected


@pytest.mark.parametrize(
    ("on", "model", "dtype", "expected"),
    [
        ("h100:8", "llama3-8b", "bf16", ["torchtitan", "megatron-core"]),
        ("h100:2048", "llama3-405b", "bf16", ["megatron-core", "torchtitan"]),
        ("a100:64", "llama3-8b", "bf16", ["torchtitan", "megatron-core"]),
        ("mi300x:64", "llama3-70b", "bf16", ["megatron-core", "torchtitan"]),
        ("h100:8", "llama3-8b", "fp8", ["megatron-core"]),
        ("h100:64", "mixtral-8x7b", "bf16", ["megatron-core"]),
        ("gb200:64", "deepseek-v3", "bf16", ["megatron-bridge"]),
        ("v5p:8x8x8", "llama3-70b", "bf16", ["maxtext"]),
        ("v100:64", "gpt2-xl", "bf16", ["megatron-2021"]),
    ],
)
def test_what_else_people_run(on: str, model: str, dtype: str, expected: list[str]) -> None:
    assert [one.stack for one in usual_choices(parse_slice(on), load_model(model), dtype)] == expected


def mfu(model: str, chips: int, batch: int, stack: str) -> float:
    job = make_job(load_model(model), parse_slice(f"h100:{chips}"), batch, 8192, stack)
    space = Space(remat=("none",), schedule=("interleaved",), fixed={"microbatch": 1})
    return job.model_flops / (search(job, space, 1).best[0].seconds * job.slice.flops)


def test_weak_scaling_has_no_cliff() -> None:
    """A sequence for every two GPUs; 4,032 and 4,096 differ in their divisors alone."""
    fewer, more = mfu("llama3-70b", 4032, 2016, "auto"), mfu("llama3-70b", 4096, 2048, "auto")
    assert abs(more - fewer) < 0.03


@pytest.mark.parametrize("stack", ["torchtitan", "megatron-core"])
def test_weak_scaling_of_one_stack(stack: str) -> None:
    fewer, more = mfu("llama3-8b", 512, 512, stack), mfu("llama3-8b", 576, 576, stack)
    assert abs(more - fewer) < 0.03


def test_large_runs_are_told_as_llama_3_ran() -> None:
    """The slow end of the band is what the same plan takes as Llama 3 and Nemotron-4 ran."""
    model, plan = load_model("llama3-70b"), parse_plan("pp4 fsdp256 tp4 v20 z1 none")
    large = make_job(model, parse_slice("h100:4096"), 2048, 8192, "auto")
    told = plan_report(large, plan, brief=True)
    there = plan_report(make_job(model, large.slice, 2048, 8192, "megatron-2024"), plan, brief=True)
    assert told.step_high_s == pytest.approx(there.step_s)
    assert there.step_s > 1.15 * told.step_s
    assert f"--stack megatron-2024 this plan takes {render(there.step_s, 's')}, {there.mfu:.1%} MFU" in told.band
    assert "Nemotron-4" not in there.band


def test_a_band_reaches_there_without_a_jump() -> None:
    """Half of the doublings from 64 to 1,536 chips, half of the way; sixteen chips more make next to no difference."""
    model = load_model("llama3-70b")

    def slow(replicas: int) -> float:
        plan = parse_plan(f"pp4 fsdp{replicas} tp4 v20 z1 none")
        job = make_job(model, parse_slice(f"h100:{16 * replicas}"), 8 * replicas, 8192, "megatron-core")
        told = plan_report(job, plan, brief=True)
        return told.step_high_s / told.step_s

    few, more, most = slow(4), slow(19), slow(96)
    assert few < more < most
    assert more == pytest.approx((few + most) / 2, abs=0.02)
    assert slow(95) == pytest.approx(most, abs=0.005)
    assert slow(5) == pytest.approx(few, abs=0.02)


@pytest.mark.parametrize(
    ("on", "model", "stack", "plan"),
    [
        ("h100:64", "llama3-70b", "megatron-core", "pp4 fsdp4 tp4 z1"),
        ("h100:4096", "llama3-70b", "torchtitan", "fsdp512 tp8"),
        ("h100:4096", "llama3-70b", "megatron-core", "pp4 fsdp256 tp4 z1 fp8"),
        ("b200:4096", "llama3-70b", "megatron-core", "pp4 fsdp256 tp4 z1"),
        ("h100:2048", "mixtral-8x7b", "megatron-core", "fsdp256 ep8 z1"),
    ],
)
def test_other_runs_are_not(on: str, model: str, stack: str, plan: str) -> None:
    assert in_production(make_job(load_model(model), parse_slice(on), 4096, 8192, stack), parse_plan(plan)) is None


def test_a_job_moved_to_other_chips_has_their_stack_and_keeps_what_was_asked() -> None:
    job = make_job(load_model("mixtral-8x7b"), parse_slice("v5p:4x4x4"), 256, 4096, "auto")
    asked = change(job.stack, "experts", skew=job.stack.experts.skew * 1.5)
    there = moved(replace(job, stack=asked), parse_slice("h100:64"))
    assert there.stack.name == "megatron-core"
    assert there.stack.experts.skew == pytest.approx(1.5 * stacks()["megatron-core"].experts.skew)
    named = make_job(job.model, job.slice, 256, 4096, "maxtext")
    assert moved(named, parse_slice("h100:64")).stack.name == "maxtext"
