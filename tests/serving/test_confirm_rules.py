"""The rules by which runs confirm, correct and rank what `dscale serve` recommends; runs are made up, or there are
none."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

import dragonscale as ds
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.config import config_report, fleet_times
from dragonscale.commands.serve.confirm import as_simulated, sizing_job
from dragonscale.commands.serve.recommended import next_command, saved_plan
from dragonscale.commands.serve.serve_question import ServeAsked, read_question
from dragonscale.commands.simulate import simulate_question
from dragonscale.faces.cli.app import find_command
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.physics.kernels.profile import EXPERT_CALLS
from dragonscale.serving.advice.bills import deployed
from dragonscale.serving.advice.pools import search_pools
from dragonscale.serving.advice.search import ranked, search
from dragonscale.serving.engine import plan_file
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.kernel_lines import expert_calls
from dragonscale.serving.space.disaggregation import PooledConfig, as_config
from dragonscale.serving.space.frontier import Config, _draft_loop
from dragonscale.serving.space.ranking import OUTPUTS_VARY, loaded, place_wait, worth
from dragonscale.simulation.fleet_sizing import confirmation
from dragonscale.simulation.fleet_sizing.confirmation import Confirmed, confirm, in_order
from dragonscale.simulation.fleet_sizing.short_run import SizingJob, short_run_size
from dragonscale.simulation.fleet_sizing.simulated_run import Latency, SimulatedRun


def asked_for(**words: Any) -> ServeAsked:
    return read_question(ServeQuestion("llama3-8b", **{"on": "h100:2", "output": "256", **words}))


def made_up(config: Config, meets: bool = True, holds: bool = True, **words: Any) -> Confirmed:
    """A run that says what it is told to; its numbers are the expected ones, or `slower` times those."""
    slower = words.get("slower", 1.0)
    times = {"ttft_s": float(config.state.ttft), "tpot_s": float(config.state.tpot)}
    times |= {f"{name}_s": value / slower for name, value in words.get("reached", {}).items()}
    latency = {name: Latency(*[value * slower] * 10) for name, value in times.items()}
    run = SimulatedRun(1, None, None, 1000, latency, config.tokens_per_chip / slower, meets)
    return Confirmed(replace(config, meets=meets), words.get("replicas"), run, holds)


@pytest.fixture
def trying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Confirmed]]:
    """Configurations confirmed by made-up runs, in the order in which they are tried."""

    def tried(asked: ServeAsked, chosen: list[Config], *runs: dict[str, Any]) -> list[Confirmed]:
        left = iter(runs)

        def held(_job: SizingJob, config: Config) -> Confirmed:
            return made_up(config, **next(left))

        for name in ("confirm_batch", "confirm_fleet", "confirm_pools"):
            monkeypatch.setattr(confirmation, name, held)
        return confirm(sizing_job(asked), chosen)

    return tried


def test_a_plan_that_only_just_meets_gives_way_to_one_that_holds(trying: Callable[..., list[Confirmed]]) -> None:
    asked = asked_for(tpot="30ms")
    first, second = ranked(asked, search(asked))[:2]
    runs = trying(asked, [first, second], {"holds": False}, {})
    assert [one.config.place for one in runs] == [second.place, first.place]


def test_where_none_of_the_first_meets_the_others_are_tried_and_what_missed_comes_last(
    trying: Callable[..., list[Confirmed]],
) -> None:
    asked = asked_for(tpot="30ms", on="h100:8", top=5)
    chosen = ranked(asked, search(asked))
    assert len(chosen) == 4
    missed = {"meets": False, "holds": False}
    runs = trying(asked, chosen, missed, missed, missed, {})
    assert runs[0].config.place == chosen[3].place
    order = in_order(chosen, runs)
    assert [one.meets for one in order] == [True, False, False, False]
    runs = trying(asked, chosen, missed, missed, missed, missed)
    assert [one.config.place for one in runs] == [one.place for one in chosen]  # the first is the nearest
    runs = trying(asked, chosen, missed, {})
    assert [one.meets for one in in_order(chosen, runs)] == [True, True, True, False]


def test_the_replicas_that_a_run_needed_are_paid_for(trying: Callable[..., list[Confirmed]]) -> None:
    asked = asked_for(tpot="30ms", rate="30/s", on="h100")
    first, second = ranked(asked, search(asked))[:2]
    assert worth(first, asked.ask, 12)[2] == pytest.approx(12 * first.usd_per_h)
    runs = trying(asked, [first, second], {"replicas": 100}, {"replicas": 2})
    assert [one.config.place for one in runs] == [second.place, first.place]
    runs = trying(asked, [first, second], {"replicas": 2})  # cheaper than the second is expected to be
    assert [one.config.place for one in runs] == [first.place]


def test_a_row_takes_the_replicas_and_numbers_of_its_run() -> None:
    asked = asked_for(tpot="30ms", rate="30/s")
    config = ranked(asked, search(asked))[0]
    row, old = config_report(asked, config), config_report(asked, config)
    as_simulated(asked, row, made_up(config, replicas=2 * old.replicas))
    for name in ("replicas", "fleet_chips", "fleet_usd_per_h", "fleet_usd_per_mtok"):
        assert getattr(row, name) == pytest.approx(2 * getattr(old, name)), name
    asked = asked_for(tpot="30ms")
    config = ranked(asked, search(asked))[0]
    row, old = config_report(asked, config), config_report(asked, config)
    note = as_simulated(asked, row, made_up(config, slower=1.25))
    assert "TPOT by +25%" in note[0]
    assert (row.tpot_s, row.ttft_s) == pytest.approx((1.25 * old.tpot_s, 1.25 * old.ttft_s))
    for name in ("requests_per_s", "output_tokens_per_s_per_chip", "tokens_per_s_per_user"):
        assert getattr(row, name) == pytest.approx(getattr(old, name) / 1.25), name
    for name in ("cost_usd_per_mtok", "cost_usd_per_mtok_input", "cost_usd_per_mtok_output", "latency_s"):
        assert getattr(row, name) == pytest.approx(1.25 * getattr(old, name)), name
    assert not as_simulated(asked, old, made_up(config, slower=1.01))


def test_what_a_run_missed_is_told() -> None:
    asked = asked_for(tpot="p99:30ms", rate="30/s")
    config = ranked(asked, search(asked))[0]
    row = config_report(asked, config)
    note = as_simulated(asked, row, made_up(config, False, reached={"tpot": 0.045}))
    assert row.violations == ["TPOT is 45ms at p99, 50% above the 30ms asked for"]
    assert "Nothing meets the targets when it is simulated" in note[0]
    in_time = made_up(config, False, reached={"tpot": 0.02})
    as_simulated(asked, row, replace(in_time, worst=math.inf))
    assert row.violations == ["more requests come than are served"]
    as_simulated(asked, row, replace(in_time, worst=1.0))
    assert row.violations == ["too few requests of a class meet its targets"]


def test_pools_are_run_at_less_of_their_rate_until_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, loads = asked_for(tpot="30ms", on="h100:4", disaggregate=True), list[float]()
    config = search_pools(asked)[0]
    whole = config.pools.requests

    def run(_job: SizingJob, one: PooledConfig) -> Confirmed:
        loads.append(one.pools.requests / whole)
        return made_up(one, holds=loads[-1] < 0.85)

    monkeypatch.setattr(confirmation, "run_short", run)
    held = confirmation.confirm_pools(sizing_job(asked), config).config
    assert loads == pytest.approx([1.0, 0.9, 0.8])
    assert held.tokens_per_chip == pytest.approx(0.8 * config.tokens_per_chip)
    at_a_rate = replace(asked, ask=replace(asked.ask, rate=1.0))
    assert confirmation.confirm_pools(sizing_job(at_a_rate), config).config.tokens_per_chip == config.tokens_per_chip


Fleet = tuple[int, int]
"""Replicas and the seed of a run."""


@pytest.fixture
def fewest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Confirmed, list[Fleet]]]:
    """The fleet that is taken where runs are so far below or above a percentile, and what was run for it."""
    asked = asked_for(tpot="p95:30ms", rate="30/s", on="h100")
    config = ranked(asked, search(asked))[0]

    def taken(worst: Callable[[int, int], float]) -> tuple[Confirmed, list[Fleet]]:
        fleets = list[Fleet]()

        def run(
            _job: SizingJob, config: Config, replicas: int | None = None, *, seed: int = 0, times_as_long: int = 1
        ) -> Confirmed:
            assert times_as_long == 1
            count = replicas or 100
            fleets.append((count, seed))
            ratio = worst(count, seed)
            made = made_up(config, meets=ratio <= 1, holds=ratio <= confirmation.MARGIN, replicas=count)
            return replace(made, worst=ratio)

        monkeypatch.setattr(confirmation, "run_short", run)
        return confirmation.confirm_fleet(sizing_job(asked), config), fleets

    return taken


def test_a_fleet_that_misses_with_any_seed_is_not_taken(fewest: Callable[..., tuple[Confirmed, list[Fleet]]]) -> None:
    """Every fleet holds with the first seed and misses with the last."""
    fleet, runs = fewest(lambda _replicas, seed: 1.02 if seed == 2 else 0.95)
    assert (fleet.holds, fleet.config.meets) == (False, False)
    assert fleet.worst == 1.02
    assert {count for count, seed in runs if seed == 0} == {count for count, seed in runs if seed == 2}


def test_a_fleet_is_enlarged_until_all_seeds_hold(fewest: Callable[..., tuple[Confirmed, list[Fleet]]]) -> None:
    fleet, runs = fewest(lambda replicas, seed: 0.95 if seed == 0 or replicas >= 103 else 1.02)
    assert (fleet.holds, fleet.config.meets) == (True, True)
    assert fleet.replicas == 109
    assert (109, 1) in runs
    assert (109, 2) in runs
    assert fleet.run.runs == 3


def test_a_fleet_that_only_just_meets_is_taken_with_every_seed_alone(
    fewest: Callable[..., tuple[Confirmed, list[Fleet]]],
) -> None:
    """None is within the margin; the nearest is tried with the other seeds, and misses with one of them."""
    fleet, runs = fewest(lambda _replicas, seed: 1.02 if seed == 1 else 0.995)
    assert (fleet.holds, fleet.config.meets) == (False, False)
    assert (100, 1) in runs
    fleet, _ = fewest(lambda _replicas, _seed: 0.995)
    assert (fleet.holds, fleet.config.meets, fleet.replicas) == (False, True, 100)


def test_the_smallest_fleet_that_holds_lies_between_the_largest_that_misses_and_one_that_holds(
    fewest: Callable[..., tuple[Confirmed, list[Fleet]]],
) -> None:
    fleet, runs = fewest(lambda replicas, _seed: 0.7 if replicas >= 150 else 1.1)
    assert [count for count, _ in runs] == [100, 120, 960, 168, 144, 156]  # 960 says that larger fleets hold
    assert (fleet.holds, fleet.replicas) == (True, 156)
    alone, runs = fewest(lambda _replicas, _seed: 1.5)
    assert not alone.holds
    assert [count for count, _ in runs] == [100, 120, 960]


def test_a_short_run_of_pools_keeps_their_ratio_and_load() -> None:
    asked = asked_for(tpot="30ms", on="h100:4", disaggregate=True)
    pools = search_pools(asked)[0].pools
    config = as_config(replace(pools, prefills=4, decodes=6, offered=30.0))
    rate = float(config.state.requests)
    short = short_run_size(sizing_job(asked), config)
    assert (short.replicas, short.prefills) == (3, 2)
    assert short.rate == pytest.approx(rate / 2, rel=1e-3)


def test_all_places_taken_wait_for_the_rest_of_outputs_that_vary() -> None:
    config = search(asked_for())[0]
    one_ends_every = 1 / float(config.state.requests)
    assert place_wait(config, 1.0, 0.5) == pytest.approx((1 + OUTPUTS_VARY) / 2 * one_ends_every / 0.5)


def same_run(words: str, path: Path) -> tuple[simulate_question.SimulateAsked, simulate_question.SimulateAsked]:
    """What the printed command of an answer and its saved plan ask."""
    command, rest = find_command(["serve", *words.split()])
    question = command.question(**read_arguments(command.fields(), rest, command.name).values)
    asked = read_question(question)
    report = answer(asked, brief=True)
    _, *flags = next_command(asked, report).split()
    simulate, rest = find_command(flags)
    printed = simulate.question(**read_arguments(simulate.fields(), rest, simulate.name).values)
    plan_file.save_serving_plan(saved_plan(asked, report.configs[0]), str(path / "plan.toml"))
    return simulate_question.read_question(printed), simulate_question.read_question(
        SimulateQuestion(str(path / "plan.toml"))
    )


@pytest.mark.parametrize(
    "words",
    [
        "llama3-8b --on h100:1 --tpot 30ms",
        "llama3-8b --on h100:1 --tpot p95:30ms --rate 20/s",
        "llama3-70b --on h100:8 --plan tp4 --tpot 20ms --ttft 1s --disaggregate --token-budget 4096",
    ],
)
def test_the_saved_plan_asks_what_the_printed_command_asks(words: str, tmp_path: Path) -> None:
    printed, saved = same_run(words, tmp_path)
    assert saved.job.source == printed.job.source
    assert saved.job.options == printed.job.options
    assert len(saved.job.pools) == len(printed.job.pools)
    for pool, printed_pool in zip(saved.job.pools, printed.job.pools, strict=True):
        one, other = pool.deployment, printed_pool.deployment
        assert (one.engine, one.plan, one.piece) == (other.engine, other.plan, other.piece)


def test_a_prefill_pool_has_the_token_budget_and_its_own_sequences() -> None:
    words: dict[str, Any] = {"on": "h100:4", "prefill_on": "h100:4", "rate": "4/s", "max_seqs": 8}
    asked = simulate_question.read_question(SimulateQuestion("llama3-70b", **words, token_budget=4096))
    pool, prefill = asked.job.fleet.pool.scheduler, asked.job.fleet.prefill.scheduler
    assert (pool.tokens, prefill.tokens) == (4096, 4096)
    assert pool.sequences == 8
    assert prefill.sequences > 100
    assert not asked.job.fleet.prefill.share_prefixes
    shared = simulate_question.read_question(SimulateQuestion("llama3-70b", **words, prefixes="1x1024"))
    assert shared.job.fleet.prefill.share_prefixes  # a prefix that all prompts have is prefilled once
    elsewhere = simulate_question.read_question(
        SimulateQuestion("llama3-70b", **(words | {"prefill_on": "h200:4"}), token_budget=4096)
    )
    assert elsewhere.job.fleet.prefill.scheduler.tokens == 4096


def test_drafts_that_an_engine_does_not_make_are_refused() -> None:
    report = ds.serve("deepseek-v3", on="tpu7x:2x2x2", drafts=2)
    assert report.best is None
    assert "vllm-tpu does not draft with the heads of deepseek-v3" in report.notes[0]
    assert ds.serve("deepseek-v3", on="tpu7x:2x2x2", drafts=2, plan="dp8 ep8").best is None
    assert read_question(ServeQuestion("deepseek-v3", on="h200:8", drafts=2)).lacks_drafts("vllm") is False
    unasked = read_question(ServeQuestion("deepseek-v3", on="tpu7x:2x2x2"))
    assert not unasked.lacks_drafts("vllm-tpu")


def test_in_brief_percentiles_are_told_to_be_judged_by_means() -> None:
    report = answer(asked_for(tpot="p95:30ms", ttft="1s"), brief=True)
    assert any(note.startswith("In brief TPOT") and "TTFT" not in note for note in report.notes)
    assert not any(note.startswith("In brief") for note in answer(asked_for(tpot="30ms"), brief=True).notes)


def test_drafts_take_their_time_before_they_are_verified() -> None:
    """The time in which a drafting model drafts is part of the iterations that prompts share."""
    one = read_question(ServeQuestion("llama3-70b", on="h100:8", plan="tp8", draft="llama3-8b", accept="0.7", drafts=4))
    deployment = deployed(one, search(one)[0])
    looped = _draft_loop(deployment, one.draft, numpy.array([16.0]), one.ask.context, numpy.array([0.02]))
    free = replace(one.draft, counts=(0,))
    assert 0.02 < float(looped.drafting[0]) < float(looped.seconds[0])
    assert (
        float(_draft_loop(deployment, free, numpy.array([16.0]), one.ask.context, numpy.array([0.02])).drafting[0]) == 0
    )


def test_experts_of_a_library_that_fuses_calls_are_issued_in_fewer() -> None:
    one = deploy("qwen3-30b-a3b", "b200:1", "", "vllm")
    tables = one.kernels.grouped.of("bf16")
    fused = next(name for name, table in tables.items() if table.calls < EXPERT_CALLS)
    habits = msgspec.structs.replace(one.engine.experts, kernels=fused)
    assert expert_calls(habits, one.plan, one.kernels) == tables[fused].calls / EXPERT_CALLS < 1


def test_sequences_that_decode_have_a_little_more_than_half_of_their_outputs() -> None:
    """Outputs of 50 to 150 tokens: a token that is being made belongs to a long one more often."""
    lengths = numpy.arange(50, 151)
    ages = numpy.concatenate([numpy.arange(length) for length in lengths])
    assert asked_for(prompt="1000", output="100").ask.context == pytest.approx(1000 + ages.mean(), rel=0.001)


def test_a_fleet_at_a_light_rate_has_the_ttft_of_a_prompt_beside_those_who_decode() -> None:
    asked = asked_for(on="h100:1", output="1024", rate="40/s")
    configs = search(asked)
    own = sorted((one for one in configs if one.place == configs[0].place), key=lambda one: one.batch)
    some = next(one for one in own if one.batch >= 64)
    state = some.state
    ttft, _ = loaded(own[-1], configs, float(state.requests), 1000)
    beside = float(state.front + state.under_way + state.added + some.chunks * state.decode)
    assert ttft == pytest.approx(beside, rel=0.03)
    assert ttft > float(state.front + state.under_way) + 1.1 * min(float(one.state.prefill) for one in own)


def test_a_fleet_drafts_at_its_rate_as_many_as_it_is_launched_with() -> None:
    asked = read_question(ServeQuestion("deepseek-v3", on="h200:8", accept="0.8,0.6,0.5", output="256", rate="4/s"))
    configs = search(asked)
    place = max(configs, key=lambda one: one.batch).place
    own = [one for one in configs if one.place == place]
    alike = replace(own[-1], drafts=1), replace(own[-1], drafts=3)
    slow, quick = (fleet_times(asked, one, configs, 2)[1] for one in alike)
    assert quick < 0.9 * slow  # at the same small batch
