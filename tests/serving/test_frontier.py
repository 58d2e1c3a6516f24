"""Configurations of a model: what is judged together equals what is judged alone, nobody on the frontier is beaten, the
best meets what was asked for."""

from dataclasses import replace

import numpy
import pytest

from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.serving.engine.checkpoint import legal_formats
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.serving.space.bands import ServedKind, band_of
from dragonscale.serving.space.frontier import Ask, Config, explore, judge
from dragonscale.serving.space.ranking import best, frontier, load_for, replicas_for
from dragonscale.serving.space.space import Formats, Lot, parts_of, slices_of, splits, stack
from dragonscale.serving.steady.narrowing import NEARLY
from dragonscale.serving.steady.prefix import rooms
from dragonscale.serving.steady.speculation import Draft
from dragonscale.serving.steady.steady import Habits, PromptTimes, SteadyLoop, closed_loop, steady_state

MODEL = load_model("llama3-70b")
ASK = Ask(2048, 512)
FP8 = Formats("fp8", "fp8", "fp8")
ENGINE = load_engine("generic")


@pytest.fixture(scope="module")
def configs() -> list[Config]:
    return explore(MODEL, slices_of(load_chip("h100"), 16), [FP8, Formats()], ENGINE, ASK)


def test_configurations_are_their_deployments(configs: list[Config]) -> None:
    for one in configs[:: max(len(configs) // 25, 1)]:
        deployment = Deployment(MODEL, one.piece, one.plan, ENGINE)
        step = iteration_cost(deployment, decode(one.batch, ASK.context))
        assert one.decode_s == pytest.approx(float(numpy.ravel(step.expected)[0]), rel=1e-9)
        assert one.lower_s <= one.decode_s
        room = capacity(deployment)
        assert one.hbm_bytes == pytest.approx(float(numpy.ravel(room.held(one.batch, 2560))[0]), rel=1e-9)
        assert one.hbm_bytes <= numpy.ravel(room.usable)[0] * (1 + 1e-9)
        assert one.batch <= one.most
        assert one.chips == one.piece.chips


def test_nobody_on_the_frontier_is_beaten(configs: list[Config]) -> None:
    found = frontier(configs)
    assert 3 < len(found) < len(configs)
    for one in found:
        assert not any(
            other.state.tpot < one.state.tpot and other.tokens_per_chip > one.tokens_per_chip for other in configs
        )
    speeds = [float(one.state.tpot) for one in found]
    assert speeds == sorted(speeds)


def test_what_counts_less_is_ranked_lower(configs: list[Config]) -> None:
    """A part of the tokens is as much dearer: with a rate by the chips, without one by the token."""

    def doubted(plan: ServingPlan | None, part: float) -> list[Config]:
        return [replace(one, counted=part) if plan in (None, one.plan) else one for one in configs]

    for ask in (ASK, replace(ASK, rate=20.0)):
        first, *others = best(configs, ask, 3)
        again = best(doubted(first.plan, 0.3), ask, 3)
        assert again[0] in others
        assert first.plan not in [one.plan for one in again[:1]]
    assert [one.place for one in best(doubted(None, 0.5), ASK, 3)] == [one.place for one in best(configs, ASK, 3)]
    last = frontier(configs)[-1]
    assert last.place not in [one.place for one in frontier(doubted(last.plan, 0.01))]
    rate = replace(ASK, rate=200.0)
    assert replicas_for(replace(last, counted=0.5), rate) == pytest.approx(2 * replicas_for(last, rate), abs=1)


def test_of_what_costs_nearly_the_same_the_smallest_comes_first(configs: list[Config]) -> None:
    """A tenth more for fewer chips; with a rate what the whole fleet costs decides."""
    large = max(configs, key=lambda one: one.chips)
    state = large.state
    for dearer, first in ((1.05, True), (1.2, False)):
        tokens = large.tokens_per_chip / dearer
        plan = replace(large.plan, tensor=1, data=1, pipe=1, expert=1, context=1, width=1)
        made = replace(state, requests=tokens / float(state.output))
        small = replace(large, plan=plan, state=made)
        assert small.cost == pytest.approx(dearer * large.cost)
        assert (best([large, small], ASK, 2)[0] is small) == first
        assert {one.chips for one in best([large, small], ASK, 2)} == {1, large.chips}


def test_experts_are_dealt_out_where_that_gains_more_than_the_band(configs: list[Config]) -> None:
    """Tensor parallelism of the same chips stands first while its fast end reaches the other's tokens."""
    plain = next(one for one in configs if one.plan.tensor == one.chips == 8 and one.meets)
    high = band_of(ServedKind("h100", plain.engine, True), "tokens").high
    dealt, both = (replace(plain.plan, tensor=1, data=8, expert=8), replace(plain.plan, expert=8))
    for gain, first in ((0.9 * high, True), (1.3 * high, False)):
        made = replace(plain.state, requests=float(plain.state.requests) * (1 + gain))
        for plan in (dealt, both):
            other = replace(plain, plan=plan, state=made)
            assert (best([plain, other], ASK, 2)[0] is plain) == first
    made = replace(plain.state, requests=float(plain.state.requests) * (1 + high / 2))
    split = replace(plain, plan=dealt, state=made)
    narrow = replace(plain, plan=replace(plain.plan, weights="int4"))
    for other in (replace(plain, meets=False), narrow, replace(plain, plan=replace(both, tensor=8))):
        assert best([split, other], ASK, 2)[0] is split


def test_the_best_meets_the_targets_at_the_least_cost() -> None:
    ask = replace(ASK, ttft=0.5, tpot=0.03)
    found = explore(MODEL, slices_of(load_chip("h100"), 16), [FP8], ENGINE, ask)
    first = best(found, ask)[0]
    assert first.meets
    assert first.state.tpot <= 0.03
    assert first.state.ttft <= 0.5
    costs = [one.usd_per_mtok for one in found if one.meets and one.usd_per_mtok is not None]
    assert first.usd_per_mtok <= min(costs) / (1 - NEARLY)  # of the cheapest, or a smaller batch that makes as many
    rate = replace(ask, rate=20.0)
    fleet = best(found, rate)[0]
    assert replicas_for(fleet, rate) * float(fleet.state.requests) * load_for(fleet, rate) >= 20.0 * (1 - 1e-9)
    assert replicas_for(fleet, rate) * fleet.chips <= min(
        replicas_for(one, rate) * one.chips for one in found if one.meets
    )
    full = best(found, replace(ASK, ttft=1.0, rate=20.0))[0]
    loads = [load_for(full, replace(ASK, ttft=ttft)) for ttft in (None, float(full.state.ttft) * 1.01, 10.0)]
    assert loads[0] == 0.85
    assert loads[1] <= loads[2] <= 0.97  # looser targets let replicas run fuller
    # the largest batch that meets them is among those judged, whatever the range that is looked at first has
    lot = Lot((first.piece,), stack([first.plan], FP8, first.plan.spread))
    largest = max(one.batch for one in found if (one.piece, one.plan, one.meets) == (first.piece, first.plan, True))
    assert not judge(MODEL, lot, ENGINE, ask, [largest + 1])[0].meets


def test_only_the_batches_asked_for() -> None:
    lot = Lot((parse_slice("h100:8"),), stack(list(splits(MODEL, parse_slice("h100:8")))[:1], FP8, "copy"))
    assert {one.batch for one in judge(MODEL, lot, ENGINE, ASK, [7, 10**6])} == {7}
    every = {one.batch for one in judge(MODEL, lot, ENGINE, ASK)}
    assert max(every) == judge(MODEL, lot, ENGINE, ASK)[0].most


def test_drafts_shorten_the_time_per_token_of_small_batches() -> None:
    lot = Lot((parse_slice("h100:8"),), stack(list(splits(MODEL, parse_slice("h100:8")))[:1], FP8, "copy"))
    plain, drafted = (judge(MODEL, lot, ENGINE, ASK, [1], draft)[0] for draft in (None, Draft(0.8, part=0.02)))
    assert drafted.drafts > 0
    assert drafted.state.tpot < plain.state.tpot * 0.6
    assert drafted.decode_s == plain.decode_s
    useless = judge(MODEL, lot, ENGINE, ASK, [1], Draft(0.0, part=0.02))[0]
    assert useless.drafts == 0
    assert useless.state.tpot == pytest.approx(plain.state.tpot)


def test_a_cached_prefix_shortens_the_first_token() -> None:
    lot = Lot((parse_slice("h100:8"),), stack(list(splits(MODEL, parse_slice("h100:8")))[:1], FP8, "copy"))
    whole, half = (judge(MODEL, lot, ENGINE, replace(ASK, cached=part), [16])[0] for part in (0.0, 0.5))
    assert half.state.ttft < whole.state.ttft
    assert half.decode_s == whole.decode_s


@pytest.mark.parametrize("wrong", [(0, 5, 0.0), (5, 0, 0.0), (5, 5, 1.0), (5, 5, -0.1)])
def test_requests_that_are_none(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(InputError):
        Ask(wrong[0], wrong[1], cached=wrong[2])


def test_tokens_cost_what_their_time_costs(configs: list[Config]) -> None:
    for one in configs[::40]:
        split = one.split_cost(ASK)
        assert split is not None
        assert one.usd_per_mtok is not None
        request = split[0] * ASK.prompt + split[1] * (ASK.output - 1)
        assert request == pytest.approx(one.usd_per_mtok * ASK.output)


def test_parts_of_a_slice() -> None:
    assert [str(part) for part in parts_of(parse_slice("h100:8"))] == ["h100:1", "h100:2", "h100:4", "h100:8"]
    assert [str(part) for part in parts_of(parse_slice("v5p:4x4x4"))][-1] == "v5p:4x4x4"
    for part in parts_of(parse_slice("v6e:4x8")):
        assert 32 % part.chips == 0


def test_every_chip_has_formats_it_can_compute_in() -> None:
    for name in ("v2", "v5e", "h100", "b200", "mi355x"):
        chip = load_chip(name)
        for formats in legal_formats("generic", chip, MODEL):
            assert chip.peak(formats.compute.removeprefix("nv")) > 0


def test_one_request_meets_nobody_and_more_share_the_replica(configs: list[Config]) -> None:
    for one in configs[::7]:
        state = one.state
        assert state.requests * state.latency == pytest.approx(one.batch, rel=2e-3)  # Little's law
        assert 0 <= state.met <= one.batch - 1
        if one.batch == 1:
            assert state.tpot == one.decode_s
            assert state.waiting + state.under_way < 1e-9
            assert state.ttft == pytest.approx(ENGINE.host.front_s(ASK.prompt) + one.prefill_s)


def test_prompts_that_fill_every_iteration_are_a_queue() -> None:
    """Beside decoding, with more clients than iterations can prefill, all others wait: the rate is the prefill's,
    decoding goes at its pace."""
    ones, keep = numpy.ones(1), {"alone": numpy.full(1, 0.5), "plain": numpy.full(1, 0.02), "budgets": numpy.ones(1)}
    prompt = PromptTimes(lambda _count: 0.5 * ones, chunks=ones, together=ones, **keep)
    loop = SteadyLoop(numpy.full(1, 64.0), lambda n: 0.02 + 0 * n, prompt, 33, 0.01, Habits(1.0, True))
    found = closed_loop(loop).state
    assert found.requests[0] == pytest.approx(2.0, rel=1e-6)
    assert found.tpot[0] == pytest.approx(0.5, rel=1e-6)
    assert found.latency[0] * 2.0 == pytest.approx(64, rel=1e-6)


def test_whole_prompts_are_never_below_their_roofline() -> None:
    """All chunks of a long prompt, each with those before it in the cache, against the roofline of the prompt in one
    piece."""
    ask, piece = Ask(65536, 128), parse_slice("h100:8")
    for engine in (load_engine("vllm"), load_engine("sglang")):
        lot = Lot((piece,), stack([parse_serving_plan("tensor=8")], FP8, "copy"))
        one = judge(MODEL, lot, engine, ask, [1])[0]
        whole = iteration_cost(Deployment(MODEL, piece, one.plan, engine), prefill(ask.prompt))
        assert one.chunks == 8
        assert one.chunk_tokens == 8192
        assert one.prefill_s > float(numpy.ravel(whole.roofline)[0])


def test_a_shared_prefix_is_held_once() -> None:
    lot = Lot((parse_slice("h100:8"),), stack([parse_serving_plan("tensor=8")], FP8, "copy"))
    ask = Ask(8192, 256, cached=0.9)
    alone, shared = (judge(MODEL, lot, ENGINE, each)[-1] for each in (replace(ask, cached=0.0), ask))
    assert shared.batch == shared.most == ENGINE.scheduling.max_sequences > 2 * alone.most
    where = rooms(Deployment(MODEL, shared.piece, shared.plan, ENGINE), ask.past, shared.batch, ask.prompt + ask.output)
    assert where.hbm >= 1  # that of the batch at least


def test_one_token_answers_have_no_time_between_tokens() -> None:
    state = steady_state(8, 0.02, 0.1, 0.1, 1)
    assert float(state.requests) == pytest.approx(10.0)
    assert float(state.tpot) == pytest.approx(0.02)
