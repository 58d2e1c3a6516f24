"""What `dscale simulate` tries where a fleet does not hold: settings by what the run shows, and the fewest replicas of
each pool; runs are made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, LinearTimes, Pool, Scheduler, SimulationOptions, simulate
from dragonscale.simulation.fleet_sizing import capacity
from dragonscale.simulation.fleet_sizing.capacity import PoolSizes
from dragonscale.simulation.fleet_sizing.fleet_job import NO_CHANGE, FleetChange


def shown(places: float, cache: float) -> Any:
    return SimpleNamespace(
        use={"serve": SimpleNamespace(places_share=places, budget_share=0.0)}, kv_occupancy=cache, latency={}
    )


def fleet(prefills: int = 0, replicas: int = 2) -> Any:
    scheduling = SimpleNamespace(max_sequences=8, max_tokens=2048, scheduler="chunked")
    pools = SimpleNamespace(
        pool=SimpleNamespace(router="least_loaded", replicas=replicas), prefill=prefills or None, failures=()
    )
    return SimpleNamespace(
        fleet=pools,
        prefilling_pool="serve",
        limits=LaunchLimits(),
        targets={"tpot_s": 1.0},
        has_targets=True,
        deployment=SimpleNamespace(engine=SimpleNamespace(scheduling=scheduling)),
    )


def test_more_places_are_tried_where_all_are_taken_and_the_cache_has_room() -> None:
    assert list(capacity.helpful_settings(fleet(), shown(0.99, 0.2), {})) == [
        FleetChange(max_seqs=16),
        FleetChange(max_seqs=32),
    ]
    assert list(capacity.helpful_settings(fleet(), shown(0.99, 0.9), {})) == []
    assert list(capacity.helpful_settings(fleet(), shown(0.5, 0.2), {})) == []


def test_a_decode_pool_behind_a_short_prefill_pool_is_not_known_to_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two decode replicas keep up while prefill lets few requests through; with prefill mended they need four."""
    tried = list[tuple[int, int]]()

    def sized(sizes: PoolSizes) -> Any:
        tried.append((sizes.replicas, sizes.prefills))
        lacks = {1} if sizes.prefills < 3 else {0} if sizes.replicas < 4 else set()
        return SimpleNamespace(result=lacks, holds=not lacks, missed={}, good=not lacks)

    monkeypatch.setattr(capacity, "short_pools", lambda _asked, result, _grows, _missed: result)
    asked = fleet(prefills=1)
    trials: Any = SimpleNamespace(job=asked, rate=1.0, replicas=2, prefills=1, sized=sized)
    best: Any = SimpleNamespace(rate=1.0)
    sizes, _ = capacity._fewest(trials, best, {1})
    assert sizes == PoolSizes(4, 3), tried


def test_smaller_budgets_are_tried_where_gaps_between_tokens_are_too_long() -> None:
    asked = fleet()
    asked.deployment.engine.scheduling.max_tokens = 8192
    tried = [FleetChange(token_budget=2048), FleetChange(token_budget=512)]
    assert list(capacity.helpful_settings(asked, shown(0.5, 0.2), {"itl_s": 2.0})) == tried
    asked.deployment.engine.scheduling.max_tokens = 2048
    assert list(capacity.helpful_settings(asked, shown(0.5, 0.2), {"itl_s": 2.0})) == tried[1:]


def test_a_budget_and_places_that_do_not_go_together_are_not_tried() -> None:
    """Every sequence that decodes needs a token of an iteration, so `--max-seqs 1024` needs a budget of as many."""
    asked = fleet()
    asked.deployment.engine.scheduling.max_tokens = 8192
    asked.limits = LaunchLimits(max_seqs=1024)
    assert list(capacity.helpful_settings(asked, shown(0.5, 0.2), {"itl_s": 2.0})) == [FleetChange(token_budget=2048)]
    asked.limits = LaunchLimits(token_budget=16)
    assert list(capacity.helpful_settings(asked, shown(0.99, 0.2), {})) == [FleetChange(max_seqs=16)]


def one_pool(replicas: int) -> Any:
    """A fleet of one pool that is asked for."""
    return SimpleNamespace(
        fleet=SimpleNamespace(pool=SimpleNamespace(replicas=replicas, autoscale=None), prefill=None),
        targets={"itl_s": 1.0},
    )


def run(good: bool, missed: dict[str, float] | None = None) -> Any:
    load = SimpleNamespace(served_per_s=1.0, grows=False)
    return SimpleNamespace(good=good, holds=True, missed=missed or {}, load=load, result=None, rate=1.0)


def test_replicas_that_a_short_run_found_are_run_whole_and_grow_where_that_misses() -> None:
    tried = list[int]()

    def confirm(change: FleetChange) -> Any:
        assert change.replicas is not None
        tried.append(change.replicas)
        return run(change.replicas >= 4, {"itl_s": 1.1} if change.replicas < 4 else {})

    trials: Any = SimpleNamespace(job=one_pool(2), confirm=confirm)
    held = capacity.confirmed_sizes(trials, FleetChange(token_budget=512), PoolSizes(3), run(True))
    assert held is not None
    assert (held.sizes, held.change, tried) == (PoolSizes(4), FleetChange(token_budget=512, replicas=4), [3, 4])
    assert held.confirmed is not None
    assert held.confirmed.good
    trials.confirm = lambda _: run(False, {"itl_s": 1.1})
    assert capacity.confirmed_sizes(trials, NO_CHANGE, PoolSizes(3), run(True)) is None


def test_the_command_of_a_change_is_run_as_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its requests, the end of the run left out as usual, and nothing but the change changed."""
    runs = list[tuple[int, float, int]]()

    def simulated(pools: Any, source: Any, options: Any) -> Any:
        runs.append((source.requests, options.cooldown, pools.pool.replicas))
        return simulate(pools, source, options)

    monkeypatch.setattr(capacity, "simulate", simulated)
    question = SimulateQuestion("llama3-8b", on="h100:1", rate="2/s", requests="500", prompt="512", output="8")
    asked = read_question(question)
    trials = capacity.Trials(asked.job, 1.0, None)
    trials.confirm(FleetChange(replicas=2))
    printed = read_question(replace(question, replicas=2))
    assert runs == [(500, printed.job.options.cooldown, 2)]
    assert printed.job.options.cooldown > 0


def change_of(question: Any) -> FleetChange:
    """The change that holds."""
    held = capacity._what_holds(*question)
    assert held is not None
    return held.change


def test_a_setting_that_helps_is_tried_with_more_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller token budget mends the gaps and lets too few prompts through: with two more replicas it holds; where it
    gains nothing, replicas alone are tried."""
    own: Any = SimpleNamespace(job=one_pool(2), rate=1.0, requests=9, runs=1)
    trials: Any = SimpleNamespace(job=one_pool(2), with_setting=lambda _: own, runs=0, replicas=2, prefills=0)
    own.confirm = trials.confirm = lambda change: run(change.replicas is not None)
    monkeypatch.setattr(capacity, "helpful_settings", lambda *_: [FleetChange(token_budget=512)])
    monkeypatch.setattr(capacity, "_largest", lambda *_, **__: (SimpleNamespace(rate=3.0), None))
    monkeypatch.setattr(capacity, "_fewest", lambda trials, *_: (PoolSizes(4 if trials is own else 9), run(True)))
    question: Any = trials, run(True), None, SimpleNamespace(grows=False), {"itl_s": 4.0}, {0}
    own.judge = lambda *_: run(False, {"ttft_s": 2.0})
    assert change_of(question) == FleetChange(token_budget=512, replicas=4)
    own.judge = lambda *_: run(False, {"itl_s": 3.9})
    assert change_of(question) == FleetChange(replicas=9)
    own.judge = lambda *_: run(True)  # the same replicas, if the whole command holds too
    own.confirm = trials.confirm = lambda _: run(True)
    assert change_of(question) == FleetChange(token_budget=512)


def test_a_request_is_good_that_meets_every_target() -> None:
    pool = Pool(LinearTimes(0.01), 10**6, Scheduler(sequences=4, tokens=4096), 1)
    source = ClosedLoop(1, 50, Fixed(16), Fixed(8))
    for ttft, tpot, good in ((1.0, 1.0, 1.0), (1.0, 1e-6, 0.0), (1e-6, 1.0, 0.0)):
        result = simulate(Fleet(pool), source, SimulationOptions(ttft_s=ttft, tpot_s=tpot))
        assert result.throughput.good_share == good


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        {"rate": "60/s", "ttft": "p95:300ms", "tpot": "p95:25ms"},
        {"rate": "30/s", "prompt": "1024", "ttft": "p95:500ms", "tpot": "40ms"},
        {"classes": "chat,rate=40/s,rag,rate=4/s"},
    ],
)
def test_the_change_that_is_told_holds_with_other_random_numbers(words: dict) -> None:
    question = SimulateQuestion("llama3-8b", on="h100:1", requests="3000", **words)
    report = run_simulation(read_question(question))[0]
    assert report.meets_slo is False
    assert report.capacity is not None
    changed = replace(question, capacity=False, **report.capacity.change)
    for seed in range(1, 6):
        assert run_simulation(read_question(replace(changed, seed=seed)))[0].meets_slo


def test_places_for_adapters_bound_where_nothing_else_is_short() -> None:
    asks = {"on": "h100:1", "rate": "8/s", "requests": 400, "max_rate": False}
    short = ds.simulate("llama3-8b", adapters="100x16,slots=4,skew=1", **asks)
    assert short.bound_by == "places for adapters"
    assert "4 adapters are in memory" in short.advice
    assert ds.simulate("llama3-8b", adapters="100x16,slots=100,skew=1", **asks).bound_by == "the traffic"
