"""Laws that hold whatever the fleet: nothing is lost, no page leaks, and leaping over equal steps changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.simulation import Fleet, Options
from dragonscale.simulation.loop import NO_REPLICA, Run
from tests.simulation.fleets import closed_traffic, finished_run, fleets, open_traffic, speculating

traffics = open_traffic() | closed_traffic


def check_books(run: Run) -> None:
    """Every request is accounted for, every page is free or a kept block's, every token was counted once."""
    tally = run.tally
    assert run.outstanding == 0
    assert tally.arrived == tally.finished + sum(tally.refused.values())
    assert not run.serve.parked
    assert not run.front.parked
    for _, replica in run.places:
        pages = replica.pages
        assert (pages.private, pages.shared) == (0, 0)
        assert pages.idle_pages == sum(pages.idle.values()) <= pages.capacity
        assert set(pages.refs) == set(pages.idle)
        assert not any(pages.refs.values())
        assert pages.host_pages == sum(pages.host.values()) <= pages.host_capacity
        assert replica.load == len(replica.sending) == 0
        assert (replica.queued, replica.offset, replica.pace) == (0, 0, 0)
    served = tally.served or ()
    assert sorted({each.number for each in served}) == sorted(each.number for each in served)
    for each in served:
        assert 0 <= each.queue_s <= each.ttft_s <= each.e2e_s
        assert each.cached_tokens < each.input_tokens + each.output_tokens


@settings(max_examples=300)
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


@settings(max_examples=200)
@given(fleets(), traffics)
def test_leaping_changes_nothing(fleet: Fleet, traffic) -> None:
    """A run of decode steps advanced in one go, against an event for every step: equal to the last bit."""
    fast = finished_run(fleet, traffic, Options(keep=True))
    slow = finished_run(fleet, traffic, Options(keep=True, leap=False))
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
    fleet = replace(fleet, failures=(), pool=replace(fleet.pool, autoscale=None, router="round_robin"), prefill=None)
    fast = finished_run(fleet, traffic, Options(keep=True)).tally
    slow = finished_run(fleet, traffic, Options(keep=True, leap=False)).tally
    assert fast.finished == slow.finished
    assert fast.all_e2e_s == pytest.approx(slow.all_e2e_s)


@settings(max_examples=30)
@given(fleets(), closed_traffic, st.integers(0, 5))
def test_the_seed_decides(fleet: Fleet, traffic, seed: int) -> None:
    one = finished_run(fleet, traffic, Options(seed=seed, keep=True))
    two = finished_run(fleet, traffic, Options(seed=seed, keep=True))
    assert one.tally.served == two.tally.served
    assert one.now == two.now


@settings(max_examples=60)
@given(fleets(), traffics, st.integers(1, 64))
def test_a_run_can_stop_anywhere(fleet: Fleet, traffic, sixteenths: int) -> None:
    run = finished_run(fleet, traffic, Options(until_s=sixteenths / 16))
    tally = run.tally
    assert tally.arrived == tally.finished + sum(tally.refused.values()) + run.outstanding
    assert run.outstanding >= 0
    assert run.now <= sixteenths / 16
