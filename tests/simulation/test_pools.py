"""Fleets of several pools, tiers behind caches, adapters, images: by hand-made traffic, and asked in words."""

import dataclasses
import json
from pathlib import Path

import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.commands.simulate.simulate_sheet import fleet_table
from dragonscale.errors import InputError
from dragonscale.simulation import (
    Autoscale,
    CacheTier,
    Failure,
    Fixed,
    Fleet,
    LinearTimes,
    OpenLoop,
    Poisson,
    Pool,
    Scheduler,
    SimulatedRequest,
    SimulationOptions,
    Uniform,
    read_trace,
    simulate,
)
from dragonscale.simulation.adapters import AdapterTimes
from dragonscale.simulation.loop import NO_POOL
from dragonscale.simulation.pages import AdapterSlots
from tests.simulation.fleets import finished_run, replay

TIMES = LinearTimes(1.0, prompt_s=0.0)
SLOW = LinearTimes(4.0)
KEPT = SimulationOptions(keep=True)
ASKED = SimulateQuestion(
    "llama3-8b", on="h100:1", rate="8/s", requests="300", engine="generic", max_rate=False, warmup=0
)


def served(fleet: Fleet, requests: list[SimulatedRequest]) -> list:
    return sorted(finished_run(fleet, replay(requests), KEPT).tally.served or (), key=lambda one: one.number)


def test_the_pool_with_the_smallest_limit_takes_a_request() -> None:
    small, long = Pool(TIMES, 1000, replicas=2, upto=60), Pool(TIMES, 1000, replicas=1)
    requests = [SimulatedRequest(n, 10.0 * n, tokens, 10) for n, tokens in enumerate((40, 50, 51, 300, 20))]
    assert [one.replica for one in served(Fleet(long, others=(small,)), requests)] == [1, 2, 0, 0, 1]
    none = finished_run(Fleet(dataclasses.replace(long, upto=100), others=(small,)), replay(requests))
    assert none.tally.refused == {NO_POOL: 1}


def test_a_class_goes_to_the_pool_that_is_for_it() -> None:
    fleet = Fleet(Pool(TIMES, 1000, kinds=(0,)), others=(Pool(TIMES, 1000, replicas=2, kinds=(1,)),))
    requests = [SimulatedRequest(n, 10.0 * n, 10, 1, kind=n % 2) for n in range(4)]
    options = SimulationOptions(keep=True, classes=({}, {}))
    run = finished_run(fleet, replay(requests), options)
    assert [one.replica for one in run.tally.served or ()] == [0, 2, 0, 2]


def test_one_router_sees_the_chips_of_all_pools() -> None:
    """By the predicted first token a replica four times as fast gets several times as many requests."""
    fleet = Fleet(Pool(SLOW, 10_000, router="slo_aware"), others=(Pool(TIMES, 10_000),))
    load = OpenLoop(Poisson(1.1), 4000, Fixed(10), Fixed(1))
    one_at_a_time = Scheduler("continuous", sequences=1, tokens=10)
    fleet = dataclasses.replace(
        fleet,
        pool=dataclasses.replace(fleet.pool, scheduler=one_at_a_time),
        others=(dataclasses.replace(fleet.others[0], scheduler=one_at_a_time),),
    )
    result = simulate(fleet, load)
    slow, fast = (one.output_tokens for one in result.replicas)
    assert 3.0 < fast / slow < 8.0
    assert result.use["serve 2"].replicas == pytest.approx(1.0)


def sharing(**more) -> Pool:
    return Pool(TIMES, 160, share_prefixes=True, **more)


def calls(order: list[int], every: float = 10.0) -> list[SimulatedRequest]:
    return [SimulatedRequest(n, every * n, 65, 1, (block,), 64) for n, block in enumerate(order)]


def test_each_tier_is_loaded_at_its_own_pace_and_hands_down_what_falls_out() -> None:
    """Two blocks fit into the cache, one into the host, the rest onto the SSD, at 64 tokens in 2 and in 8 seconds."""
    pool = sharing(tiers=(CacheTier(64, 32.0), CacheTier(1000, 8.0)))
    told = served(Fleet(pool), calls([1, 2, 3, 4, 2, 1]))
    assert [one.cached_tokens for one in told] == [0, 0, 0, 0, 64, 64]
    assert [round(one.ttft_s) for one in told] == [1, 1, 1, 1, 2, 8]


def test_a_shared_store_has_what_any_replica_computed() -> None:
    alone = Fleet(sharing(replicas=2, tiers=(CacheTier(1000, 32.0),)))
    store = Fleet(sharing(replicas=2, tiers=(CacheTier(1000, 32.0, shared=True),)))
    order = calls([1, 1, 2, 2])  # which take turns
    assert [one.cached_tokens for one in served(alone, order)] == [0, 0, 0, 0]
    assert [one.cached_tokens for one in served(store, order)] == [0, 64, 0, 64]


def lora(adapters: list[int], slots: int) -> tuple[list, int]:
    pool = Pool(TIMES, 1000, Scheduler("continuous", sequences=4), adapters=slots, adapter_s=5.0)
    requests = [SimulatedRequest(n, 0.0, 10, 4, adapter=one) for n, one in enumerate(adapters)]
    run = finished_run(Fleet(pool), replay(requests), KEPT)
    return sorted(run.tally.served or (), key=lambda one: one.number), run.tally.swaps


def test_an_adapter_without_a_place_waits_and_others_go_first() -> None:
    told, swaps = lora([0, 1, 0, -1], slots=1)
    assert swaps == 2
    assert [one.ttft_s for one in told] == [5.0, 13.0, 5.0, 5.0]  # the second is loaded once the others have ended
    assert told[1].queue_s == 8.0
    assert lora([0, 1, 0, -1], slots=2)[1] == 2


def test_steps_with_adapters_are_longer_by_those_that_differ() -> None:
    many = AdapterTimes(LinearTimes(1.0), (0.5, 0.5), 2, step_s=0.25, read_s=0.5)
    assert many.step(1, 10) == pytest.approx(1.75)
    assert many.step(2, 10) == pytest.approx(2.0)  # half of two have the same one
    assert many.run(2, 10, 5) == pytest.approx(10.0)
    assert many.steps_within(2, 10, 9.99) == 4
    assert many.steps_within(2, 10, 10.01) == 5


def test_images_are_encoded_once_before_their_prompt() -> None:
    pool = Pool(TIMES, 1000, image_s=2.0)
    told = served(Fleet(pool), [SimulatedRequest(0, 0.0, 10, 3, images=2), SimulatedRequest(1, 100.0, 10, 3)])
    assert [one.ttft_s for one in told] == [5.0, 1.0]


def sessions(router: str) -> list[int]:
    pool = sharing(replicas=3, router=router)
    pool = dataclasses.replace(pool, kv_tokens=2000)
    requests = [SimulatedRequest(n, 10.0 * n, 65, 1, (n % 2,), 64, session=n % 2) for n in range(8)]
    return [one.replica for one in served(Fleet(pool), requests)]


@pytest.mark.parametrize("router", ["session_sticky", "cache_aware", "cache_scores"])
def test_a_session_stays_where_its_cache_is(router: str) -> None:
    places = sessions(router)
    assert len(set(places[::2])) == len(set(places[1::2])) == 1
    assert places[0] != places[1]
    assert len(set(sessions("round_robin"))) == 3


def test_a_cache_far_fuller_than_others_is_worth_less_than_its_prefix() -> None:
    """Dynamo's cost: blocks to prefill and blocks in use. A prefix of 64 tokens does not outweigh 300 in use."""
    pool = dataclasses.replace(sharing(replicas=2, router="cache_aware"), kv_tokens=2000)
    long = [SimulatedRequest(n, 1.0 + n / 16, 150, 90) for n in range(2)]
    first = SimulatedRequest(0, 0.0, 65, 1, (7,), 64)
    again = SimulatedRequest(3, 6.0, 65, 1, (7,), 64)
    requests = [first, *(one._replace(number=n) for n, one in enumerate(long, 1)), again]
    told = served(Fleet(pool), requests)
    assert told[3].cached_tokens in (0, 64)
    assert told[1].replica != told[2].replica  # neither has it, so the emptier one gets the second


def test_replicas_that_prefill_grow_by_themselves() -> None:
    grows = Autoscale(1, 4, 1.0, startup_s=1.0, every_s=0.5, on="queue")
    prefill = Pool(LinearTimes(0.5), 1000, Scheduler("continuous", sequences=1), autoscale=grows)
    fleet = Fleet(Pool(LinearTimes(0.01), 100_000), prefill)
    load = OpenLoop(Poisson(5.0), 400, Fixed(10), Fixed(4))
    result = simulate(fleet, load)
    assert 2.0 < result.use["prefill"].replicas <= 4.0
    assert result.use["serve"].replicas == pytest.approx(1.0)
    assert result.latency["ttft_s"].p50.value < 3.0


def test_a_trace_knows_its_sessions(tmp_path: Path) -> None:
    rows = [(0, 100, [1]), (1, 1100, [1, 2, 3]), (2, 600, [7, 8]), (3, 2600, [1, 2, 3, 4, 5, 6])]
    lines = [
        json.dumps({"timestamp": 1e3 * t, "input_length": n, "output_length": 5, "hash_ids": h}) for t, n, h in rows
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines))
    assert [one.session for one in read_trace(path).read()] == [0, 1, 2, 1]


def asked(**words):
    return run_simulation(read_question(dataclasses.replace(ASKED, **words)))[0]


def test_pools_in_words_and_in_a_file_are_the_same(tmp_path: Path) -> None:
    words = "h200:1,replicas=2,upto=1k,max_seqs=64"
    path = tmp_path / "fleet.toml"
    path.write_text('[[pool]]\non = "h200:1"\nreplicas = 2\nupto = "1k"\nmax_seqs = 64\n')
    one, other = asked(pool=words), asked(pool=str(path))
    assert one.latency == other.latency
    assert [(row.slice, row.replicas, row.takes) for row in one.fleet] == [
        ("h100:1", 1, ""),
        ("h200:1", 2, "up to 1,024 tokens"),
    ]
    assert one.chips == 3
    alone, priced = asked(), asked(pool="h200:1")
    assert alone.usd_per_h is not None
    assert priced.usd_per_h is not None
    assert priced.usd_per_h > 2 * alone.usd_per_h  # an H200 costs more
    assert priced.tokens_per_joule is not None


def test_the_fleet_says_what_each_pool_reached() -> None:
    """By requests: TTFT and TPOT of a pool are those of the requests that ended there, its cache's use that of it."""
    fleet = Fleet(Pool(SLOW, 1000), others=(Pool(TIMES, 1000, upto=20),))
    result = simulate(fleet, OpenLoop(Poisson(0.2), 400, Uniform(5, 25), Fixed(5)), KEPT)
    for row, name in enumerate(("serve", "serve 2")):
        ended, use = [one for one in result.served if one.replica == row], result.use[name]
        assert use.ttft_s == pytest.approx(sum(one.ttft_s for one in ended) / len(ended))
        assert use.tpot_s == pytest.approx(sum(one.tpot_s for one in ended) / len(ended))
    slow, fast = result.use["serve"].kv_share, result.use["serve 2"].kv_share
    assert slow > 2 * fast
    assert (slow + fast) / 2 == pytest.approx(result.kv_occupancy)
    report = asked(pool="l40s:1")
    table, alone = fleet_table(report), fleet_table(asked())
    told = [f"{one.kv_share:.0%}" for one in report.use.values()]
    assert [row[[one.title for one in table.columns].index("KV full")] for row in table.rows] == told
    assert "TPOT" not in [one.title for one in alone.columns]


def test_a_model_of_its_own_serves_its_class() -> None:
    report = asked(rate="", classes="big,rate=2/s,small,rate=6/s", pool="h100:1,model=llama3.2-1b,classes=small")
    big, small = report.classes
    assert small.latency["tpot_s"].mean < big.latency["tpot_s"].mean / 2
    assert report.fleet[1].takes == "small; llama3.2-1b"


def test_adapters_and_images_cost_what_they_are() -> None:
    plain, tuned, seen = asked(), asked(adapters="20x16,slots=4"), asked(images="2x576")
    assert tuned.adapter_loads > 20
    assert tuned.latency["tpot_s"].mean > 1.05 * plain.latency["tpot_s"].mean
    assert tuned.fleet[0].kv_tokens < plain.fleet[0].kv_tokens
    assert seen.latency["ttft_s"].mean > 1.3 * plain.latency["ttft_s"].mean
    assert seen.rates.input_tokens_per_s == pytest.approx(plain.rates.input_tokens_per_s * 3200 / 2048, rel=0.1)


def test_prompts_alone_are_embeddings() -> None:
    report = asked(output="0")
    assert report.latency["e2e_s"].mean == report.latency["ttft_s"].mean
    assert report.latency["tpot_s"].max == 0


def test_a_deadline_is_met_by_the_replicas_that_are_told() -> None:
    words = {"rate": "", "arrivals": "at-once", "deadline": "20s", "max_rate": None, "requests": "600"}
    report = asked(**words)
    assert report.meets_slo is False
    assert report.exit_code == 4
    assert report.capacity is not None
    enough = report.capacity.change["replicas"]
    assert asked(**words, replicas=enough, seed=3).meets_slo
    assert not asked(**words, replicas=enough - 1).meets_slo


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"pool": "replicas=2"}, "begin with the slice"),
        ({"pool": "h200:1,uptoo=4k"}, "upto"),
        ({"pool": "h200:1,replicas=x"}, "write a number"),
        ({"pool": "h200:1,classes=chat"}, "there are none"),
        ({"pool": "h200:4,plan=tp2"}, "make them the same"),
        ({"pool": "h200:1", "prefill_on": "h100:1"}, "leave one out"),
        ({"rate": "", "classes": "chat,rate=1/s", "pool": "h200:1,classes=chat"}, "leave one to it"),
        ({"host_cache": "500GB,ssd=4TB"}, "ssd=4TB@7GB/s"),
        ({"host_cache": "remote=4TB@1GB/s,ssd=4TB@7GB/s"}, "comes last"),
        ({"adapters": "100"}, "slots=8"),
        ({"adapters": "0x16"}, "at least 1"),
        ({"adapters": "5000x256,slots=5000"}, "fewer slots"),
        ({"images": "2"}, "encoder"),
        ({"images": "2x576,encoder=0"}, "more than nothing"),
        ({"deadline": "2h"}, "--arrivals at-once"),
        ({"prefill_autoscale": "1..2,queue=3"}, "--prefill-on"),
        ({"router": "sticky"}, "session_sticky"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(words: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_question(dataclasses.replace(ASKED, **words))


def test_a_prefill_replica_that_is_back_has_nothing_left_to_send() -> None:
    """A prompt takes 1 s and its cache 30 s on the link. The replica dies at 5 s and is back at 10 s: computed again by
    11 s, the cache arrives at 41 s. The transfer that was cut off no longer holds the link until 31 s."""
    prefill = Pool(LinearTimes(1.0, send_s=1.0), 1000)
    fleet = Fleet(Pool(TIMES, 1000), prefill, failures=(Failure(0, 5.0, 5.0, "prefill"),))
    (request,) = served(fleet, [SimulatedRequest(0, 0.0, 30, 2)])
    assert request.ttft_s == pytest.approx(41.0)


def test_the_adapter_that_was_unused_longest_gives_way() -> None:
    slots = AdapterSlots(2)
    for adapter in (1, 2):
        assert slots.hold(adapter), "loaded at first"
        slots.free(adapter)
    assert slots.hold(3), "takes the place of 1"
    assert not slots.hold(2), "still there"
    slots.free(3)
    assert slots.hold(1), "was dropped"
