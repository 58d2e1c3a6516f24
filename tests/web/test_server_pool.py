"""Whose turn it is, and which worker gets which question, tried on a pool whose processes are not started."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")

from dragonscale.web.answers import answer
from dragonscale.web.kept import key_of
from dragonscale.web.page_request import KEPT
from dragonscale.web.server.lanes import BEHIND, QUICK, SLOW
from dragonscale.web.server.pool import PageWorker, WorkerPool
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Crowded, Turn, TurnQueue


def put(queue: TurnQueue, lane: str, count: int = 1) -> None:
    for index in range(count):
        queue.put(Turn(f"{lane} {index}".encode(), lane))


def order(queue: TurnQueue, eligible: Callable[[Turn], bool] = lambda _: True) -> list[str]:
    found = []
    while (turn := queue.next(eligible)) is not None:
        found.append(turn.body.decode())
    return found


def test_turns_come_by_lane_and_in_a_lane_in_their_order() -> None:
    queue = TurnQueue(9)
    put(queue, BEHIND, 2)
    put(queue, SLOW, 2)
    put(queue, QUICK, 2)
    assert order(queue) == ["quick 0", "quick 1", "slow 0", "slow 1", "behind 0", "behind 1"]


def test_what_is_full_is_refused_and_nothing_is_kept_of_those_who_left() -> None:
    queue = TurnQueue(3)
    put(queue, QUICK, 2)
    put(queue, SLOW)
    with pytest.raises(Crowded, match="3 questions wait already"):
        put(queue, QUICK)
    for turn in queue.all_waiting():
        assert queue.drop(turn)
        assert not queue.drop(turn)
    assert queue.waiting == 0


@given(st.lists(st.sampled_from([QUICK, SLOW, BEHIND]), max_size=30))
@settings(max_examples=30)
def test_nothing_is_lost_and_quick_work_never_waits_for_slow(lanes: list[str]) -> None:
    queue = TurnQueue(30)
    for lane in lanes:
        put(queue, lane)
    quick = order(queue, lambda turn: turn.lane == QUICK)
    assert len(quick) == lanes.count(QUICK)
    assert len(order(queue)) == len(lanes) - len(quick)
    assert queue.waiting == 0


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    found = WorkerPool(PageSettings(workers=3))
    for worker in found.workers:
        worker.state = "ready"
    yield found
    shutil.rmtree(found.folder)


def asked(pool: WorkerPool, lane: str = QUICK, key: str = "") -> Turn:
    turn = Turn(b"{}", lane, key)
    pool.submit(turn)
    return turn


def worker_of(pool: WorkerPool, turn: Turn) -> PageWorker | None:
    return next((one for one in pool.workers if one.turn is turn), None)


def done(pool: WorkerPool, turn: Turn, held: tuple[str, ...] = ()) -> PageWorker:
    worker = worker_of(pool, turn)
    assert worker is not None
    worker.heard(b"e" + json.dumps(held).encode())
    assert turn.over
    return worker


def test_the_worker_that_was_asked_last_is_asked_again(pool: WorkerPool) -> None:
    last = done(pool, asked(pool))
    assert all(done(pool, asked(pool)) is last for _ in range(3))
    held = asked(pool)
    assert worker_of(pool, held) is last
    other = worker_of(pool, asked(pool))
    assert other not in (None, last), "the next question does not wait for it"
    assert done(pool, held) is last


def test_one_worker_is_kept_free_of_slow_work(pool: WorkerPool) -> None:
    slow = [asked(pool, SLOW) for index in range(3)]
    assert [worker_of(pool, one) is not None for one in slow] == [True, True, False]
    quick = [asked(pool, QUICK) for _ in range(2)]
    assert [worker_of(pool, one) is not None for one in quick] == [True, False]
    done(pool, quick[0])
    assert worker_of(pool, quick[1]) is not None
    assert worker_of(pool, slow[2]) is None
    done(pool, slow[0])
    assert worker_of(pool, slow[2]) is not None


def test_a_record_that_a_worker_remembers_is_no_search(pool: WorkerPool) -> None:
    knows = done(pool, asked(pool, SLOW, key="7"), ("7",))
    assert knows.keys
    searches = [asked(pool, SLOW) for _ in range(2)]
    assert worker_of(pool, asked(pool, SLOW, key="8")) is None, "another search waits"
    again = asked(pool, SLOW, key="7")
    assert worker_of(pool, again) is knows
    assert not knows.slow
    assert all(worker_of(pool, one) not in (None, knows) for one in searches)


def test_a_record_that_a_worker_has_dropped_is_a_search_again(pool: WorkerPool) -> None:
    knows = done(pool, asked(pool, SLOW, key="7"), ("7",))
    assert done(pool, asked(pool, QUICK), ("8",)) is knows
    again = asked(pool, SLOW, key="7")
    worker = worker_of(pool, again)
    assert worker is not None
    assert worker.slow


def test_records_of_other_commands_and_brief_ones_have_other_names() -> None:
    fields = {"model": "llama3-8b", "on": "h100:8"}
    of = [key_of({"view": view, "fields": fields}) for view in ("train", "serve", "simulate")]
    assert len(set(of)) == 3
    assert key_of({"view": "why", "of": "serve", "fields": fields}) == of[1]
    none = ({"view": "compare", "columns": []}, {"view": "export"}, {"view": "train", "fields": fields, "brief": True})
    assert [key_of(one) for one in none] == ["", "", ""]


def test_positions_of_a_slider_push_no_search_out() -> None:
    KEPT.clear()
    request = {
        "view": "train",
        "fields": {"model": "llama3-8b", "on": "h100:8", "plan": "fsdp8", "alone": True, "batch": "64seq", "seq": 4096},
        "panels": ["record"],
    }
    said: list[dict[str, object]] = []
    answer(request, said.append)
    answer(request | {"brief": True}, said.append)
    assert said[-1].get("done"), said[-1]
    assert KEPT.keys() == [key_of(request)], (
        "the worker and the server name it alike, and a brief one is kept elsewhere"
    )


def test_workers_that_cannot_be_started_are_tried_again_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dragonscale.workers.subprocess.Popen", refuses)
    monkeypatch.setattr("dragonscale.workers.WAITS", (0.0, 0.0))

    async def tried() -> None:
        pool = WorkerPool(PageSettings(workers=2))
        await pool.start()
        assert await asyncio.wait_for(pool.ready(), 20) is False
        await asyncio.wait_for(asyncio.gather(*pool._tasks[:2]), 20)
        with pytest.raises(Crowded, match="cannot be started"):
            asked(pool)
        await pool.close()

    asyncio.run(tried())


def test_those_who_leave_are_dropped_and_those_whose_worker_dies_are_told(pool: WorkerPool) -> None:
    running = [asked(pool, SLOW) for index in range(2)]
    waiting = asked(pool, SLOW)
    pool.leave(waiting)
    assert waiting.over
    assert pool.queue.waiting == 0
    pool.leave(running[0])
    assert not running[0].over, "its worker is told, and ends it"
    done(pool, running[0])
    worker = worker_of(pool, running[1])
    assert worker is not None
    worker.state = "dead"
    running[1].begun -= 1.0
    pool.died(worker)
    assert running[1].over
    assert "died" in json.loads(running[1].unread[-1])["error"]["text"]


def test_a_question_that_a_dying_worker_was_just_given_is_asked_again(pool: WorkerPool) -> None:
    turn = asked(pool)
    worker = worker_of(pool, turn)
    assert worker is not None
    worker.state = "dead"
    pool.died(worker)
    other = worker_of(pool, turn)
    assert other not in (None, worker)
    assert not turn.over
    assert other is not None
    other.state = "dead"
    pool.died(other)
    assert turn.over, "once"


def test_a_curve_behind_the_page_gives_way_to_a_question_and_begins_anew(pool: WorkerPool) -> None:
    curves = [asked(pool, BEHIND), asked(pool, BEHIND)]
    held = [one.worker for one in curves]
    assert [worker_of(pool, one) for one in curves] == held  # one of three workers is kept free of slow work
    search = asked(pool, SLOW)
    assert worker_of(pool, search) is None
    assert [one.gave_way_at is not None for one in curves] == [True, False]
    held[0].heard(b"m" + b'{"panel": "best_batches", "data": {}}')  # too late to be heard
    assert not curves[0].unread
    held[0].heard(b"e[]")
    assert worker_of(pool, search) is not None
    assert not curves[0].over
    assert curves[0].gave_way_at is None
    done(pool, search)
    assert worker_of(pool, curves[0]) is not None
    done(pool, curves[0])


def test_a_curve_that_gave_way_does_not_begin_before_it(pool: WorkerPool) -> None:
    curves = [asked(pool, BEHIND), asked(pool, BEHIND)]
    search = asked(pool, SLOW)
    gave_way = [one for one in curves if one.gave_way_at is not None]
    assert len(gave_way) == 1
    gave_way[0].worker.heard(b"e[]")
    assert worker_of(pool, search) is not None
    assert worker_of(pool, gave_way[0]) is None


def test_a_slow_panel_is_behind_unless_all_are_asked() -> None:
    from dragonscale.web.server.lanes import lane_of

    fields = {"model": "llama3-8b", "on": "h100:8"}
    assert lane_of({"view": "train", "fields": fields, "panels": ["answer", "best_batches"]}) == BEHIND
    assert lane_of({"view": "train", "fields": fields}) == SLOW
