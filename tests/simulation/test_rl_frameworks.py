"""What frameworks do differently: Ray's workers, casts, interrupted answers, wide passes, modes that only rows have."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.rl.frameworks import framework, tables, transfer_seconds
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.simulation.rl.step import Judge, RlPlan, deployed, judge_step, reading_seconds
from dragonscale.simulation.rl.ways import Choices, Planner, best_engine, search_steps
from dragonscale.simulation.rl.work import packed_job, work_of
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan import Plan

WORK = work_of(load_model("llama3-8b"), "grpo", 32, 8, 256, AnswerLengths(800.0, 2048), 1)
HALF = parse_slice("h100:8")
TRAIN = Plan(fsdp=8, zero=3, remat="block")


def plan(mode="one-step-off", stack="nemo-rl", tensor=4, dtype="bf16", ahead=0.0, trainer="hf-fsdp", **changes):
    rollout = ServingPlan(tensor=tensor, weights=dtype, compute=dtype)
    job = packed_job(WORK, HALF, trainer, 8)
    return RlPlan(mode, replace_struct(framework(stack), **changes), job, TRAIN, rollout, HALF, ahead)


def read(one):
    return reading_seconds(one.job, one, judge_one(one.job, one.train), Judge())


def test_an_engine_of_rays_workers_does_not_schedule_ahead():
    late = tables()["executor"]["step_s"]
    assert deployed(plan(tensor=4)).engine.host.step_s == late == 4e-3
    assert deployed(plan(tensor=1)).engine.host.step_s < late
    assert deployed(plan(stack="verl")).engine.host.step_s < late
    slower = judge_step(WORK, plan()).phase("generation") - judge_step(WORK, plan(ray=False)).phase("generation")
    assert slower == pytest.approx(2048 * (late - 5e-5), rel=0.01)  # a step for each token of the longest answer


def test_beyond_eight_chips_an_all_reduce_is_the_librarys():
    wide = replace(plan(tensor=16), pool=parse_slice("gb200:16"))
    assert deployed(wide).engine.collectives.library == ""
    assert deployed(replace(wide, rollout=ServingPlan(tensor=8))).engine.collectives.library == "vllm_graph"


def test_weights_that_the_engine_casts_travel_as_the_trainer_has_them():
    sent = {dtype: judge_step(WORK, plan(dtype=dtype)).phase("weight transfer") for dtype in ("bf16", "fp8")}
    assert sent["fp8"] == sent["bf16"]
    cast = judge_step(WORK, plan(dtype="fp8", engine_casts=False)).phase("weight transfer")
    assert cast < sent["fp8"]


def test_interrupted_answers_are_prefilled_again():
    again = judge_step(WORK, plan("async", "verl", ahead=1.0))
    kept = judge_step(WORK, plan("async", "verl", ahead=1.0, prefills_again=False))
    assert again.generation.prefill_s > 1.5 * kept.generation.prefill_s
    assert again.phase("generation") > kept.phase("generation")
    # nothing goes on from a batch that is drained
    drained = [judge_step(WORK, plan(stack="verl", prefills_again=one)).seconds for one in (True, False)]
    assert drained[0] == drained[1]


def test_passes_that_only_read_gather_weights_less_often():
    many = replace(plan(), job=replace(packed_job(WORK, HALF, "hf-fsdp", 8), batch=64))
    once = replace(many, framework=replace_struct(many.framework, read_batch=1))
    assert read(many) < 0.95 * read(once)
    kept = replace(many, train=replace(TRAIN, zero=1))
    assert read(kept) == read(replace(kept, framework=once.framework))


@pytest.mark.parametrize("method", ["broadcast", "delta"])
def test_a_smaller_model_takes_less_in_proportion_below_the_smallest_published(method):
    least = tables()["methods"][method]["least"]
    at, half, tenth = (transfer_seconds(method, part * least, 1e12, 64) for part in (1.0, 0.5, 0.1))
    assert (half, tenth) == pytest.approx((at / 2, at / 10))
    assert transfer_seconds(method, 1.5 * least, 1e12, 64) > at


def test_two_pools_in_turns_take_their_sum_and_one_step_off_is_never_slower():
    turns, off = judge_step(WORK, plan("separate")), judge_step(WORK, plan("one-step-off"))
    assert turns.seconds == pytest.approx(sum(phase.seconds for phase in turns.phases))
    assert (turns.plan.chips, turns.plan.staleness, turns.phase("offload")) == (16, 0.0, 0.0)
    assert off.seconds < turns.seconds


def test_answers_that_go_on_on_shared_chips_have_no_tail():
    both = replace(plan("colocated", "verl"), pool=HALF)
    on = replace(both, ahead=1.0)
    assert on.staleness == 1.0
    assert on.chips == both.chips == 8
    assert judge_step(WORK, on).seconds < 0.9 * judge_step(WORK, both).seconds


def test_a_search_keeps_to_what_the_frameworks_trainer_can():
    long = replace(WORK, lengths=AnswerLengths(8000.0, 16384))
    row = replace_struct(framework("verl"), trainers=("verl-fsdp",))
    plans = [
        search_steps(long, HALF, [one], Choices(modes=("colocated",)))[0].plan.train
        for one in (row, replace_struct(row, limits={}))
    ]
    assert (plans[0].tensor, plans[0].zero) == (1, 3)
    assert plans[0].context == 1 or plans[0].context_by == "ulysses"
    assert (plans[1].tensor, plans[1].zero, plans[1].context_by) != (1, 3, "ulysses")


def test_megatron_of_a_framework_has_its_distributed_optimizer():
    found = search_steps(WORK, HALF, [framework("nemo-rl")], Choices(modes=("colocated",)))
    assert {step.plan.train.zero for step in found} == {1}


@pytest.mark.parametrize(("model", "width"), [("deepseek-v3", 32), ("kimi-k2", 64)])
def test_an_engine_is_no_wider_than_published_ones_unless_nothing_else_fits(model, width):
    pool = parse_slice("h100:64")
    work = work_of(load_model(model), "grpo", 64, 16, 128, AnswerLengths(800.0, 1536), 1)
    asked = RlPlan("colocated", framework("nemo-rl"), packed_job(work, pool, "megatron-rl", 8), Plan(), None, pool)
    judge = Planner()
    found = best_engine(work, asked, "bf16", judge)
    assert found.rollout.tensor == width
    wider = replace(found, rollout=replace(found.rollout, tensor=64))
    assert judge.rollout(work, wider).seconds <= judge.rollout(work, found).seconds
