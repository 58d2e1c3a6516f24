"""Several replicas: routers, prefixes, disaggregation, failures, scaling."""

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from dragonscale.errors import InputError
from dragonscale.simulation import (
    AtOnce,
    Autoscale,
    CacheTier,
    ClosedLoop,
    Diurnal,
    Failure,
    Faults,
    Fixed,
    Fleet,
    LinearTimes,
    Lognormal,
    OpenLoop,
    Poisson,
    Pool,
    Prefixes,
    Scheduler,
    SimulatedRequest,
    SimulationOptions,
    SimulationResult,
    Uniform,
    save_trace,
    simulate,
)
from dragonscale.simulation.autoscaler import Autoscaler
from dragonscale.simulation.loop import NO_REPLICA
from dragonscale.simulation.perfetto import COUNTERS, FLEET
from dragonscale.simulation.result import Tally
from tests.simulation.fleets import finished_run, replay
from tests.simulation.test_conservation import check_books

TIMES = LinearTimes(1.0, prompt_s=0.01, send_s=0.001)
SERVER = LinearTimes(0.02, 2e-5, 1e-8, 5e-5)


def test_a_shared_prefix_is_prefilled_once() -> None:
    """Blocks of 32 tokens; the second prompt shares two of its three, the third is the first again."""
    calls = [
        SimulatedRequest(0, 0.0, 96, 1, (1, 2, 3), 32),
        SimulatedRequest(1, 10.0, 100, 1, (1, 2, 4, 5), 32),
        SimulatedRequest(2, 20.0, 96, 1, (1, 2, 3), 32),
        SimulatedRequest(3, 30.0, 90, 1, (7, 8, 9), 32),
    ]
    result = simulate(Fleet(Pool(TIMES, 10_000, share_prefixes=True)), replay(calls), SimulationOptions(keep=True))
    assert [each.cached_tokens for each in result.served] == [0, 64, 95, 0]
    assert [each.ttft_s for each in result.served] == pytest.approx([1.96, 1.36, 1.01, 1.90])
    assert result.cache_hit_rate == pytest.approx((64 + 95) / (96 + 100 + 96 + 90))
    assert result.replicas[0].pages_in_use == 0
    assert result.replicas[0].pages_idle == (32 * 3 + 32) // 16 + 90 // 16  # 5 ends inside its page


def test_concurrent_prompts_do_not_share_what_is_not_computed_yet() -> None:
    calls = [SimulatedRequest(n, 0.0, 64, 2, (1, 2), 32) for n in range(2)]
    run = finished_run(Fleet(Pool(TIMES, 10_000, share_prefixes=True)), replay(calls))
    assert [each.cached_tokens for each in run.tally.served or ()] == [0, 0]
    assert run.places[0][1].pages.idle_pages == 4  # one copy is kept


def test_the_least_recently_used_prefix_goes_first() -> None:
    """Room for two prefixes of 64 tokens beside a call; the one not used for longest is lost."""
    order = [1, 2, 1, 3, 1, 2]
    calls = [SimulatedRequest(n, 10.0 * n, 65, 1, (block,), 64) for n, block in enumerate(order)]
    result = simulate(Fleet(Pool(TIMES, 160, share_prefixes=True)), replay(calls), SimulationOptions(keep=True))
    assert [each.cached_tokens for each in result.served] == [0, 0, 64, 0, 64, 0]


def test_a_prefix_is_lost_from_its_end() -> None:
    """Four blocks are kept; a call that needs two of them back leaves the leading two."""
    calls = [
        SimulatedRequest(0, 0.0, 64, 1, (1, 2, 3, 4), 16),
        SimulatedRequest(1, 10.0, 32, 1),
        SimulatedRequest(2, 20.0, 65, 1, (1, 2, 3, 4), 16),
    ]
    pool = Pool(TIMES, 80, Scheduler(page_tokens=16), share_prefixes=True)
    result = simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True))
    assert [each.cached_tokens for each in result.served] == [0, 0, 48]


def test_the_host_keeps_what_falls_out() -> None:
    order = [1, 2, 1, 3, 1, 2]
    calls = [SimulatedRequest(n, 10.0 * n, 65, 1, (block,), 64) for n, block in enumerate(order)]
    pool = Pool(TIMES, 160, share_prefixes=True, tiers=(CacheTier(1000, 16.0),))
    result = simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True))
    assert [each.cached_tokens for each in result.served] == [0, 0, 64, 0, 64, 64]
    assert result.served[-1].ttft_s == pytest.approx(4.0)  # 64 tokens at 16 a second
    assert result.host_hit_rate == pytest.approx(64 / (6 * 65))


def test_affinity_finds_more_than_taking_turns() -> None:
    traffic = OpenLoop(Poisson(8.0), 3000, Fixed(2000), Uniform(50, 150), Prefixes(40, 1600, 0.9))
    rates = {}
    for router in ("round_robin", "prefix_affinity", "slo_aware"):
        pool = Pool(SERVER, 40_000, replicas=4, share_prefixes=True, router=router)
        result = simulate(Fleet(pool), traffic)
        rates[router] = result.cache_hit_rate, result.latency["ttft_s"].mean.value
    assert rates["prefix_affinity"][0] > 1.5 * rates["round_robin"][0]
    assert rates["prefix_affinity"][1] < rates["round_robin"][1]
    assert rates["slo_aware"][1] < rates["round_robin"][1]


def test_looking_at_load_beats_taking_turns() -> None:
    """Where places are short the fewest requests matter, where prompts are long the predicted first token does."""
    traffic = OpenLoop(Poisson(12.0), 4000, Lognormal(1500, 2.0, 20_000), Lognormal(200, 1.5, 2000))

    def late(router: str, sequences: int) -> float:
        pool = Pool(SERVER, 400_000, Scheduler("chunked", sequences=sequences), replicas=4, router=router)
        return simulate(Fleet(pool), traffic).latency["ttft_s"].p95.value

    assert late("least_loaded", 16) < 0.8 * late("round_robin", 16)
    assert late("slo_aware", 256) < 0.8 * late("round_robin", 256)


def test_equal_replicas_share_equally() -> None:
    for router in ("round_robin", "least_loaded", "prefix_affinity", "slo_aware"):
        result = simulate(
            Fleet(Pool(SERVER, 100_000, replicas=4, router=router)), OpenLoop(Poisson(8.0), 400, Fixed(500), Fixed(50))
        )
        shares = [each.output_tokens for each in result.replicas]
        assert sum(shares) == 400 * 50
        assert max(shares) < 1.35 * min(shares)


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "prefix_affinity", "slo_aware"])
def test_idle_replicas_take_turns(router: str) -> None:
    result = simulate(
        Fleet(Pool(SERVER, 100_000, replicas=4, router=router)),
        replay([SimulatedRequest(n, 100.0 * n, 50, 5) for n in range(8)]),
    )
    assert [each.output_tokens for each in result.replicas] == [10] * 4


def test_a_cache_is_taken_in_when_its_next_token_has_room() -> None:
    """Four pages: the first sequence holds three by then; the second has one full page and would need
    its next at once."""
    pool, prefill = Pool(TIMES, 64, Scheduler(watermark=0.0)), Pool(TIMES, 64)
    calls = [SimulatedRequest(0, 0.0, 32, 10), SimulatedRequest(1, 3.0, 16, 2)]
    one, two = simulate(Fleet(pool, prefill), replay(calls), SimulationOptions(keep=True)).served
    assert one.e2e_s == pytest.approx(1.352 + 9)
    assert two.arrival_s + two.e2e_s == pytest.approx(1.352 + 9 + 1)
    assert one.preemptions == two.preemptions == 0


def test_prefill_here_decode_there() -> None:
    """1.5 s + 1 s of prompts, each sent for 0.05 and 0.1 s, then decoded together."""
    fleet = Fleet(Pool(TIMES, 1000), prefill=Pool(TIMES, 1000, Scheduler("continuous", sequences=1)))
    calls = [SimulatedRequest(0, 0.0, 50, 11), SimulatedRequest(1, 0.0, 100, 11)]
    one, two = simulate(fleet, replay(calls), SimulationOptions(keep=True)).served
    assert one.ttft_s == pytest.approx(1.5 + 0.05)
    assert one.e2e_s == pytest.approx(1.55 + 10)
    assert two.ttft_s == pytest.approx(1.5 + 2.0 + 0.1)
    assert two.e2e_s == pytest.approx(4.55 + 10)  # joins at the end of the first one's third step


def test_transfers_share_a_replicas_link() -> None:
    slow = LinearTimes(1.0, send_s=0.1)
    fleet = Fleet(Pool(slow, 1000), prefill=Pool(slow, 1000))
    stories = simulate(
        fleet, replay([SimulatedRequest(n, 0.0, 50, 2) for n in range(3)]), SimulationOptions(keep=True)
    ).served
    assert [each.ttft_s for each in stories] == pytest.approx([6.0, 11.0, 16.0])


def test_an_answer_of_one_token_is_not_sent() -> None:
    fleet = Fleet(Pool(TIMES, 1000), prefill=Pool(TIMES, 1000))
    (one,) = simulate(fleet, replay([SimulatedRequest(0, 0.0, 100, 1)]), SimulationOptions(keep=True)).served
    assert one.e2e_s == pytest.approx(2.0)


def test_a_replica_that_dies_loses_no_request() -> None:
    """It has given 4 of 11 tokens (2 s, then 3 steps) when it dies; the other replica prefills 104 and
    gives the rest."""
    fleet = Fleet(Pool(TIMES, 1000, replicas=2), failures=(Failure(0, 5.5, 10.0),))
    run = finished_run(
        fleet,
        replay(
            [SimulatedRequest(0, 0.0, 100, 11), SimulatedRequest(1, 20.0, 100, 1), SimulatedRequest(2, 21.0, 100, 1)]
        ),
    )
    one, *others = run.tally.served or ()
    assert (one.retries, one.replica) == (1, 1)
    assert one.ttft_s == pytest.approx(2.0)
    assert one.e2e_s == pytest.approx(5.5 + 2.04 + 6)
    assert {each.replica for each in others} == {0, 1}
    check_books(run)


def test_with_nobody_left_requests_wait_or_are_refused() -> None:
    traffic = replay([SimulatedRequest(0, 1.0, 100, 2)])
    back = simulate(Fleet(Pool(TIMES, 1000), failures=(Failure(0, 0.5, 10.0),)), traffic, SimulationOptions(keep=True))
    assert back.served[0].queue_s == pytest.approx(9.5)
    gone = simulate(Fleet(Pool(TIMES, 1000), failures=(Failure(0, 0.5),)), traffic)
    assert gone.outcome.refused == {NO_REPLICA: 1}


def test_failures_under_load_are_survived() -> None:
    failures = tuple(Failure(n % 4, 20.0 + 15 * n, 30.0) for n in range(6))
    fleet = Fleet(Pool(SERVER, 30_000, replicas=4, router="least_loaded", share_prefixes=True), failures=failures)
    traffic = OpenLoop(Poisson(10.0), 1500, Uniform(100, 3000), Uniform(1, 300), Prefixes(5, 500))
    run = finished_run(fleet, traffic)
    assert run.tally.finished == 1500
    assert run.tally.retried > 20
    check_books(run)


def test_scaling_follows_the_day() -> None:
    rule = Autoscale(1, 8, target=10.0, startup_s=5.0, every_s=5.0)
    fleet = Fleet(Pool(SERVER, 100_000, autoscale=rule, router="least_loaded"))
    run = finished_run(fleet, OpenLoop(Diurnal(8.0, 0.9, 600.0), 9000, Fixed(500), Fixed(200)))
    check_books(run)
    replicas = dict(run.series.means("up", run.now))
    day = [value for time, value in replicas.items() if 120 < time % 600 < 200]
    night = [value for time, value in replicas.items() if 420 < time % 600 < 500]
    assert sum(day) / len(day) > 3 * sum(night) / len(night)
    assert min(replicas.values()) > 1 - 1e-9
    assert max(replicas.values()) <= 8 + 8  # those that leave finish what they have


def test_scaling_helps() -> None:
    traffic = OpenLoop(Poisson(12.0), 3000, Fixed(1000), Fixed(200))
    one = simulate(Fleet(Pool(SERVER, 100_000)), traffic)
    rule = Autoscale(1, 4, target=20.0, startup_s=1.0)
    more = simulate(Fleet(Pool(SERVER, 100_000, autoscale=rule, router="least_loaded")), traffic)
    assert more.latency["e2e_s"].p99.value < one.latency["e2e_s"].p99.value / 2


def overloaded_by(signal: str, target: float, **more) -> SimulationResult:
    """A fleet that grows from one replica under the load of about three."""
    rule = Autoscale(1, 4, target, startup_s=1.0, every_s=2.0, on=signal, hold_s=30.0, **more)
    fleet = Fleet(Pool(SERVER, 30_000, Scheduler(sequences=24), autoscale=rule, router="least_loaded"))
    return simulate(fleet, OpenLoop(Poisson(12.0), 800, Fixed(1000), Fixed(200)))


@pytest.mark.parametrize(("signal", "target"), [("requests", 20.0), ("queue", 4.0), ("kv", 0.5), ("ttft", 0.5)])
def test_every_signal_starts_the_replicas_that_are_short(signal: str, target: float) -> None:
    result = overloaded_by(signal, target)
    assert len(result.replicas) > 1
    assert result.latency["ttft_s"].p99.value < overloaded_by(signal, 1e9).latency["ttft_s"].p99.value / 2


def test_a_scaled_pool_that_is_near_its_target_stays_as_it_is() -> None:
    """Within a tenth nothing changes; otherwise in proportion, and down only after the looks of `hold_s` agree."""
    rule = Autoscale(1, 16, 10.0, on="queue", hold_s=5.0)
    scaler = Autoscaler(rule, Tally({}, 0, 1, False))
    pool = [SimpleNamespace(waiting=[0] * 10) for _ in range(4)]
    wants = [scaler.wanted(pool, parked, now) for now, parked in ((0.0, 3), (1.0, 20), (2.0, 0), (6.0, 0), (6.5, 0))]
    assert wants == [4, 6, 6, 6, 4]


def test_a_schedule_decides_by_the_clock() -> None:
    result = overloaded_by("requests", 1.0, schedule=((0.0, 1), (20.0, 3), (40.0, 2)))
    up = dict(result.series["replicas"])
    for at, count in ((10.0, 1), (30.0, 3)):
        assert up[min(up, key=lambda time: abs(time - at))] == pytest.approx(count, abs=0.05)


@pytest.mark.parametrize("signal", ["requests", "queue", "kv"])
def test_a_fleet_scales_to_zero_and_its_first_request_waits_for_the_start(signal: str) -> None:
    """Two pairs of requests, ten minutes apart: each pair finds nobody, and one replica starts for both."""
    rule = Autoscale(0, 4, target=8.0, startup_s=60.0, every_s=10.0, on=signal)
    fleet = Fleet(Pool(SERVER, 100_000, replicas=0, autoscale=rule, router="least_loaded"))
    times = (5.0, 15.0, 605.0, 620.0)
    requests = [SimulatedRequest(number, time, 500, 20) for number, time in enumerate(times)]
    run = finished_run(fleet, replay(requests))
    check_books(run)
    waits = [one.queue_s for one in run.tally.served]
    assert waits == pytest.approx([60.0, 50.0, 60.0, 45.0], abs=0.5)
    assert len(run.places) == 1
    up = dict(run.series.means("up", run.now))
    assert up[min(up, key=lambda time: abs(time - 400.0))] == 0
    assert run.serve.up_s < 60


def test_a_fleet_that_scales_to_zero_keeps_a_replica_while_anybody_is_served() -> None:
    """One request of two minutes: nobody queues, and its replica stays."""
    rule = Autoscale(0, 4, target=4.0, startup_s=1.0, every_s=5.0, on="queue")
    fleet = Fleet(Pool(SERVER, 100_000, replicas=0, autoscale=rule, router="least_loaded"))
    alone = [SimulatedRequest(0, 0.0, 500, 4000), SimulatedRequest(1, 60.0, 500, 20)]
    run = finished_run(fleet, replay(alone))
    first, second = sorted(run.tally.served, key=lambda one: one.number)
    assert first.e2e_s > 61
    assert (first.queue_s, second.queue_s) == (pytest.approx(1.0), pytest.approx(0.0, abs=0.1))


def test_what_cannot_be_scaled_is_refused() -> None:
    for least, most in ((-1, 4), (0, 0)):
        with pytest.raises(InputError, match=r"write 0 or more for the least and 1 or more for the most, as in 0\.\.4"):
            Autoscale(least, most, 4.0)
    with pytest.raises(InputError, match="A pool has 0 replicas; it needs at least 1, or autoscaling from 0"):
        Pool(SERVER, 1000, replicas=0)
    with pytest.raises(InputError, match="A pool has 0 replicas"):
        Pool(SERVER, 1000, replicas=0, autoscale=Autoscale(1, 4, 4.0))


def test_notice_saves_what_can_end_in_time() -> None:
    """Requests of a second each: told two seconds before, a replica ends them all; without, they begin again."""
    traffic = OpenLoop(Poisson(8.0), 300, Fixed(100), Fixed(40))
    runs = [
        finished_run(
            Fleet(Pool(SERVER, 100_000, replicas=3), failures=(Failure(0, 10.0 - notice, 5.0, "serve", notice),)),
            traffic,
        )
        for notice in (0.0, 4.0)
    ]
    for run in runs:
        check_books(run)
    assert runs[0].tally.retried > 0 == runs[1].tally.retried
    assert runs[1].places[0][1].epoch == 1


def test_replicas_that_fail_by_chance_are_away_as_long_as_that_takes() -> None:
    """Up for the mean time, then down: the part of the time that is served is mtbf / (mtbf + down)."""
    fleet = Fleet(Pool(SERVER, 100_000, replicas=20, router="least_loaded"), faults=Faults(60.0, 20.0))
    run = finished_run(fleet, OpenLoop(Poisson(4.0), 2400, Fixed(100), Fixed(20)))
    check_books(run)
    assert run.series.area("up") / (20 * run.now) == pytest.approx(0.75, abs=0.04)
    assert sum(replica.epoch for _, replica in run.places) == pytest.approx(20 * run.now / 80, rel=0.25)


def test_goodput_counts_who_met_both_targets() -> None:
    traffic = OpenLoop(Poisson(2.0), 500, Uniform(100, 3000), Uniform(2, 100))
    options = SimulationOptions(keep=True, ttft_s=0.15, tpot_s=0.03, warmup=0.1)
    result = simulate(Fleet(Pool(SERVER, 100_000)), traffic, options)
    good = sum(each.ttft_s <= 0.15 and each.tpot_s <= 0.03 for each in result.served)
    assert 0 < good < len(result.served) == 450
    assert result.throughput.good_share == good / 450
    assert result.latency["ttft_s"].count == 450


def test_summaries_agree_with_the_kept_stories() -> None:
    result = simulate(
        Fleet(Pool(SERVER, 100_000)),
        OpenLoop(Poisson(4.0), 3000, Uniform(100, 3000), Uniform(2, 100)),
        SimulationOptions(keep=True),
    )
    for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s"):
        values = sorted(getattr(each, name) for each in result.served)
        summary = result.latency[name]
        assert summary.mean.value == pytest.approx(sum(values) / len(values))
        assert summary.p99.value == pytest.approx(values[2969], rel=0.006)
        assert summary.p50.value == pytest.approx(values[1499], rel=0.006)
        assert (summary.least, summary.most) == (values[0], values[-1])
        assert summary.p99.low < summary.p99.value < summary.p99.high


def test_a_trace_of_the_run_opens_and_is_bounded(tmp_path) -> None:
    fleet = Fleet(Pool(SERVER, 100_000, replicas=2))
    result = simulate(fleet, OpenLoop(Poisson(4.0), 500, Fixed(500), Fixed(50)), SimulationOptions(events=300))
    path = tmp_path / "trace.json"
    save_trace(result.trace, str(path))
    events = json.loads(path.read_text())["traceEvents"]
    own = [event for event in events if event["pid"] != FLEET]
    assert 250 < len(own) <= 300 + 4
    slices = [event for event in events if event["ph"] == "X"]
    for index in (0, 1):
        track = [event for event in slices if event["tid"] == index]
        for before, after in pairwise(track):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    begun = {event["id"] for event in events if event["ph"] == "b"}
    assert begun == {event["id"] for event in events if event["ph"] == "e"}
    assert any(event["ph"] == "C" and "pages" in event["args"] for event in events)
    for name, title in COUNTERS.items():  # of the whole fleet, over all of the run
        track = [(event["ts"] / 1e6, event["args"]["value"]) for event in events if event["name"] == title]
        scale = 100 if "%" in title else 1
        assert track == [(pytest.approx(at), round(scale * value, 6)) for at, value in result.series[name]]
    assert max(event["ts"] for event in events if event["pid"] == FLEET and event["ph"] == "C") > 0.9e6 * result.seconds


def test_progress_is_told() -> None:
    told: list[int] = []
    simulate(
        Fleet(Pool(SERVER, 100_000)), OpenLoop(AtOnce(), 5000, Fixed(10), Fixed(2)), SimulationOptions(), told.append
    )
    assert told
    assert told == sorted(told)


def test_memory_does_not_grow_with_the_run() -> None:
    """Everything a run keeps is of a size that does not depend on its length."""
    sizes = []
    for requests in (2000, 8000):
        run = finished_run(
            Fleet(Pool(SERVER, 50_000, share_prefixes=True)),
            ClosedLoop(20, requests, Fixed(500), Uniform(10, 50), prefixes=Prefixes(50, 400)),
            SimulationOptions(),
        )
        buckets = sum(len(batch[2]) for times in run.tally.times.values() for batch in times._batches)
        replica = run.places[0][1]
        kept = len(replica.batch.ends) + len(replica.pages.refs) + len(run.shared.heap) + len(run.serve.router.homes)
        sizes.append((buckets < 20_000, kept < 200, len(run.series.areas["up"])))
    assert sizes[0] == sizes[1] == (True, True, 512)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Fleet(Pool(TIMES, 1000), failures=(Failure(1, 0.0),)),
        lambda: Fleet(Pool(TIMES, 1000), failures=(Failure(0, 0.0, pool="prefill"),)),
        lambda: Fleet(Pool(TIMES, 1000, Scheduler("static")), prefill=Pool(TIMES, 1000)),
        lambda: Failure(0, 0.0, pool="other"),
        lambda: Autoscale(3, 2, 1.0),
        lambda: Pool(TIMES, 1000, replicas=0),
    ],
)
def test_impossible_fleets_are_refused(wrong) -> None:
    with pytest.raises(InputError):
        wrong()


def test_time_to_the_first_token_is_that_of_requests_since_the_last_look() -> None:
    """Ten requests took 1 s each, then two took 4 s each: the second look sees 4 s, twice the target."""
    tally = Tally({}, 0, 1, False)
    scaler = Autoscaler(Autoscale(1, 16, 2.0, on="ttft"), tally)
    pool = [SimpleNamespace(waiting=[]) for _ in range(2)]
    tally.firsts, tally.firsts_s = 10, 10.0
    assert scaler.wanted(pool, 0, 1.0) == 1
    tally.firsts, tally.firsts_s = 12, 18.0
    assert scaler.wanted(pool, 0, 2.0) == 4
