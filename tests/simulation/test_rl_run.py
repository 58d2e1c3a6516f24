"""A run of many steps of reinforcement learning: it agrees with the planner, and keeps its laws."""

from dataclasses import replace
from itertools import pairwise

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.simulation.rl.run import RunTerms, run_trace, simulate_run
from dragonscale.simulation.rl.step import judge_step
from dragonscale.simulation.rl.ways import Choices, search_steps
from dragonscale.simulation.rl.work import work_of

WORK = work_of(load_model("llama3-8b"), "grpo", 16, 8, 256, AnswerLengths(800.0, 2048), 1)
PIECE = parse_slice("h100:16")
WARM = 8
"""Steps until the queue is as full as it gets."""


@pytest.fixture(scope="module")
def ways():
    modes = ("colocated", "one-step-off", "async")
    found = search_steps(WORK, PIECE, [framework("nemo-rl")], Choices(modes, 2.0, (0.5,)))
    colocated, off, strict = (next(step for step in found if step.plan.mode == mode) for mode in modes)
    ahead = replace(strict.plan, framework=framework("skyrl"), ahead=0.5)
    return {"colocated": colocated, "off": off, "strict": strict, "ahead": judge_step(WORK, ahead)}


@pytest.fixture(scope="module")
def runs(ways):
    return {name: simulate_run(step, RunTerms(steps=40)) for name, step in ways.items()}


def mean(run):
    return float(numpy.mean(run.step_s[WARM:]))


@pytest.mark.parametrize("name", ["colocated", "off", "strict", "ahead"])
def test_planner_and_simulator_agree(ways, runs, name):
    assert mean(runs[name]) == pytest.approx(ways[name].seconds, rel=0.12)


@pytest.mark.parametrize("name", ["colocated", "off", "strict", "ahead"])
def test_no_answer_is_lost_or_trained_on_twice(runs, name):
    run = runs[name]
    assert run.begun == run.trained + run.waiting + run.in_flight
    assert run.trained == len(run.staleness) == 128 * len(run.queued)
    assert len(run.step_s) == 40


def test_weights_are_never_older_than_they_may_be(runs):
    assert set(runs["colocated"].staleness) == {0}
    assert max(runs["off"].staleness) == 1
    assert max(runs["strict"].staleness) == 2
    # others bound how many answers are begun ahead
    assert runs["ahead"].begun - runs["ahead"].trained <= 1.5 * 128


def test_one_step_off_is_never_slower_than_its_own_pools_in_turn(ways, runs):
    phases = [one.seconds for one in ways["off"].phases if one.name != "idle"]
    assert mean(runs["off"]) < sum(phases)


def test_a_step_takes_its_longest_answer_as_order_statistics_have_it(ways):
    # of n exponential-like draws the longest grows with n; here by the same draws' quantiles
    step = ways["colocated"]
    long = judge_step(replace(WORK, lengths=AnswerLengths(800.0, 16384, spread=1.2)), step.plan)
    run = simulate_run(long, RunTerms(steps=60))
    assert mean(run) == pytest.approx(long.seconds, rel=0.1)
    assert max(run.step_s) > 1.1 * mean(run)


def test_the_same_seed_gives_the_same_run(ways, runs):
    assert simulate_run(ways["off"], RunTerms(steps=40)).step_s == runs["off"].step_s
    assert simulate_run(ways["off"], RunTerms(steps=40, seed=1)).step_s != runs["off"].step_s


def test_failures_lose_tokens_and_no_answer(ways, runs):
    run = simulate_run(ways["ahead"], RunTerms(steps=40, mtbf_s=200.0, restart_s=30.0))
    assert run.failures > 0
    assert run.again > 0
    assert run.begun == run.trained + run.waiting + run.in_flight
    assert mean(run) > mean(runs["ahead"])


def test_fewer_engines_are_slower_from_their_step_on(ways):
    half = ways["ahead"].plan.replicas // 2
    run = simulate_run(ways["ahead"], RunTerms(steps=40, engines=((20, half),)))
    assert numpy.mean(run.step_s[24:]) > 1.1 * numpy.mean(run.step_s[WARM:20])
    assert run.begun == run.trained + run.waiting + run.in_flight


def test_tools_make_a_step_wait_unless_answers_are_begun_ahead(ways, runs):
    work = replace(WORK, turns=4, tool_s=3.0)
    waited = judge_step(work, ways["colocated"].plan)
    assert waited.seconds == pytest.approx(ways["colocated"].seconds + 9.0)
    assert mean(simulate_run(waited, RunTerms(steps=20))) > mean(runs["colocated"]) + 9.0
    assert judge_step(work, ways["ahead"].plan).seconds == pytest.approx(ways["ahead"].seconds)


def test_its_timeline_has_every_step_and_no_overlap_of_the_trainer(runs):
    events = run_trace(runs["off"])["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    assert sum(one["name"].startswith("step ") for one in spans) == 40
    trained = sorted((one["ts"], one["dur"]) for one in spans if one["name"] == "logprob and update")
    assert all(start + took <= later + 1e-3 for (start, took), (later, _) in pairwise(trained))
