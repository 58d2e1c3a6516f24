"""Classes of traffic against theory: priorities (Cobham), Little's law of each class, sessions that grow in order."""

import itertools

import numpy
import pytest

from dragonscale.simulation import (
    Fixed,
    Fleet,
    LinearTimes,
    Poisson,
    Pool,
    Prefixes,
    Scheduler,
    SimulatedRequest,
    SimulationOptions,
    Uniform,
    simulate,
)
from dragonscale.simulation.sessions import BLOCK, Mixed, Pairs, TrafficClass
from tests.simulation.fleets import finished_run

ALONE = Scheduler("continuous", sequences=1, tokens=10_000)


def test_priorities_wait_as_cobham_says() -> None:
    """M/G/1 without preemption: W_k = R / ((1 - s_{k-1})(1 - s_k)), R = sum of rate * E[S^2] / 2, s the loads of all
    classes up to k."""
    times = LinearTimes(2.0**-10, prompt_s=2.0**-10)
    rates, tokens = (0.25, 0.3, 0.3), (1023, 511, 1535)
    pairs = enumerate(zip(rates, tokens, strict=True))
    kinds = tuple(TrafficClass(Poisson(rate), Fixed(n), Fixed(1), priority=place) for place, (rate, n) in pairs)
    fleet = Fleet(Pool(times, 10_000, ALONE))
    result = simulate(fleet, Mixed(kinds, 15_000), SimulationOptions(classes=({},) * 3, seed=1))
    service = [(n + 1) / 1024 for n in tokens]
    rest = sum(rate * s**2 for rate, s in zip(rates, service, strict=True)) / 2
    loads = numpy.cumsum([0.0, *(rate * s for rate, s in zip(rates, service, strict=True))])
    waits = [one.latency["queue_s"].mean.value for one in result.classes]
    theory = [rest / (1 - loads[k]) / (1 - loads[k + 1]) for k in range(3)]
    assert waits == pytest.approx(theory, rel=0.12)
    assert waits[0] < waits[1] < waits[2]


def test_littles_law_of_each_class() -> None:
    """What the classes' requests spend in the system adds up to what the replicas count, and their shares of it are
    those of rate times time."""
    kinds = (
        TrafficClass(Poisson(1.0), Uniform(100, 900), Uniform(10, 90), turns=4, think_s=2.0),
        TrafficClass(Poisson(3.0), Fixed(400), Uniform(1, 200), priority=1),
    )
    fleet = Fleet(Pool(LinearTimes(0.02, 2e-5, 1e-8, 5e-5), 40_000, Scheduler("chunked", sequences=24), replicas=2))
    run = finished_run(fleet, Mixed(kinds, 1500), SimulationOptions(classes=({}, {})))
    total = run.series.area("running") + run.series.area("waiting")
    assert sum(one.all_e2e_s for one in run.kinds) == pytest.approx(total)
    assert sum(one.arrived for one in run.kinds) == run.tally.arrived == 1500
    for one in run.kinds:
        number = one.all_e2e_s / run.now
        assert number == pytest.approx(one.finished / run.now * one.times["e2e_s"].mean, rel=1e-6)


def test_sessions_grow_in_order_and_begin_like_what_they_said() -> None:
    kind = TrafficClass(
        Poisson(1.0),
        Fixed(100),
        Fixed(28),
        turns=3,
        think_s=10.0,
        calls=4,
        pause_s=1.0,
        result=Fixed(50),
        prefixes=Prefixes(3, 256),
        most=4000,
    )
    stream, after = Mixed((kind,), 4000).start(1)
    waits = {"tool": [], "user": []}
    sessions: list[list[SimulatedRequest]] = []
    for request in stream:
        session = [request]
        while (follows := after(session[-1], session[-1].arrival_s)) is not None:
            session.append(follows)
        sessions.append(session)
    for session in sessions:
        assert session[0].input_tokens == 356
        for before, later in itertools.pairwise(session):
            assert later.number > before.number
            added = later.input_tokens - before.input_tokens - before.output_tokens
            waits["user" if added == 100 else "tool"].append(later.arrival_s - before.arrival_s)
            assert added in (50, 100)
            assert later.input_tokens + later.output_tokens <= 4000
            kept = before.input_tokens // BLOCK
            assert later.blocks[:kept] == before.blocks[:kept]
    lengths = [len(session) for session in sessions]
    assert numpy.mean(lengths) == pytest.approx(12, rel=0.1)
    assert numpy.mean(waits["tool"]) == pytest.approx(1.0, rel=0.1)
    assert numpy.mean(waits["user"]) == pytest.approx(10.0, rel=0.15)
    assert len({session[0].blocks[0] for session in sessions}) == 3
    own = [block for session in sessions for block in {*session[-1].blocks[4:]}]
    assert len(own) == len(set(own))


def test_a_session_finds_its_own_prompts_in_the_cache() -> None:
    kind = TrafficClass(Poisson(0.5), Fixed(512), Fixed(1), turns=8, think_s=1.0)
    pool = Pool(LinearTimes(0.01, prompt_s=1e-5), 1_000_000, share_prefixes=True)
    options = SimulationOptions(keep=True, classes=({"ttft_s": 0.0155},))
    result = simulate(Fleet(pool), Mixed((kind,), 400), options)
    later = [one for one in result.served if one.input_tokens > 512]
    assert all(one.cached_tokens >= one.input_tokens - 512 - BLOCK for one in later)
    assert result.classes[0].good_share == result.throughput.good_share
    assert 0 < result.classes[0].met["ttft_s"] < 1


def test_pairs_are_drawn_together_and_rates_scale() -> None:
    pairs = Pairs(((100, 1), (200, 2), (300, 3)))
    mixed = Mixed((TrafficClass(Poisson(2.0), Fixed(1), Fixed(1), pairs=pairs),), 3000)
    requests = list(mixed.start(0)[0])
    assert all(one.input_tokens == 100 * one.output_tokens for one in requests)
    fast = list(mixed.faster(4.0, 1000).start(0)[0])
    assert len(fast) == 1000
    assert fast[-1].arrival_s == pytest.approx(requests[999].arrival_s / 4)


AGENTS = TrafficClass(
    Poisson(2.0), Fixed(640), Fixed(64), turns=2, think_s=20.0, calls=5, pause_s=2.0, result=Fixed(128), most=100_000
)
CALL_S = 3.0


def test_sessions_are_under_way_when_a_run_begins() -> None:
    """Little's law: those that wait for their next call, by how they wait; and calls come at once at their rate."""
    stream, _ = Mixed((AGENTS,), 20_000, CALL_S).start(3)
    begun = [one for one in itertools.islice(stream, 2000) if one.warm]
    per_s = 2.0 * 2 * 5  # calls
    tools, turns = per_s * (1 - 1 / 5), per_s / 5 * (1 - 1 / 2)
    expected = tools * (CALL_S + 2) + turns * (CALL_S + 20)
    assert len(begun) == pytest.approx(expected, rel=0.15)
    soon = [one for one in begun if one.arrival_s < 1]
    assert len(soon) == pytest.approx(tools + turns, rel=0.35)
    # a session that waits has made geometrically many calls, ten on average
    said = [one.warm * BLOCK for one in begun]
    assert numpy.mean(said) == pytest.approx(640 + 9 * (64 + 128 * 8 / 9 + 640 / 9), rel=0.3)
    assert all(one.input_tokens > one.warm * BLOCK for one in begun)


def test_a_run_of_sessions_is_steady_from_the_beginning() -> None:
    """Without sessions under way a run begins with first calls alone, a tenth of all."""
    times = LinearTimes(0.01, prompt_s=1e-5)
    pool = Pool(
        times,
        4_000_000,
        Scheduler(sequences=400, tokens=4096),
        share_prefixes=True,
        replicas=2,
        router="session_sticky",
    )
    rates, hits = [], []
    for call_s in (None, 0.7):
        traffic = Mixed((AGENTS,), 400, call_s).faster(4.0, 1600)
        result = simulate(Fleet(pool), traffic, SimulationOptions(classes=({},), warmup=0.1))
        first, *_, last = (one for one in result.checkpoints if one.arrived <= 800)
        rates.append((last.arrived - first.arrived) / (last.seconds - first.seconds))
        hits.append(result.cache_hit_rate)
        assert result.outcome.arrived == result.outcome.finished == 1600
    assert rates[0] < 60
    assert rates[1] == pytest.approx(80, rel=0.15)
    assert hits[1] > 0.85  # what they said before is where they go


def test_a_run_takes_no_more_requests_than_it_was_asked_for() -> None:
    """Sessions that wait when the last one has come are dropped, whenever they would have gone on."""
    pool = Pool(LinearTimes(0.01, prompt_s=1e-5), 1_000_000, share_prefixes=True)
    slow = TrafficClass(Poisson(2.0), Fixed(64), Fixed(8), turns=20, think_s=500.0)
    result = simulate(Fleet(pool), Mixed((slow,), 300, 0.1), SimulationOptions(classes=({},)))
    assert result.outcome.arrived == 300
    assert result.seconds < 15  # 40 calls a second
