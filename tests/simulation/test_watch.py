"""What is seen of replicas while they run, as equal intervals."""

from types import SimpleNamespace

import pytest

from dragonscale.simulation.watch import FIRST_S, LOOKS, MOMENTS, QUANTITIES, ReplicaWatch


def replica(index: int = 0, running: int = 2, emitted: float = 0.0, busy: bool = True) -> SimpleNamespace:
    """A replica with so many requests that decode, one in prefill, three that wait, and a quarter of its pages used."""
    pages = SimpleNamespace(room=75, capacity=100)
    batch = SimpleNamespace(live=running)
    return SimpleNamespace(
        index=index, pages=pages, batch=batch, prefilling=[1], waiting=[1, 2, 3], emitted=emitted, busy=busy
    )


def test_a_look_is_noted_and_the_next_one_comes_later() -> None:
    watch = ReplicaWatch(2)
    assert watch.look(replica(), 1.0) == 1.0 + FIRST_S
    assert watch.look(replica(busy=False), 2.0) == 2.0
    assert watch.look(replica(index=2), 1.0) == float("inf")
    assert watch.looks == {0: [(1.0, 3, 3, 0.25, 0.0), (2.0, 3, 3, 0.25, 0.0)]}


def test_tracks_are_what_was_last_seen_and_the_slope_of_tokens() -> None:
    watch = ReplicaWatch(1)
    watch.look(replica(running=4, emitted=80.0), 8.0)
    tracks = watch.tracks(16.0)
    assert list(tracks) == [f"{name}:0" for name in QUANTITIES]
    assert all(len(track) == MOMENTS for track in tracks.values())
    width = 16.0 / MOMENTS
    assert tracks["running:0"][0] == pytest.approx((width / 2, 0))
    assert tracks["running:0"][-1] == pytest.approx((16 - width / 2, 5))
    assert tracks["waiting:0"][-1][1] == 3
    assert tracks["pages:0"][-1][1] == pytest.approx(0.25)
    # 80 tokens came out evenly in 8 s, none after
    assert [tracks["tokens:0"][moment][1] for moment in (0, MOMENTS // 2 - 1, MOMENTS // 2)] == pytest.approx(
        [10, 10, 0]
    )
    assert not watch.tracks(0.0)


def test_many_looks_are_thinned_and_then_come_half_as_often() -> None:
    watch = ReplicaWatch(1)
    for number in range(LOOKS + 1):
        watch.look(replica(), number * FIRST_S)
    assert watch.every_s == 2 * FIRST_S
    assert len(watch.looks[0]) == pytest.approx(LOOKS / 2, abs=2)
    assert watch.looks[0][-1].seconds == LOOKS * FIRST_S
