"""What answers are to a trainer: rows of one answer with padding removed, linear attention padded, Adam on the host."""

import math
from dataclasses import replace

import numpy
import pytest
from msgspec.structs import replace as replace_struct

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.rl.frameworks import framework, tables
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.simulation.rl.step import RlPlan, judge_step
from dragonscale.simulation.rl.ways import Choices, Planner, best_training, search_steps
from dragonscale.simulation.rl.work import FITTING_STEPS, answers_jobs, handed, packed_job, work_of
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan import Plan

PIECE = parse_slice("h100:8")
LENGTHS = AnswerLengths(300.0, 1024)
WORK = work_of(load_model("qwen3-8b"), "grpo", 256, 4, 200, LENGTHS, 2)
LINEAR = replace(WORK, model=load_model("Qwen/Qwen3.5-35B-A3B"))
VERL, NEMO = framework("verl"), framework("nemo-rl")


def rows(count):
    return answers_jobs(WORK, PIECE, "verl-fsdp", Plan(fsdp=8, zero=3, remat="block", microbatch=count))


def test_rows_of_one_answer_have_the_tokens_that_there_are():
    usual, fullest = rows(32)
    assert usual.batch * usual.sequence == pytest.approx(WORK.tokens / 2, rel=0.01)
    assert usual.sequence < fullest.sequence < WORK.longest


def test_the_fullest_microbatch_is_that_of_many_draws():
    """Of a hundred steps' microbatches of 32 random answers, against as many drawn."""
    dice = numpy.random.default_rng(0)
    drawn = dice.choice(LENGTHS.draw(4096), (FITTING_STEPS * WORK.answers // 32, 32)).mean(axis=1)
    assert rows(32)[1].sequence - WORK.prompt == pytest.approx(drawn.max(), rel=0.1)


def test_a_microbatch_of_one_may_be_the_longest_answer_and_larger_ones_are_never_as_full():
    sizes = [rows(count)[1].sequence for count in (1, 4, 16, 64)]
    assert sizes[0] == WORK.longest
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] > WORK.each


def test_memory_is_that_of_the_fullest_microbatch_and_time_that_of_the_usual_one():
    train = Plan(fsdp=8, zero=3, remat="block", microbatch=32)
    usual, fullest = rows(32)
    plan = RlPlan("colocated", VERL, usual, train, ServingPlan(), PIECE, fullest=fullest)
    step, other = judge_step(WORK, plan), judge_step(WORK, replace(plan, fullest=None))
    assert step.seconds == other.seconds
    assert step.train_bytes > other.train_bytes
    long = judge_one(packed_job(replace(WORK, padded=WORK.longest), PIECE, "verl-fsdp", 256), train)
    assert first_number(long.hbm_bytes) > 1.3 * step.train_bytes


def test_verls_loss_holds_two_copies_of_its_logits_in_bf16():
    train = Plan(fsdp=8, zero=3, remat="block", microbatch=8)
    job = rows(8)[0]
    logits = sum(first_number(line.bytes) for line in judge_one(job, train).ledger.held if line.part == "logits")
    assert logits == pytest.approx(8 * job.sequence * WORK.model.vocab * 4, rel=0.05)


@pytest.mark.parametrize(
    ("work", "row", "trainer", "padded"),
    [
        (LINEAR, VERL, "megatron-rl", True),
        (LINEAR, VERL, "verl-fsdp", False),
        (LINEAR, NEMO, "megatron-rl", False),
        (WORK, VERL, "megatron-rl", False),
    ],
)
def test_verls_megatron_pads_linear_attention(work, row, trainer, padded):
    longest = work.prompt + math.ceil(LENGTHS.draw(512)[-1])
    assert handed(work, row, trainer).padded == (longest if padded else 0)


def test_a_padded_update_takes_more_tokens_and_no_packing_by_the_host():
    train = Plan(fsdp=4, tensor=2, zero=1, remat="block")
    plan = RlPlan("colocated", VERL, packed_job(LINEAR, PIECE, "megatron-rl", 4), train, ServingPlan(tensor=2), PIECE)
    padded = replace(plan, job=packed_job(handed(LINEAR, VERL, "megatron-rl"), PIECE, "megatron-rl", 4))
    assert padded.job.tokens > 1.8 * plan.job.tokens
    packs = replace(plan, framework=replace_struct(VERL, pads_linear=()))
    slower = tables()["trainer"]["slower"]
    for one, factor in ((padded, 1.0), (packs, slower)):
        alone = first_number(judge_one(one.job, train).seconds)
        assert judge_step(LINEAR, one).phase("update") == pytest.approx(LINEAR.updates * factor * alone)


def test_adam_works_on_the_host_where_nothing_else_fits():
    large = replace(WORK, model=load_model("llama3-70b"), prompts=32)
    assert best_training(large, PIECE, "megatron-rl", NEMO, Planner()) is None
    found = search_steps(large, PIECE, [NEMO], Choices(("colocated",)))
    assert [(step.plan.train.offload, step.fits) for step in found] == [("optimizer", True)]


def test_answers_beyond_those_trained_on_are_generated_alone():
    plan = RlPlan(
        "one-step-off", NEMO, packed_job(WORK, PIECE, "megatron-rl", 4), Plan(fsdp=8, zero=1), ServingPlan(), PIECE
    )
    once, thrice = judge_step(WORK, plan), judge_step(replace(WORK, oversample=3.0), plan)
    assert 1.3 < thrice.phase("generation") / once.phase("generation") < 3.1
    assert thrice.generation.tokens == pytest.approx(3 * once.generation.tokens, rel=0.02)
    assert thrice.phase("update") == once.phase("update")


def test_frameworks_are_compared_by_the_middle_of_their_bands():
    """The same framework under another name, whose published steps took longer."""
    work = replace(WORK, prompts=32)
    other = replace_struct(NEMO, name="verl")
    asked = Choices(("colocated",))
    found = search_steps(work, PIECE, [other, NEMO], asked)
    assert [step.plan.framework.name for step in found] == ["nemo-rl", "verl"]
    assert found[0].seconds == found[1].seconds
    assert found[0].weighed_s < found[1].weighed_s
    assert found[1].band[1] > found[0].band[1]
    alone = search_steps(work, PIECE, [NEMO], asked)[0]
    assert (alone.seconds, alone.plan.train) == (found[0].seconds, found[0].plan.train)


def test_frameworks_without_published_steps_have_the_widest_band():
    rows = tables()["errors"]
    assert framework("slime").errors.runs == rows["others"]["runs"] == sum(rows[n]["runs"] for n in ("nemo-rl", "verl"))
    assert rows["others"]["low"] == min(row["low"] for row in rows.values())
    assert rows["others"]["high"] == max(row["high"] for row in rows.values())
    assert all(row["low"] <= 0 <= row["middle"] < row["high"] for row in rows.values())
