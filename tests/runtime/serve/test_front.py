"""The front over real processes: streams, routing, refusals, a worker killed at work, pages handed over, a drain."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("jax")

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, GenerateRequest
from dragonscale.runtime.server import wire
from dragonscale.runtime.server.front import DIED, Flight, Overfull, ServingFront
from dragonscale.runtime.server.wire import WorkerOrder
from dragonscale.runtime.server.worker import WorkerLoop
from tests.runtime.serve.fake_device import alone
from tests.runtime.serve.fake_worker import build
from tests.runtime.serve.invariants import check_engine

ORDER = WorkerOrder(model="fake", length=256, sequences=4, tokens=64, pages=200, page=4)
HERE = {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))}
READY = wire.WorkerReady(
    **dict.fromkeys(("pages", "page_bytes", "page", "ranks", "devices", "parameters", "programs"), 1),
    **{"device_kind": "none", "load_s": 0.0, "compile_s": 0.0},
)
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


def make(*roles: str, **more: Any) -> ServingFront:
    from msgspec.structs import replace

    orders = [replace(ORDER, role=role) for role in roles]
    return ServingFront(orders, [HERE] * len(roles), module="tests.runtime.serve.fake_worker", **more)


async def read(flight: Flight) -> list[Emitted]:
    return [emitted async for emitted in flight]


async def tokens(flight: Flight) -> list[int]:
    return [token for emitted in await read(flight) for token in emitted.tokens]


async def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        await asyncio.sleep(0.01)


def asked(id: str, count: int = 9, length: int = 12, first: int = 1) -> GenerateRequest:
    return GenerateRequest(id=id, prompt=list(range(first, first + count)), length=length)


@pytest.fixture(scope="module")
def wait() -> Iterator[Wait]:
    loop = asyncio.new_event_loop()
    yield lambda work: loop.run_until_complete(asyncio.wait_for(work, 180))
    loop.close()


@pytest.fixture(scope="module")
def fronts(wait: Wait) -> Iterator[tuple[ServingFront, ServingFront]]:
    """Two replicas behind the router, and a prefill worker with a decode worker, started together."""

    async def begin() -> tuple[ServingFront, ServingFront]:
        both = make("both", "both", router="prefix_affinity", queue=4), make("prefill", "decode")
        await asyncio.gather(*(one.start() for one in both))
        return both

    async def end() -> None:
        await asyncio.gather(*(one.close() for one in found))

    found = wait(begin())
    yield found
    wait(end())


def test_replicas_give_what_one_engine_gives_and_prefixes_stay_together(wait: Wait, fronts: Any) -> None:
    front = fronts[0]

    async def run() -> None:
        requests = [asked(f"r{i}", 5 + 3 * i, first=1 + 50 * (i % 2)) for i in range(8)]
        flights = [front.generate(one) for one in requests]
        homes = {i: flight.worker.index for i, flight in enumerate(flights)}
        assert len({homes[i] for i in (0, 2, 4, 6)}) == 1
        assert {homes[0], homes[1]} == {0, 1}
        assert await asyncio.gather(*map(tokens, flights)) == [alone(one) for one in requests]
        again = front.generate(asked("again", 40))
        assert [one.cached for one in await read(again)][-1] >= 20
        assert not front.flights
        assert not any(one.flights for one in front.workers)

    wait(run())


def test_too_many_are_refused_and_those_who_leave_make_room(wait: Wait, fronts: Any) -> None:
    front = fronts[0]

    async def run() -> None:
        flights = [front.generate(asked(f"f{i}", length=200)) for i in range(front.most)]
        with pytest.raises(InputError, match=f"{front.most + 1} prompts times choices"):
            front.check_room(front.most + 1)
        with pytest.raises(Overfull, match="full") as refused:
            front.generate(asked("more"))
        assert 1 <= refused.value.retry_after <= 60
        for one in flights[1:]:
            await one.aclose()
        assert await tokens(front.generate(asked("more"))) == alone(asked("more"))
        await flights[0].aclose()
        at_rest = {"running": 0, "waiting": 0, "pages_used": 0}
        asked_ones = [one for one in front.workers if one.stats]  # all of a kind may have gone to one
        assert asked_ones
        await until(lambda: all(at_rest.items() <= one.stats.items() for one in asked_ones))

    wait(run())


def test_a_reader_with_enough_has_been_served_and_one_that_is_gone_has_not(wait: Wait, fronts: Any) -> None:
    """A stop string ends the reading early: that is an answer. A client that leaves ends it by cancellation."""
    front, ends = fronts[0], []

    class Ends:
        def came(self, flight: Flight) -> None: ...

        def ended(self, flight: Flight, finish: str) -> None:
            ends.append((flight.request.id, finish))

    async def some(id: str) -> None:
        async with contextlib.aclosing(front.generate(asked(id, length=200))) as flight:
            async for _ in flight:
                if id == "enough":
                    return

    async def run() -> None:
        before, front.record = front.record, Ends()
        await some("enough")
        reader = asyncio.create_task(some("gone"))
        await asyncio.sleep(0.05)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        front.record = before

    wait(run())
    assert ends == [("enough", "stop"), ("gone", "cancelled")]


def test_a_killed_worker_fails_what_it_had_begun_retries_the_rest_and_comes_back(wait: Wait, fronts: Any) -> None:
    front = fronts[0]

    async def run() -> None:
        request = asked("dies", 9, 240)
        begun = front.generate(request)
        await anext(begun)
        worker = begun.worker
        new = asked("new", 9, 20)  # begins alike, so that it goes to the same one; killed before it can have an answer
        waiting = front.generate(new)
        assert waiting.worker is worker
        os.kill(worker.process.pid, signal.SIGKILL)
        last = (await read(begun))[-1]
        assert (last.finish, last.why) == ("error", DIED)
        assert await tokens(waiting) == alone(new)
        assert not front.why
        await until(lambda: worker.state == "ready")
        assert worker.restarts == 1
        assert await tokens(front.generate(asked("after"))) == alone(asked("after"))

    wait(run())


def test_pages_handed_over_give_the_same_tokens_and_leave_no_file(wait: Wait, fronts: Any) -> None:
    front = fronts[1]

    async def run() -> None:
        requests = [asked(f"h{i}", 3 + 7 * i, 2 + 5 * i) for i in range(5)] + [asked("one", 9, 1)]
        flights = [front.generate(one) for one in requests]
        assert await asyncio.gather(*map(tokens, flights)) == [alone(one) for one in requests]
        gone = front.generate(asked("gone", 60, 100))
        await gone.aclose()
        await until(lambda: not os.listdir(front.room.folder))
        assert not front.room.taken

    wait(run())


@pytest.mark.slow
def test_a_dead_decoder_fails_what_it_had_and_frees_the_files(wait: Wait, fronts: Any) -> None:
    front = fronts[1]

    async def run() -> None:
        flight = front.generate(asked("long", 9, 240))
        await until(lambda: flight.tokens > 4)
        decoder = front.workers[1]
        os.kill(decoder.process.pid, signal.SIGKILL)
        assert (await read(flight))[-1].finish == "error"
        await until(lambda: front.why)
        later = front.generate(asked("later"))  # prefilled at once, decoded when there is somebody again
        assert await tokens(later) == alone(asked("later"))
        assert not front.why
        await until(lambda: not os.listdir(front.room.folder))

    wait(run())


def test_the_end_of_a_front_ends_what_is_under_way_and_stops_everything(wait: Wait, fronts: Any) -> None:
    front = fronts[1]

    async def run() -> None:
        flight = front.generate(asked("endless", 9, 240))
        await until(lambda: flight.tokens)
        await front.close()
        assert (await read(flight))[-1].why == "The server is shutting down."
        assert not Path(front.room.folder).exists()
        assert all(one.process.poll() is not None for one in front.workers)

    wait(run())


def test_what_cannot_be_run_is_told_at_the_start(wait: Wait) -> None:
    front = ServingFront([WorkerOrder(model="wrong")], [HERE], module="tests.runtime.serve.fake_worker")
    with pytest.raises(InputError, match="no such model"):
        wait(front.start())


def test_pages_that_cannot_be_written_are_an_error_of_their_request_alone(tmp_path: Path) -> None:
    engine, _ = build(msgspec.structs.replace(ORDER, role="prefill"), lambda *_: None)
    loop = WorkerLoop(pipe=None, engine=engine)  # pyright: ignore[reportArgumentType]
    loop._heard(wire.Submit(asked("full"), into=str(tmp_path / "nowhere" / "1")))
    loop._heard(wire.Submit(asked("fine"), into=str(tmp_path / "2")))
    said = {one.id: one.finish for _ in range(4) for one in map(loop._handed_over, engine.step())}
    assert said == {"full": "error", "fine": "handover"}
    check_engine(engine)
    assert engine.stats()["pages_used"] == 0


def test_a_fault_of_the_front_ends_what_a_worker_had(wait: Wait) -> None:
    """Not the task that listens to it alone, which nobody would notice."""

    class Faulty:
        def came(self, flight: Flight) -> None: ...

        def ended(self, _: Flight, finish: str) -> None:
            if finish != "error":
                raise ValueError("a record that fails")

    async def run() -> None:
        front = make("both", record=Faulty())
        try:
            await front.start()
            long, short = front.generate(asked("long", length=200)), front.generate(asked("short", length=2))
            assert len((await asyncio.wait_for(asyncio.gather(read(long), read(short)), 20))[1]) > 0
            assert long.over
        finally:
            await front.close()

    wait(run())


def test_a_worker_that_ran_is_started_again_whatever_it_said(monkeypatch: pytest.MonkeyPatch, wait: Wait) -> None:
    """The memory of the one that died may not be free yet, which reads as a model that does not fit. After a few deaths
    in a row there is little hope, which a probe is told."""
    monkeypatch.setattr("dragonscale.workers.WAITS", (0.0, 0.0))
    front = make("both")
    worker, starts, told = front.workers[0], [], []

    async def once() -> None:
        starts.append(worker.state)
        if len(starts) == 1:
            worker.facts = "ready once"
        worker.failed = wire.WorkerFailed("There is no room.", wrong=True)
        told.append(front.hopeless)
        worker.state = "stopped" if len(starts) == 4 else worker.state

    worker._once = once
    wait(worker.run())
    assert len(starts) == 4
    assert told == ["", "", "", "worker 0 is starting after it died 3 times in a row: There is no room"]
    worker.heard(wire.encode(READY))
    assert not front.hopeless
    assert not front.why
