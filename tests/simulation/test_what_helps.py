"""What `dscale simulate` tries where a fleet does not hold: settings by what the run shows, and the fewest replicas of
each pool; runs are made up."""

from types import SimpleNamespace
from typing import Any

import pytest

from dragonscale.app.simulate import capacity
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, LinearTimes, Pool, Scheduler, SimulationOptions, simulate


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
        targets={"tpot_s": 1.0},
        deployment=SimpleNamespace(engine=SimpleNamespace(scheduling=scheduling)),
    )


def test_more_places_are_tried_where_all_are_taken_and_the_cache_has_room() -> None:
    assert list(capacity.settings(fleet(), shown(0.99, 0.2), {})) == [{"max_seqs": 16}, {"max_seqs": 32}]
    assert list(capacity.settings(fleet(), shown(0.99, 0.9), {})) == []
    assert list(capacity.settings(fleet(), shown(0.5, 0.2), {})) == []


def test_a_decode_pool_behind_a_short_prefill_pool_is_not_known_to_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two decode replicas keep up while prefill lets few requests through; with prefill mended they need four."""
    tried = list[tuple[int, int]]()

    def sized(replicas: int, prefills: int) -> Any:
        tried.append((replicas, prefills))
        lacks = {1} if prefills < 3 else {0} if replicas < 4 else set()
        return SimpleNamespace(result=lacks, holds=not lacks, missed={}, good=not lacks)

    monkeypatch.setattr(capacity, "short_pools", lambda _asked, result, _grows, _missed: result)
    asked = fleet(prefills=1)
    trials: Any = SimpleNamespace(asked=asked, rate=1.0, replicas=2, prefills=1, sized=sized)
    sizes, _ = capacity._fewest(trials, SimpleNamespace(rate=1.0), {1})
    assert sizes == (4, 3), tried


def test_a_request_is_good_that_meets_every_target() -> None:
    pool = Pool(LinearTimes(0.01), 10**6, Scheduler(sequences=4, tokens=4096), 1)
    source = ClosedLoop(1, 50, Fixed(16), Fixed(8))
    for ttft, tpot, good in ((1.0, 1.0, 1.0), (1.0, 1e-6, 0.0), (1e-6, 1.0, 0.0)):
        result = simulate(Fleet(pool), source, SimulationOptions(ttft_s=ttft, tpot_s=tpot))
        assert result.throughput.good_share == good
