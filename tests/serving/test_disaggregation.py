"""Pools for prefill and decode: their ratio keeps both busy, caches travel at the wires' pace, and
what pays is told."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.advice import _of_pools  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import next_command, recommended
from dragonscale.commands.serve.recommended import simulate_question
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.serve.variant_blocks import frontier_table
from dragonscale.commands.simulate.simulate_question import read_question as read_simulation
from dragonscale.models import load_model
from dragonscale.models.transformer import kv_bytes_per_token
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.serving.engine.checkpoint import plan_text
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.cache_transfer import CACHE_LATENCY_S, port_bandwidth
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.space import disaggregation
from dragonscale.serving.space.disaggregation import (
    _close,  # pyright: ignore[reportPrivateUsage]
    _trouble,  # pyright: ignore[reportPrivateUsage]
    alone,
    best_pools,
    decode_load,
    decode_step,
    pools,
    prompt_share,
    within_memory,
)
from dragonscale.serving.space.frontier import Ask, Config, explore, judge
from dragonscale.serving.space.space import Formats, Lot, parts_of, stack
from dragonscale.serving.steady.prefix import hit, rooms
from dragonscale.simulation import AtOnce, Fixed, Fleet, OpenLoop, Poisson, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import pool_for

MODEL = load_model("llama3-70b")
ASK = Ask(4096, 256, apart=True)
ENGINE = alone(load_engine("generic"))


@pytest.fixture(scope="module")
def configs() -> list[Config]:
    return explore(MODEL, parts_of(parse_slice("h100:8")), [Formats("fp8", "fp8", "fp8")], ENGINE, ASK)


def test_prompts_run_alone_in_pools() -> None:
    assert not ENGINE.scheduling.beside
    assert load_engine("generic").scheduling.beside
    assert ENGINE.scheduling.scheduler == load_engine("generic").scheduling.scheduler == "chunked"  # cut as before


def test_both_pools_are_busy(configs: list[Config]) -> None:
    found = best_pools(configs, ASK, 10)
    for pair in found:
        feeding = pair.prefills / prompt_share(pair.prefill)
        draining = pair.decodes * pair.decode.batch / (pair.decode.decode_s * (ASK.output - 1))
        assert pair.requests == min(feeding * 0.85, draining * decode_load(pair.decode))
        assert pair.requests >= 0.6 * max(feeding, draining)
        assert pair.chips == pair.prefills * pair.prefill.chips + pair.decodes * pair.decode.chips
    least = min(pair.cost for pair in found)
    near, others = ([pair for pair in found if (pair.cost <= 1.1 * least) == close] for close in (True, False))
    assert found == [*sorted(near, key=_trouble), *sorted(others, key=lambda pair: pair.cost)]


def test_longer_prompts_want_more_prefill(configs: list[Config]) -> None:
    start, end = configs[0], max(configs, key=lambda one: one.batch)
    ratio: list[float] = []
    for times in (1, 4):
        slower = tuple((count, seconds * times) for count, seconds in start.packed)
        pair = pools(replace(start, packed=slower), end, ASK)
        assert pair is not None
        ratio.append(pair.prefills / pair.decodes)
    assert ratio[1] > 2 * ratio[0]


def test_a_cache_travels_through_the_ports_of_its_chips(configs: list[Config]) -> None:
    pair = best_pools(configs, ASK)[0]
    size = ASK.prompt * kv_bytes_per_token(MODEL, "fp8")
    ports = port_bandwidth(load_chip("h100"))
    assert pair.transfer_bytes == pytest.approx(size)
    narrow = min(pair.prefill.chips, pair.decode.chips)
    assert pair.transfer_s == pytest.approx(CACHE_LATENCY_S + size / (ports * narrow))
    assert pair.ttft > pair.prefill.prefill_s + pair.transfer_s


def test_targets_choose_the_pools(configs: list[Config]) -> None:
    loose, tight = best_pools(configs, ASK)[0], best_pools(configs, replace(ASK, tpot=0.02, ttft=0.4))[0]
    assert tight.meets
    assert tight.tpot <= 0.02 < loose.tpot
    assert tight.ttft <= 0.4
    assert tight.tokens_per_chip <= loose.tokens_per_chip
    impossible = best_pools(configs, replace(ASK, tpot=1e-6))
    assert impossible
    assert not impossible[0].meets


def test_pools_at_their_rate_do_what_was_told() -> None:
    """Random arrivals at the rate that pools are said to take: the simulated latencies are the planner's."""
    ask = replace(ASK, ttft=0.8, tpot=0.03)
    found = explore(MODEL, parts_of(parse_slice("h100:8")), [Formats("fp8", "fp8", "fp8")], ENGINE, ask)
    pair = best_pools(found, ask)[0]
    assert pair.meets
    assert pair.prefill_load <= 0.9
    longest = ask.prompt + 2 * ask.output
    decode, prefill = (Deployment(MODEL, one.piece, one.plan, ENGINE) for one in (pair.decode, pair.prefill))
    fleet = Fleet(pool_for(decode, longest, pair.decodes), pool_for(prefill, longest, pair.prefills), overhead_s=0.01)
    traffic = OpenLoop(Poisson(pair.requests), 6000, Fixed(ask.prompt), Uniform(ask.output // 2, ask.output * 3 // 2))
    result = simulate(fleet, traffic, SimulationOptions(warmup=0.2, cooldown=0.1))
    assert result.latency["ttft_s"].mean.value == pytest.approx(pair.ttft, rel=0.1)
    assert result.latency["tpot_s"].mean.value == pytest.approx(pair.tpot, rel=0.1)
    assert result.throughput.requests_per_s == pytest.approx(pair.requests, rel=0.03)


def test_ranks_in_step_prefill_together_and_at_the_asked_rate() -> None:
    """Prompts that come during an iteration of all ranks share the next: the simulated TTFT is the planner's."""
    model, engine, ask = (
        load_model("deepseek-v3"),
        load_engine("sglang"),
        Ask(2048, 128, tpot=0.05, rate=40.0, apart=True),
    )
    lot = Lot(
        (parse_slice("h200:8"),),
        stack([parse_serving_plan("data=8,expert=8")], Formats("fp8", "fp8_block", "bf16"), "copy"),
    )
    pair = best_pools(judge(model, lot, alone(engine), ask), ask)[0]
    assert pair.requests == 40.0
    assert pair.prefill.prefill_s > 1.15 * prompt_share(pair.prefill)
    few = replace(pair, prefills=pair.prefills - 1), replace(pair, decodes=pair.decodes - 1)
    assert all(not one.prefills or not one.decodes or one.requests < 40.0 for one in few)
    decode, prefill = (Deployment(model, one.piece, one.plan, engine) for one in (pair.decode, pair.prefill))
    fleet = Fleet(
        pool_for(decode, 2304, pair.decodes, router="least_loaded"),
        pool_for(prefill, 2304, pair.prefills, router="least_loaded"),
        overhead_s=engine.host.front_s(2048),
    )
    found = simulate(
        fleet, OpenLoop(Poisson(40.0), 3000, Fixed(2048), Fixed(128)), SimulationOptions(warmup=0.2)
    ).latency
    assert found["ttft_s"].mean.value == pytest.approx(pair.ttft, rel=0.1)
    assert found["tpot_s"].mean.value == pytest.approx(pair.tpot, rel=0.05)


BLOCK, FP8 = "weights=fp8,compute=fp8_block", "weights=fp8,compute=fp8,kv=fp8"


@pytest.mark.parametrize(
    ("model", "on", "plan", "engine", "prompt"),
    [
        ("deepseek-v3", "h100:32", f"tensor=1,data=32,expert=32,{BLOCK}", "sglang-ep", 2048),
        ("deepseek-v3", "h200:8", f"tensor=1,data=8,expert=8,{BLOCK}", "sglang", 16384),
        ("llama3-70b", "h100:8", f"tensor=4,pipe=2,{FP8}", "vllm", 2048),
        ("llama3-8b", "h100:1", FP8, "trtllm", 256),
    ],
)
def test_a_prefill_pool_does_as_many_prompts_as_it_is_simulated_to_do(model, on, plan, engine, prompt) -> None:
    """All prompts at once, so that the prefill replica is never idle and its iterations are full."""
    deployment = deploy(model, on, plan, engine)
    own = deployment.plan
    lot = Lot((deployment.piece,), stack([own], Formats(own.weights, own.compute, own.kv, own.attention), own.spread))
    each = prompt_share(judge(deployment.model, lot, alone(deployment.engine), Ask(prompt, 64, apart=True))[0])
    requests = int(16 * max(1 / each, 20))
    fleet = Fleet(pool_for(deployment, prompt + 64, 4), pool_for(deployment, prompt + 64))
    result = simulate(fleet, OpenLoop(AtOnce(), requests, Fixed(prompt), Fixed(2)))
    busy = sum(one.busy_s for one in result.replicas if one.pool == "prefill")
    assert requests / busy == pytest.approx(1 / each, rel=0.05)


def test_wide_prefill_on_h100_is_near_what_was_published() -> None:
    """lmsys.org/blog/2025-05-05-large-scale-ep: DeepSeek-V3 with EP32 on H100s, 54.5k input tokens/s a node, 6,818 per
    GPU."""
    lot = Lot(
        (parse_slice("h100:32"),),
        stack([parse_serving_plan("data=32,expert=32")], Formats("fp8", "fp8_block", "bf16"), "copy"),
    )
    found = judge(load_model("deepseek-v3"), lot, alone(load_engine("sglang-ep")), Ask(2048, 512, apart=True))[0]
    assert 2048 / prompt_share(found) / 32 == pytest.approx(6818, rel=0.15)


def test_decoding_apart_is_never_slower_per_token(configs: list[Config]) -> None:
    for one in configs:
        assert one.state.tpot >= one.decode_s


def test_a_prefix_saves_its_part_of_the_prefill() -> None:
    deployment = deploy("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8,kv=fp8")
    half, most = hit(deployment, 4096, 2048), hit(deployment, 4096, 4000)
    assert 0.3 < half.saved < 0.6 < most.saved
    assert half.from_hbm < half.from_host < half.computed
    assert half.host_pays
    where = rooms(deployment, 2048, 16, 4608, 100e9)
    fuller = rooms(deployment, 2048, 512, 4608, 100e9)
    assert where.hbm > fuller.hbm
    assert where.host == fuller.host == pytest.approx(100e9 / (2048 * 20480))


def test_prompts_of_a_prefill_replica_have_room_in_its_memory(configs: list[Config]) -> None:
    """Pages of one iteration's prompts stay until they are handed over, so a replica with room for two prompts fills
    one at a time."""
    full = replace(configs[0], most=100, packed=((1.0, 0.1), (2.0, 0.15), (8.0, 0.4)))
    assert within_memory(full) == full
    for room, seconds in ((2, 0.1), (3, 0.125), (4, 0.15), (10, 0.275)):
        short = within_memory(replace(full, most=room))
        assert short.packed[-1] == pytest.approx((room / 2, seconds))
        assert prompt_share(short) == pytest.approx(seconds / (room / 2))
    ask = Ask(2048, 512, rate=20.0)
    chips = [
        sum(
            one.prefills * one.prefill.chips
            for one in best_pools([replace(one, packed=full.packed, most=room) for one in configs], ask, 1)
        )
        for room in (2, 100)
    ]
    assert chips[0] > chips[1]


def answered(model: str, where: str, **words: Any) -> ServeReport:
    asked = read_question(ServeQuestion(model, where, **words))
    return answer(asked).came_from(asked, [])


@pytest.fixture(scope="module")
def rack() -> ServeReport:
    asks = {"tpot": "30ms", "engine": "sglang-ep", "disaggregate": True, "accept": "0.8,0.6,0.5"}
    return answered("deepseek-v3", "gb200:72", **asks)


def test_the_frontier_that_is_shown_has_the_recommended_configuration(rack: ServeReport) -> None:
    """Whichever it is, and pools too: a few points of many would leave it out."""
    assert len(rack.frontier) > 8
    for best in rack.frontier:
        table = frontier_table(msgspec.structs.replace(rack, configs=[best]))
        assert len(table.rows) == 8
        assert any(f"{best.output_tokens_per_s_per_chip:,.0f}" in map(str, row) for row in table.rows)


def test_pools_of_many_experts_are_the_best_of_all_where_they_are_asked_for(rack: ServeReport) -> None:
    """What large deployments publish on racks: data-parallel attention, experts over many chips, prefill apart."""
    first, pools = rack.configs[0], rack.disaggregation
    assert pools is not None
    assert pools.pays
    assert first.prefill is not None
    assert first.data * first.tensor == first.expert >= 16
    best = pools.pools[0]
    assert (first.ttft_s, first.tpot_s, first.requests_per_s) == pytest.approx(
        (best.ttft_s, best.tpot_s, best.requests_per_s)
    )
    assert (first.prefill.plan, first.prefill.replicas, first.decodes) == (
        best.prefill.plan,
        best.prefills,
        best.decodes,
    )
    assert first.output_tokens_per_s_per_chip == pytest.approx(best.output_tokens_per_s_per_chip)
    assert first.cost_usd_per_mtok == pytest.approx(best.cost_usd_per_mtok)
    both = (first.cost_usd_per_mtok_input or 0) * 2048 + (first.cost_usd_per_mtok_output or 0) * 511
    assert both == pytest.approx((first.cost_usd_per_mtok or 0) * 512)
    prefills, decodes = first.prefill.replicas * first.prefill.chips, first.decodes * first.data * first.tensor
    assert (first.cost_usd_per_mtok_input or 0) * 2048 / both == pytest.approx(prefills / (prefills + decodes))
    beaten = next(one for one in rack.configs if one.prefill is None)
    assert beaten.output_tokens_per_s_per_chip < first.output_tokens_per_s_per_chip
    assert f"{beaten.output_tokens_per_s_per_chip:,.0f} tok/s per chip" in pools.advice
    saved = recommended(rack.asked, rack)
    assert (str(saved.plan), saved.prefill.plan, saved.replicas) == (first.plan, first.prefill.plan, first.decodes)
    command = next_command(rack.asked, rack)
    assert f"--prefill-plan {first.prefill.plan}" in command
    assert f"--rate {first.requests_per_s:.4g}/s" in command
    text = text_of(rack.sheet(), 120)
    assert f"{first.decodes}x dp{first.data} ep{first.expert} decode" in text


def test_whether_pools_are_worth_it_is_asked_of_the_headline() -> None:
    """The pools that are told are those of the headline, at the load at which they were run; those that it beat are the
    best of them by what they cost."""
    apart = answered("llama3-70b", "h100:16", tpot="20ms", disaggregate=True)
    both = answered("llama3-8b", "h100:8", tpot="12ms", disaggregate=True)
    for report in (apart, both):
        first, found = report.configs[0], report.disaggregation
        assert found is not None
        assert found.pays == (first.prefill is not None)
        assert found.gain is not None
        if first.prefill is not None:
            told, other = found.pools[0], next(one for one in report.configs if one.prefill is None)
            assert (told.ttft_s, told.tpot_s, told.requests_per_s) == (first.ttft_s, first.tpot_s, first.requests_per_s)
            assert told.prefill_load == first.prefill.load
            assert told.ttft_p95_s == first.prefill.ttft_p95_s
            assert found.gain == pytest.approx(other.cost_usd_per_mtok / first.cost_usd_per_mtok)
        else:
            least = min(one.cost_usd_per_mtok for one in found.pools if one.meets_slo)
            assert found.pools[0].cost_usd_per_mtok <= 1.1 * least
            assert found.gain == pytest.approx(first.cost_usd_per_mtok / found.pools[0].cost_usd_per_mtok)
    assert (apart.disaggregation.pays, both.disaggregation.pays) == (True, False)
    assert "a larger batch reads the weights less often per token (compute takes over at " in apart.advice
    assert apart.advice.endswith("Narrower weights speed up prefill and decode (--quantize fp8).")


def test_pools_stay_within_the_slice_that_was_named(rack: ServeReport) -> None:
    for one in rack.configs:
        if one.prefill is not None:
            used = one.prefill.replicas * one.prefill.chips + one.decodes * one.data * one.tensor
            assert used <= one.chips == 72
            rate = one.requests_per_s * 512 / 72  # idle chips of the slice count
            assert one.output_tokens_per_s_per_chip == pytest.approx(rate)


def test_pools_never_take_more_chips_than_were_named(configs: list[Config]) -> None:
    """Two replicas of eight chips do not fit on eight; on a chip without a slice they may take sixteen."""
    whole = [one for one in configs if one.chips == 8]
    assert best_pools(whole, replace(ASK, rented=(("h100", 8),))) == []
    assert {pair.chips for pair in best_pools(whole, replace(ASK, rented=(("h100", 16),)))} == {16}
    assert max(pair.chips for pair in best_pools(whole, ASK, 64)) > 16


def test_why_there_are_no_pools_is_what_stops_them() -> None:
    """Replicas of four chips fit twice on eight, and the engine hands no cache over from a pipeline; on four they do
    not fit."""
    pipes = {"engine": "vllm", "plan": "tensor=2,pipe=2", "disaggregate": True, "batch": "8"}
    refused = answered("llama3.1-8b", "h100:8", **pipes).disaggregation
    assert refused is not None
    assert refused.advice.startswith("Prefill and decode apart do not run: vllm hands caches over by its NixlConnector")
    full = answered("llama3.1-8b", "h100:4", **pipes).disaggregation
    assert full is not None
    assert full.advice == "A replica that prefills and one that decodes do not both fit on h100:4."


def test_a_wide_plan_of_a_narrow_checkpoint_is_run_in_its_own_formats() -> None:
    """`--dtype bf16` of an fp8 checkpoint stays bf16 in the plan that is simulated, saved and printed."""
    asked = read_question(ServeQuestion("deepseek-v3", "a100:32", dtype="bf16", plan="tp32 ep32", batch="8"))
    report = answer(asked, confirm=False).came_from(asked, [])
    run = simulate_question(asked, report.configs[0])
    assert read_simulation(replace(run, requests="10")).job.deployment.plan == report.asked.plan
    assert "weights=bf16" in next_command(asked, report)
    assert plan_text(parse_serving_plan("tp8,weights=fp8,compute=fp8"), MODEL) == "tensor=8,weights=fp8,compute=fp8"


def test_pools_are_told_at_the_batch_that_decodes_and_launched_with_room_for_bursts(rack: ServeReport) -> None:
    first = rack.configs[0]
    decoding = first.requests_per_s * 511 * first.tpot_s / first.decodes
    assert first.places is not None
    assert first.batch == pytest.approx(decoding, rel=0.02)
    assert 1.05 * first.batch < first.places < 2 * first.batch
    assert recommended(rack.asked, rack).batch == first.places
    assert sum(row.expected_s for row in first.terms) == pytest.approx(first.decode_step_s, rel=0.05)
    assert rack.speculation is not None
    assert rack.speculation.batch == first.batch


def test_replicas_that_decode_little_are_launched_with_few_places(configs: list[Config]) -> None:
    pair = best_pools(configs, ASK)[0]
    idle = replace(pair, decode=pair.ladder[-1], offered=pair.requests / 4)
    small = idle.fitted()
    assert small.requests == idle.requests
    assert small.decoding < small.decode.batch < idle.decode.batch / 2


def test_pools_that_are_a_guess_are_sized_by_the_slow_end_of_their_band(configs: list[Config]) -> None:
    ask = replace(ASK, rate=40.0)
    sure, guess = (best_pools([replace(one, counted=part) for one in configs], ask)[0] for part in (1.0, 0.5))
    assert guess.requests == sure.requests == 40.0
    assert guess.chips > 1.7 * sure.chips


def test_the_pool_that_binds_is_named(configs: list[Config]) -> None:
    pair = best_pools(configs, ASK)[0]
    few, many = (replace(pair, prefills=max(1, round(pair.prefills * part))) for part in (0.5, 3))
    assert (few.prefill_binds, many.prefill_binds) == (True, False)
    advice = _of_pools(few, "weight reads", "")
    assert advice.bound.startswith("prefill, at 85% of its rate")
    assert advice.change.startswith("another replica for prefill")
    assert _of_pools(many, "weight reads", "a larger batch.").bound.startswith("decoding")


def test_without_a_slice_pools_stay_in_a_rack_and_few_replicas_are_preferred(
    configs: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(pair.chips for pair in best_pools(configs, ASK, 64)) > 8
    with monkeypatch.context() as patch:
        patch.setattr(disaggregation, "slices_of", lambda _: [parse_slice("h100:8")])
        assert max(pair.chips for pair in best_pools(configs, ASK, 64)) <= 8
    first = replace(best_pools(configs, ASK)[0], prefills=2, offered=1.0)
    more = replace(first, prefills=3)
    for gain, count in ((1.05, 2), (1.2, 1)):
        one = replace(more, offered=gain * more.chips / first.chips)
        assert min(_close([one, first]), key=_trouble).prefills == (first if count == 2 else more).prefills
        assert len(_close([one, first])) == count
    assert _trouble(first) < _trouble(replace(first, prefills=1, decodes=first.decodes + 9))


def test_where_pools_are_looked_at() -> None:
    """As a rung of the ladder, or because they are asked for."""

    def looked(model: str, where: str, **words: Any) -> bool:
        asked = read_question(ServeQuestion(model, where, **words))
        assert asked.searches_pools == bool(words.get("disaggregate"))
        return asked.searches_pools or asked.offers_pools(asked.targets[0][0])

    assert looked("deepseek-v3", "h200:16")
    assert looked("deepseek-v3", "gb200")
    assert looked("deepseek-v3", "h200:16", engine="vllm")
    assert not looked("deepseek-v3", "h200:8")
    assert looked("deepseek-v3", "h200:8", disaggregate=True)
    assert not looked("deepseek-v3", "h200:16", disaggregate=False)
    assert not looked("deepseek-v3", "h200:16", plan="dp16 ep16")
    assert not looked("deepseek-v3", "h200:16", output="1")
    assert not looked("mixtral-8x22b", "h200:16")
    assert not looked("llama3-70b", "h200:16")
    assert not looked("deepseek-v3", "tpu7x:4x4x4")


def test_a_replica_that_only_decodes_takes_the_largest_batch_that_meets_the_target() -> None:
    """Its batch is narrowed down by its own steps, which no prompt interrupts."""
    model, ask = load_model("deepseek-v3"), Ask(2048, 512, tpot=0.03, apart=True)
    plan = parse_serving_plan("data=16,expert=16")
    lot = Lot((parse_slice("h200:16"),), stack([plan], Formats("fp8", "fp8_block", "bf16"), "copy"))
    found = judge(model, lot, alone(load_engine("sglang-ep")), ask)
    met = max((one for one in found if one.meets), key=lambda one: one.batch)
    missed = min((one for one in found if not one.meets), key=lambda one: one.batch)
    assert met.batch < missed.batch <= 1.05 * met.batch
    assert met.state.tpot == pytest.approx(met.decode_s)


@pytest.mark.parametrize("output", [1, 2, 8])
def test_a_decode_pool_takes_a_step_less_than_there_are_tokens(configs: list[Config], output: int) -> None:
    """The prefill makes the first token, and comes with the cache."""
    pair = best_pools(configs, ASK)[0]
    short = replace(pair, ask=replace(pair.ask, output=output))
    steps_per_s = pair.decodes / decode_step(pair.decode)
    assert short.draining == pytest.approx(steps_per_s * pair.decode.batch / max(output - 1, 1))


def test_every_replica_of_a_prefill_pool_has_ports(configs: list[Config]) -> None:
    pair = best_pools(configs, ASK)[0]
    one, three = replace(pair, prefills=1), replace(pair, prefills=3)
    chip = pair.prefill.piece.chip
    assert one.port_bytes_per_s == port_bandwidth(chip) * pair.prefill.chips
    assert three.port_bytes_per_s == 3 * one.port_bytes_per_s
