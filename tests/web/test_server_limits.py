"""The server goes on: limits of time, memory and questions, workers that die, clients that leave or send nonsense."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")

from dragonscale.web.server.pool import JUST
from tests.web.server_under_test import JSON, Served, server_under_test

SEARCH: dict[str, Any] = {
    "view": "train",
    "panels": ["best_batches"],
    "fields": {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "4Mi", "seq": 8192},
}
"""Takes ten seconds or more."""
SLIDER: dict[str, Any] = {"view": "chips", "fields": {"name": "h100"}, "panels": ["sheet"]}
TIGHT: dict[str, Any] = {
    "slow_s": 1.0,
    "idle_s": 1.0,
    "body_s": 1.0,
    "grace_s": 1.0,
}
"""Limits that are soon reached."""


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with server_under_test(**TIGHT) as found:
        yield found


def until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


def test_slow_work_is_stopped_and_leaves_a_worker_free(server: Served) -> None:
    with ThreadPoolExecutor(2) as threads:
        slow = [threads.submit(server.ask, SEARCH) for _ in range(2)]
        assert server.ask(SLIDER)[-1]["done"], "the other worker is free"
        for one in slow:
            error = one.result()[-1]["error"]
            assert (error["kind"], "took more than 1 s" in error["text"]) == ("limit", True)


def test_a_worker_that_dies_costs_its_asker_one_answer(server: Served) -> None:
    assert until(lambda: server.health()["busy"] == 0)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(server.ask, SEARCH)
        assert until(lambda: server.health()["busy"] == 1)
        before = server.health()["restarts"]
        time.sleep(2 * JUST)  # a question that has only just begun is asked again
        for pid in _workers():
            os.kill(pid, signal.SIGKILL)
        error = asked.result()[-1]["error"]
    assert error["text"].startswith("The process that worked on this question died")
    assert server.ask(SLIDER)[-1]["done"]
    assert until(lambda: server.health()["ready"] == 2 and server.health()["restarts"] == before + 2)


def _workers() -> list[int]:
    """Processes of workers that this one started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"dragonscale.web.server.worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def test_a_client_that_leaves_stops_its_work(server: Served) -> None:
    assert until(lambda: server.health()["ready"] == 2 and server.health()["busy"] == 0)
    before = server.health()
    body = json.dumps(SEARCH).encode()
    with server.open() as end:
        head = (
            "POST /api/ask HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
            f"{len(body)}\r\n\r\n"
        )
        end.sendall(head.encode() + body)
        assert until(lambda: server.health()["busy"] == 1)
    assert until(lambda: server.health()["busy"] == 0), "it was given up"
    after = server.health()
    assert after["restarts"] == before["restarts"], "and its worker lives"
    assert after["stopped"] == before["stopped"], "because nobody waited, not because it took too long"


def test_slow_senders_and_idle_connections_are_closed(server: Served) -> None:
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(server.open()) for _ in range(60)]
        for end in ends:
            with contextlib.suppress(OSError):
                end.sendall(b"GET / HTTP/1.1\r\nx-slow: ")
        late = stack.enter_context(server.open())
        late.sendall(
            b"POST /api/ask HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )
        assert server.ask(SLIDER)[-1]["done"]
        for end in ends:
            end.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert end.recv(1) == b""
        late.settimeout(5)
        assert late.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_too_many_questions_are_refused_and_told_when_to_ask_again() -> None:
    with server_under_test(waiting=0) as crowded:
        status, headers, body = crowded.send("POST", "/api/ask", json.dumps(SLIDER).encode(), JSON)
    assert (status, headers["retry-after"]) == (429, "2")
    assert "questions wait already" in json.loads(body)["error"]["text"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["h100:8", "llama3-8b", "/etc/passwd", "fsdp8", "8seq", "\x00", "../x.toml"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
VIEWS = ("chips", "models", "catalogue", "copied", "why", "export", "judge", "nothing")
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "view": st.sampled_from(VIEWS) | VALUES,
        "fields": st.dictionaries(st.sampled_from(["model", "on", "name", "plan", "batch", "x"]), VALUES, max_size=3)
        | VALUES,
        "panels": st.lists(st.sampled_from(["sheet", "record", "answer", "x"]), max_size=2) | VALUES,
        "dropped": VALUES,
        "brief": VALUES,
        "of": VALUES,
        "number": VALUES,
        "set": VALUES,
    },
)


def fuzz(server: Served, request: Any, kinds: tuple[str, ...] = ("input", "infeasible")) -> None:
    status, said, body = server.send("POST", "/api/ask", json.dumps(request).encode(), JSON)
    assert status in (200, 400), (status, body)
    last = json.loads(body.splitlines()[-1])
    assert "done" in last or "error" in last, last
    if "error" in last:
        text = last["error"]["text"]
        assert last["error"]["kind"] in kinds, (request, last)
        assert "\n" not in text
        assert "Traceback" not in text
    assert said["x-content-type-options"] == "nosniff"


@given(REQUESTS | VALUES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_json_is_answered_in_a_sentence(server: Served, request: Any) -> None:
    fuzz(server, request, ("input", "infeasible", "limit"))  # a worker's first answers may take longer than it has here


@pytest.mark.slow
def test_any_json_is_answered_in_a_sentence_always() -> None:
    with server_under_test() as server:

        @given(REQUESTS | VALUES)
        @settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
        def many(request: Any) -> None:
            fuzz(server, request)

        many()


def parallel(server: Served, count: int) -> None:
    """So many at once, each answered as the planner alone answers it."""
    from tests.web.test_server import messages, without_time

    names = ("h100", "v5p", "v5e", "a100", "b200", "h10")
    asked = [{"view": "chips", "fields": {"name": name}, "panels": ["sheet"]} for name in names]
    right = [without_time(json.loads(json.dumps(messages(one)))) for one in asked]
    with ThreadPoolExecutor(count) as threads:
        found = [threads.submit(server.ask, asked[index % len(asked)]) for index in range(count)]
        for index, one in enumerate(found):
            assert without_time(one.result()) == right[index % len(asked)]


def test_parallel_requests_are_all_answered_right(server: Served) -> None:
    parallel(server, 24)


@pytest.mark.slow
def test_two_hundred_parallel_requests_are_all_answered_right() -> None:
    with server_under_test() as server:
        parallel(server, 200)


@pytest.mark.slow
def test_a_worker_that_grows_too_large_is_replaced() -> None:
    with server_under_test(memory_bytes=64 << 20) as server:
        error = server.ask(SEARCH)[-1]["error"]
        assert (error["kind"], "of memory and was stopped" in error["text"]) == ("limit", True)
        assert until(lambda: server.health()["ready"] == 2 and server.health()["restarts"] == 1)
