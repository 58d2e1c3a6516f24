"""Whose turn it is, and which worker gets which question, tried on a pool whose processes are not started."""

import asyncio
import json
import shutil
import time
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
from dragonscale.web.server.turns import Crowded, FairQueue, Turn


def put(queue: FairQueue, address: str, tab: str, lane: str = QUICK, count: int = 1) -> None:
    for index in range(count):
        queue.put(Turn(f"{address} {tab} {index}".encode(), address, tab, lane))


def order(queue: FairQueue, eligible: Callable[[Turn], bool] = lambda _: True) -> list[str]:
    found = []
    while (turn := queue.next(eligible)) is not None:
        found.append(turn.body.decode())
    return found


def test_turns_go_round_between_addresses_then_tabs() -> None:
    queue = FairQueue(PageSettings())
    put(queue, "a", "1", count=3)
    put(queue, "a", "2", count=1)
    put(queue, "b", "1", count=2)
    assert order(queue) == ["a 1 0", "b 1 0", "a 2 0", "b 1 1", "a 1 1", "a 1 2"]


def test_an_address_with_work_under_way_lets_others_pass() -> None:
    queue = FairQueue(PageSettings())
    put(queue, "a", "1", count=2)
    running = queue.next(lambda _: True)
    assert running is not None
    put(queue, "b", "1", count=2)
    first = queue.next(lambda _: True)
    assert first is not None
    assert first.address == "b"
    queue.ended(first)
    assert order(queue) == ["b 1 1", "a 1 1"]


def test_what_is_full_is_refused_and_nothing_is_kept_of_those_who_left() -> None:
    queue = FairQueue(PageSettings(waiting=5, waiting_per_address=3, waiting_per_tab=2))
    put(queue, "a", "1", count=2)
    with pytest.raises(Crowded, match="you sent"):
        put(queue, "a", "1")
    put(queue, "a", "2")
    with pytest.raises(Crowded, match="you sent"):
        put(queue, "a", "3")
    put(queue, "b", "1", count=2)
    with pytest.raises(Crowded, match="others sent"):
        put(queue, "c", "1")
    for turn in queue.all_waiting():
        assert queue.drop(turn)
    assert (queue.waiting, queue.addresses) == (0, {})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12"), st.sampled_from([QUICK, SLOW])), max_size=30))
@settings(max_examples=30)
def test_nothing_is_lost_and_quick_work_never_waits_for_slow(asked: list[tuple[str, str, str]]) -> None:
    queue = FairQueue(PageSettings())
    for address, tab, lane in asked:
        put(queue, address, tab, lane)
    quick = order(queue, lambda turn: turn.lane == QUICK)
    assert len(quick) == sum(lane == QUICK for _, _, lane in asked)
    assert len(order(queue)) == len(asked) - len(quick)
    assert queue.waiting == 0


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    found = WorkerPool(PageSettings(workers=3))
    for worker in found.workers:
        worker.state = "ready"
    yield found
    shutil.rmtree(found.folder)


def asked(pool: WorkerPool, tab: str, lane: str = QUICK, key: str = "", address: str = "a") -> Turn:
    turn = Turn(b"{}", address, tab, lane, key)
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


def test_a_tab_returns_to_its_worker(pool: WorkerPool) -> None:
    first, second = done(pool, asked(pool, "1")), done(pool, asked(pool, "2"))
    assert first is not second
    for tab, worker in (("1", first), ("2", second), ("1", first), ("2", second)):
        assert done(pool, asked(pool, tab)) is worker
    held = asked(pool, "1")
    assert worker_of(pool, asked(pool, "1")) not in (None, first), "it does not wait for it"
    done(pool, held)


def test_one_worker_is_kept_free_of_slow_work(pool: WorkerPool) -> None:
    slow = [asked(pool, str(index), SLOW) for index in range(3)]
    assert [worker_of(pool, one) is not None for one in slow] == [True, True, False]
    quick = [asked(pool, "q", QUICK) for _ in range(2)]
    assert [worker_of(pool, one) is not None for one in quick] == [True, False]
    done(pool, quick[0])
    assert worker_of(pool, quick[1]) is not None
    assert worker_of(pool, slow[2]) is None
    done(pool, slow[0])
    assert worker_of(pool, slow[2]) is not None


def test_a_record_that_a_worker_remembers_is_no_search(pool: WorkerPool) -> None:
    knows = done(pool, asked(pool, "1", SLOW, key="7"), ("7",))
    assert knows.keys
    searches = [asked(pool, tab, SLOW) for tab in ("2", "3")]
    assert worker_of(pool, asked(pool, "4", SLOW, key="8")) is None, "another search waits"
    again = asked(pool, "1", SLOW, key="7")
    assert worker_of(pool, again) is knows
    assert not knows.slow
    assert all(worker_of(pool, one) not in (None, knows) for one in searches)


def test_a_record_that_a_worker_has_dropped_is_a_search_again(pool: WorkerPool) -> None:
    knows = done(pool, asked(pool, "1", SLOW, key="7"), ("7",))
    assert done(pool, asked(pool, "1", QUICK), ("8",)) is knows
    again = asked(pool, "1", SLOW, key="7")
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


@pytest.mark.parametrize(("before", "waiting", "stops"), [(0.0, 0, False), (30.0, 0, True), (0.0, 20, True)])
def test_whoever_has_had_much_gives_way_soon(pool: WorkerPool, before: float, waiting: int, stops: bool) -> None:
    greedy = [asked(pool, f"g{index}", SLOW, address="g") for index in range(2 + waiting)]
    pool.queue.spend(greedy[0], before)
    honest = asked(pool, "1", SLOW, address="h")
    for turn in greedy[:2]:
        worker = worker_of(pool, turn)
        assert worker is not None
        turn.begun -= 4.0
        pool._look(worker, turn)
    assert [turn.over for turn in greedy[:2]] == [stops, stops]
    if stops:
        done(pool, greedy[0])
        assert worker_of(pool, honest) is not None, "before those of the other that wait"


def test_addresses_that_do_not_come_back_are_forgotten() -> None:
    queue = FairQueue(PageSettings(demoted_s=0.0, spent_half_s=0.001))
    put(queue, "a", "1")
    turn = queue.next(lambda _: True)
    assert turn is not None
    queue.addresses["a"].demoted_until = time.monotonic() + 3600
    queue.ended(turn)
    assert "a" in queue.addresses
    queue.addresses["a"].demoted_until = 0.0
    queue._swept = -1e9
    put(queue, "b", "1")
    assert set(queue.addresses) == {"b"}


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
            asked(pool, "1")
        await pool.close()

    asyncio.run(tried())


def test_those_who_leave_are_dropped_and_those_whose_worker_dies_are_told(pool: WorkerPool) -> None:
    running = [asked(pool, str(index), SLOW) for index in range(2)]
    waiting = asked(pool, "9", SLOW)
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
    turn = asked(pool, "1")
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


def test_a_curve_behind_the_page_gives_way_to_its_asker_and_begins_anew(pool: WorkerPool) -> None:
    curves = [asked(pool, "1", BEHIND), asked(pool, "1", BEHIND)]
    held = [one.worker for one in curves]
    assert [worker_of(pool, one) for one in curves] == held  # one of three workers is kept free of slow work
    other = asked(pool, "9", SLOW, address="b")
    assert all(one.gave_way_at is None for one in curves), "somebody else's question interrupts nothing"
    pool.leave(other)
    search = asked(pool, "1", SLOW)
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


def test_a_curve_that_gave_way_to_another_tab_does_not_begin_before_it(pool: WorkerPool) -> None:
    curves = [asked(pool, "1", BEHIND), asked(pool, "2", BEHIND)]
    asked(pool, "3")  # it has more under way than the others
    search = asked(pool, "3", SLOW)
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
