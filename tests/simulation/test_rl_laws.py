"""Laws of a step of reinforcement learning: its tail, samples that are kept, bounded ages, pools that overlap."""

import math

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.generation import starts
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.simulation.rl.run import RunTerms, simulate_run
from dragonscale.simulation.rl.step import BETWEEN, ROLLOUT, TRAINER, Phase, RlPlan, exposed, judge_step
from dragonscale.simulation.rl.work import packed_job, work_of
from dragonscale.training.plan.plan import Plan

HALF = parse_slice("h100:4")
MODEL = load_model("qwen2.5-1.5b")
SECONDS = some.floats(0.0, 1e4)


def normal_tail(count):
    """The mean of the largest of so many standard normal draws (Blom 1958)."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


@given(some.floats(50, 2000), some.floats(0.1, 1.2), some.integers(8, 4096))
def test_the_longest_answer_is_that_of_order_statistics(mean, spread, count):
    lengths = AnswerLengths(mean, 10**9, spread)
    expected = lengths.median * math.exp(spread * normal_tail(count))
    # The quantile that is drawn is not the mean of the largest: a tenth of a deviation apart for the fewest answers.
    assert lengths.draw(count)[-1] == pytest.approx(expected, rel=math.expm1(0.1 * spread) + 0.01)


@given(some.integers(1, 40), some.lists(some.integers(1, 500), min_size=1, max_size=80))
def test_a_batch_in_turns_ends_within_the_bounds_of_list_scheduling(room, lengths):
    """No earlier than its longest answer or its tokens over the room, no later than both together (Graham 1969)."""
    tokens = numpy.array(lengths, float)
    begun = starts(tokens, room)
    ends, over = begun + tokens, float((begun + tokens).max())
    least = tokens.sum() / room
    assert max(tokens.max(), least) <= over + 1e-9
    assert over <= least + tokens.max() * (1 - 1 / room) + 1e-9
    together = [int(((begun <= at) & (ends > at)).sum()) for at in begun]
    assert max(together) <= room


@given(SECONDS, SECONDS, SECONDS)
def test_pools_that_overlap_are_never_slower_than_in_turns(rollout, trainer, between):
    phases = [Phase("a", ROLLOUT, rollout, 0.0), Phase("b", TRAINER, trainer, 0.0), Phase("c", BETWEEN, between, 0.0)]
    off, turns = (sum(one.exposed_s for one in exposed(phases, overlapped)) for overlapped in (True, False))
    assert max(rollout, trainer) + between <= off * (1 + 1e-12) <= turns * (1 + 1e-9)


def step_of(mode, ahead, stack, prompts, samples, mean):
    work = work_of(MODEL, "grpo", prompts, samples, 128, AnswerLengths(mean, 2048), 1)
    row, train = framework(stack), Plan(fsdp=4, zero=1, remat="block")
    job = packed_job(work, HALF, "megatron-rl", 4)
    return judge_step(work, RlPlan(mode, row, job, train, ServingPlan(), HALF, ahead))


@pytest.mark.parametrize("stack", ["nemo-rl", "verl", "slime"])
@pytest.mark.parametrize("mean", [100.0, 900.0])
def test_one_step_off_is_never_slower_than_the_same_pools_in_turn(stack, mean):
    off, turns = (step_of(mode, 0.0, stack, 16, 8, mean) for mode in ("one-step-off", "separate"))
    assert off.seconds <= turns.seconds
    assert (off.plan.staleness, turns.plan.staleness) == (1.0, 0.0)


@settings(max_examples=8, deadline=None)
@given(
    some.sampled_from([("one-step-off", 0.0, "nemo-rl"), ("async", 2.0, "nemo-rl"), ("async", 0.5, "verl")]),
    some.integers(4, 12),
    some.integers(2, 8),
    some.integers(0, 10**6),
    some.sampled_from([0.0, 30.0]),
)
def test_samples_are_kept_and_ages_bounded_over_any_run(way, prompts, samples, seed, mtbf):
    mode, ahead, stack = way
    step = step_of(mode, ahead, stack, prompts, samples, 300.0)
    assume(step.fits)
    run = simulate_run(step, RunTerms(steps=12, seed=seed, mtbf_s=mtbf))
    assert run.begun == run.trained + run.waiting + run.in_flight
    assert run.trained == len(run.staleness) == prompts * samples * len(run.queued)
    if step.plan.framework.strict_age or mode == "one-step-off":
        assert max(run.staleness) <= max(math.ceil(ahead), 1)
    else:
        assert run.begun - run.trained <= math.ceil((1 + ahead) * prompts * samples)
