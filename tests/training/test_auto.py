"""The stacks that are weighed where none is named, and which of them is taken."""

from dataclasses import replace

import pytest

from dragonscale.commands.train.plans import plan_report
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.cost.evaluation import judge_one, make_job, usual_jobs
from dragonscale.training.plan.auto import auto_choice, auto_choices
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import change, stacks
from dragonscale.training.search.legal import trains_in
from dragonscale.training.search.production_runs import in_production
from dragonscale.training.search.search import Found
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import (
    FULL,
    ROOMY,
    TIE_TOLERANCE,
    TIGHT,
    StackSearch,
    job_for,
    preferred,
    search_stacks,
)
from dragonscale.training.search.stack_search import _outcome as steps_of


def test_what_a_trainer_builds_with_its_vision_encoder_alone_is_not_called_unknown_to_it() -> None:
    text = load_model("qwen2.5-7b")
    pictures = replace(text, config={**text.config, "model_type": "qwen2_5_vl"})
    why = auto_choice(parse_slice("h100:8"), pictures).why
    assert "Megatron-LM and GPT-NeoX do not build qwen2_5_vl models" in why
    assert "Megatron-Bridge builds qwen2_5_vl models only with their vision encoder" in why


@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "deepseek-v3"])
def test_the_stacks_of_every_chip_train_on_it(chip: str, model: str) -> None:
    known = load_chip(chip)
    choice = auto_choice(parse_slice(f"{chip}:{known.default_slice}"), load_model(model))
    assert all(trains_in(known, rules(name, family(known))) for name in choice.stacks)


def test_the_table_names_known_stacks_with_reasons() -> None:
    assert {name for one in auto_choices() for name in one.stacks} <= set(stacks())
    assert all(one.why and (one.source or one.stacks == ("generic",)) for one in auto_choices())


@pytest.mark.parametrize(
    ("on", "model", "expected"),
    [
        ("v5p:8x8x8", "llama3-70b", ["maxtext"]),
        ("h100:8", "llama3-8b", ["torchtitan", "megatron-lm"]),
        ("h100:16384", "llama3-405b", ["torchtitan", "megatron-lm"]),
        ("h800:2048", "deepseek-v3", ["megatron-lm"]),
        ("b200:64", "deepseek-v3", ["megatron-lm"]),
        ("b300:64", "deepseek-v3", ["megatron-lm"]),
        ("gb200:64", "deepseek-v3", ["megatron-bridge"]),
        ("gb200:64", "llama3-70b", ["megatron-lm"]),
        ("a100:64", "llama3-8b", ["torchtitan", "megatron-lm"]),
        ("v100:64", "gpt2-xl", ["megatron-2021"]),
        ("mi300x:8", "llama3-8b", ["torchtitan", "megatron-lm"]),
        ("mi300x:64", "mixtral-8x7b", ["megatron-lm"]),
    ],
)
def test_what_people_run(on: str, model: str, expected: list[str]) -> None:
    job = make_job(load_model(model), parse_slice(on), 64, 4096, "auto")
    assert [one.stack.name for one in usual_jobs(job)] == expected
    assert [one.stack.name for one in usual_jobs(replace(job, auto=""))] == expected[:1]  # named


def test_the_usual_stack_stands_until_another_is_clearly_faster() -> None:
    near, far = 1 + TIE_TOLERANCE / 2, 1 + TIE_TOLERANCE * 2
    assert preferred([(0, near), (0, 1.0)], 0.01)[0] == 0
    assert preferred([(0, far), (0, 1.0)], 0.01)[0] == 1
    assert preferred([(0, near), (0, 1.0)], 0.0)[0] == 1  # without slack the fastest
    assert preferred([(1, 0.5), (0, 1.0)], 0.01) == [1, 0]  # room in memory before speed
    assert preferred([(0, 1.2), (0, 1.1), (0, 1.0)], 0.01) == [2, 1, 0]


SMALL = Space(remat=("none",), schedule=("interleaved",), fixed={"microbatch": 1})


def test_the_stack_is_the_same_whatever_the_number_of_chips() -> None:
    """512 chips and 14e9 parameters used to decide; what is predicted does."""
    for chips in (64, 512, 1024):
        job = make_job(load_model("llama3-8b"), parse_slice(f"h100:{chips}"), chips, 8192, "auto")
        own, other = search_stacks(job, SMALL, 1)
        assert (own.job.stack.name, other.job.stack.name) == ("megatron-lm", "torchtitan")
        assert own.best is not None
        assert other.best is not None
        assert own.best.seconds < other.best.seconds / 1.1


def test_a_plan_is_judged_by_the_stack_that_is_best_for_it() -> None:
    """The plan that a search recommends is judged as it was found; a plan that one stack alone runs, by that one."""
    model = load_model("llama3-8b")
    for on in ("h100:64", "a100:64"):
        job = make_job(model, parse_slice(on), 64, 8192, "auto")
        found = search_stacks(job, SMALL, 1)[0]
        assert found.best is not None
        taken = job_for(job, found.best.plan)
        assert taken.stack.name == found.job.stack.name
        assert first_number(judge_one(taken, found.best.plan).seconds) == pytest.approx(found.best.seconds)
    a100 = make_job(model, parse_slice("a100:64"), 64, 8192, "auto")
    assert job_for(a100, parse_plan("pp2 fsdp32 z2 zbv none")).stack.name == "torchtitan"
    assert job_for(a100, parse_plan("fsdp64 z1 none")).stack.name == "megatron-lm"
    assert job_for(replace(a100, auto=""), parse_plan("fsdp64 z1 none")).stack.name == "torchtitan"


def mfu(model: str, chips: int, batch: int, stack: str) -> float:
    job = make_job(load_model(model), parse_slice(f"h100:{chips}"), batch, 8192, stack)
    best = search_stacks(job, SMALL, 1)[0].best
    assert best is not None
    return job.model_flops / (best.seconds * job.slice.flops)


def test_weak_scaling_has_no_cliff() -> None:
    """A sequence for every two GPUs; 4,032 and 4,096 differ in their divisors alone."""
    fewer, more = mfu("llama3-70b", 4032, 2016, "auto"), mfu("llama3-70b", 4096, 2048, "auto")
    assert abs(more - fewer) < 0.03


@pytest.mark.parametrize("stack", ["torchtitan", "megatron-lm"])
def test_weak_scaling_of_one_stack(stack: str) -> None:
    fewer, more = mfu("llama3-8b", 512, 512, stack), mfu("llama3-8b", 576, 576, stack)
    assert abs(more - fewer) < 0.03


def test_large_runs_are_told_as_llama_3_ran() -> None:
    """The slow end of the band is what the same plan takes as Llama 3 and Nemotron-4 ran."""
    model, plan = load_model("llama3-70b"), parse_plan("pp4 fsdp256 tp4 v20 z1 none")
    large = make_job(model, parse_slice("h100:4096"), 2048, 8192, "megatron-lm")
    told = plan_report(large, plan, brief=True)
    there = plan_report(make_job(model, large.slice, 2048, 8192, "megatron-2024"), plan, brief=True)
    assert told.step_high_s == pytest.approx(there.step_s)
    assert there.step_s > 1.15 * told.step_s
    assert f"--stack megatron-2024 this plan takes {render(there.step_s, 's')}, {there.mfu:.1%} MFU" in told.large_runs
    assert not there.large_runs


def test_a_band_reaches_there_without_a_jump() -> None:
    """Half of the doublings from 64 to 1,536 chips, half of the way; sixteen chips more make next to no difference."""
    model = load_model("llama3-70b")

    def slow(replicas: int) -> float:
        plan = parse_plan(f"pp4 fsdp{replicas} tp4 v20 z1 none")
        job = make_job(model, parse_slice(f"h100:{16 * replicas}"), 8 * replicas, 8192, "megatron-lm")
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
        ("h100:64", "llama3-70b", "megatron-lm", "pp4 fsdp4 tp4 z1"),
        ("h100:4096", "llama3-70b", "torchtitan", "fsdp512 tp8"),
        ("h100:4096", "llama3-70b", "megatron-lm", "pp4 fsdp256 tp4 z1 fp8"),
        ("b200:4096", "llama3-70b", "megatron-lm", "pp4 fsdp256 tp4 z1"),
        ("h100:2048", "mixtral-8x7b", "megatron-lm", "fsdp256 ep8 z1"),
    ],
)
def test_other_runs_are_not(on: str, model: str, stack: str, plan: str) -> None:
    assert in_production(make_job(load_model(model), parse_slice(on), 4096, 8192, stack), parse_plan(plan)) is None


def test_a_job_moved_to_other_chips_has_their_stack_and_keeps_what_was_asked() -> None:
    job = make_job(load_model("mixtral-8x7b"), parse_slice("v5p:4x4x4"), 256, 4096, "auto")
    asked = change(job.stack, "experts", skew=job.stack.experts.skew * 1.5)
    (there,) = usual_jobs(replace(job, stack=asked, slice=parse_slice("h100:64")))
    assert there.stack.name == "megatron-lm"
    assert there.stack.experts.skew == pytest.approx(1.5 * stacks()["megatron-lm"].experts.skew)
    named = make_job(job.model, parse_slice("h100:64"), 256, 4096, "maxtext")
    assert [one.stack.name for one in usual_jobs(named)] == ["maxtext"]


@pytest.mark.parametrize(("roomy", "kind"), [(True, ROOMY), (False, TIGHT)])
def test_a_stack_whose_best_plan_is_tight_comes_after_one_with_room(roomy: bool, kind: int) -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, "auto")
    best = Candidate(Plan(fsdp=8), 1.0, 1e9, roomy)
    found = StackSearch(job, Found([best], [], 1, 1, {}, None, 0.0))
    assert steps_of(found, Space()) == (kind, 1.0)
    assert steps_of(StackSearch(job, Found([], [], 1, 0, {}, None, 0.0)), Space()) == (FULL, 0.0)
