"""Laws that hold whatever the fleet: nothing is lost, no page leaks, and leaping over equal steps changes nothing."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.simulation import (
    Brought,
    ClosedLoop,
    Failure,
    Fleet,
    Pool,
    Prefixes,
    Scheduler,
    SimulationOptions,
    Uniform,
)
from dragonscale.simulation.fleet import ROUTERS
from dragonscale.simulation.loop import NO_REPLICA, Simulation
from tests.simulation.fleets import (
    EXACT,
    TIERS,
    closed_traffic,
    finished_run,
    fleets,
    mixed_traffic,
    open_traffic,
    speculating,
)

traffics = open_traffic() | closed_traffic | mixed_traffic


def check_books(run: Simulation) -> None:
    """Every request is accounted for, every page is free or a kept block's, every token was counted once."""
    tally = run.tally
    assert run.outstanding == 0
    assert tally.arrived == tally.finished + sum(tally.refused.values())
    assert not any(group.parked for group in run.groups)
    for _, replica in run.places:
        pages = replica.pages
        assert (pages.private, pages.shared) == (0, 0)
        assert pages.idle_pages == sum(pages.idle.values()) <= pages.capacity
        assert set(pages.refs) == set(pages.idle)
        assert not any(pages.refs.values())
        for tier in pages.tiers:
            assert tier.pages == sum(tier.blocks.values()) <= tier.capacity
        assert not pages.adapters.users
        assert len(pages.adapters.idle) <= pages.adapters.slots
        assert replica.load == len(replica.sending) == 0
        assert (replica.unprefilled, replica.batch.offset, replica.batch.pace) == (0, 0, 0)
    served = tally.served or ()
    assert sorted({each.number for each in served}) == sorted(each.number for each in served)
    for each in served:
        assert 0 <= each.queue_s <= each.ttft_s <= each.e2e_s
        assert each.cached_tokens < each.input_tokens + each.output_tokens


@settings(max_examples=200)
@given(fleets(), traffics)
def test_nothing_is_lost(fleet: Fleet, traffic) -> None:
    run = finished_run(fleet, traffic)
    check_books(run)
    if NO_REPLICA not in run.tally.refused:  # else clients may wait for ever
        assert run.tally.arrived == traffic.requests
    emitted = sum(replica.emitted for _, replica in run.places)
    assert emitted >= run.tally.output_tokens
    if not (run.tally.refused and fleet.failures):  # else some may have got a part of their answers
        assert emitted == run.tally.output_tokens


@settings(max_examples=100)
@given(fleets(speculating), traffics)
def test_nothing_is_lost_with_speculation(fleet: Fleet, traffic) -> None:
    check_books(finished_run(fleet, traffic))


@settings(max_examples=150)
@given(fleets(), traffics)
def test_leaping_changes_nothing(fleet: Fleet, traffic) -> None:
    """A run of decode steps advanced in one go, against an event for every step: equal to the last bit."""
    fleet = replace(fleet, faults=None)  # whose times are no multiples of a power of two
    fast = finished_run(fleet, traffic, SimulationOptions(keep=True))
    slow = finished_run(fleet, traffic, SimulationOptions(keep=True, leap=False))
    assert fast.tally.served == slow.tally.served
    assert fast.tally.refused == slow.tally.refused
    assert (fast.tally.preempted, fast.tally.retried) == (slow.tally.preempted, slow.tally.retried)
    assert fast.tally.cached_tokens == slow.tally.cached_tokens
    assert fast.now == slow.now
    for name in ("up", "busy", "running", "waiting"):
        assert fast.series.area(name) == pytest.approx(slow.series.area(name))
    gaps, slow_gaps = fast.tally.times["itl_s"], slow.tally.times["itl_s"]
    assert gaps.count == slow_gaps.count
    assert gaps.mean == pytest.approx(slow_gaps.mean)


@settings(max_examples=60)
@given(fleets(speculating), traffics)
def test_leaping_changes_nothing_with_speculation(fleet: Fleet, traffic) -> None:
    pool = replace(fleet.pool, autoscale=None, router="round_robin", replicas=max(fleet.pool.replicas, 1))
    fleet = replace(fleet, failures=(), pool=pool, prefill=None)
    fast = finished_run(fleet, traffic, SimulationOptions(keep=True)).tally
    slow = finished_run(fleet, traffic, SimulationOptions(keep=True, leap=False)).tally
    assert fast.finished == slow.finished
    assert fast.all_e2e_s == pytest.approx(slow.all_e2e_s)


@settings(max_examples=30)
@given(fleets(), closed_traffic, st.integers(0, 5))
def test_the_seed_decides(fleet: Fleet, traffic, seed: int) -> None:
    one = finished_run(fleet, traffic, SimulationOptions(seed=seed, keep=True))
    two = finished_run(fleet, traffic, SimulationOptions(seed=seed, keep=True))
    assert one.tally.served == two.tally.served
    assert one.now == two.now


@settings(max_examples=60)
@given(fleets(), traffics, st.integers(1, 64))
def test_a_run_can_stop_anywhere(fleet: Fleet, traffic, sixteenths: int) -> None:
    run = finished_run(fleet, traffic, SimulationOptions(until_s=sixteenths / 16))
    tally = run.tally
    assert tally.arrived == tally.finished + sum(tally.refused.values()) + run.outstanding
    assert run.outstanding >= 0
    assert run.now <= sixteenths / 16


def crowded(seed: int) -> tuple[Fleet, ClosedLoop]:
    """More requests than the caches can hold, on engines of every kind that preempts."""
    dice = random.Random(seed)
    draft = dice.choice([0, 0, 3])
    scheduler = Scheduler(
        dice.choice(["continuous", "chunked"]),
        sequences=dice.randint(4, 20),
        tokens=dice.randint(80, 300),
        mixed=dice.choice([None, True, False]),
        watermark=dice.choice([0.0, 0.01]),
        page_tokens=dice.choice([1, 4, 16]),
        draft=draft,
        acceptance=dice.random() if draft else 0.0,
        ahead=dice.choice([0, 1]),
        poll=dice.choice([1, 4]),
    )
    pool = Pool(
        EXACT,
        dice.randint(260, 700),
        scheduler,
        replicas=dice.randint(1, 3),
        router=dice.choice(ROUTERS),
        share_prefixes=dice.random() < 0.5,
        tiers=dice.choice(TIERS),
        adapters=dice.choice([0, 2]),
        adapter_s=0.125,
    )
    failures = (Failure(0, dice.randint(1000, 6000) / 1024, 1.0),)
    prefixes = dice.choice([None, Prefixes(4, 64)])
    return Fleet(pool, None, failures), ClosedLoop(
        30, 90, Uniform(1, 150), Uniform(1, 100), prefixes=prefixes, brought=Brought(Prefixes(3, 1), 0)
    )


def test_under_pressure_nothing_leaks_and_leaping_changes_nothing() -> None:
    preempted = 0
    for seed in range(20):
        fleet, traffic = crowded(seed)
        fast = finished_run(fleet, traffic, SimulationOptions(seed=seed, keep=True))
        slow = finished_run(fleet, traffic, SimulationOptions(seed=seed, keep=True, leap=False))
        check_books(fast)
        assert fast.tally.finished == 90
        if fleet.pool.scheduler.draft:  # steps of speculation are no multiples of a power of two
            assert fast.tally.all_e2e_s == pytest.approx(slow.tally.all_e2e_s)
        else:
            assert fast.tally.served == slow.tally.served
        preempted += fast.tally.preempted
    assert preempted > 300
