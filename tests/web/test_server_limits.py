"""What one client can do to another: nothing. Limits of time and connections, workers that die, floods."""

import contextlib
import http.client
import json
import os
import signal
import statistics
import threading
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

HOSTILE = "127.0.0.2"
SEARCH: dict[str, Any] = {
    "view": "train",
    "panels": ["best_batches"],
    "fields": {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "4Mi", "seq": 8192},
}
"""Takes ten seconds or more."""
SLIDER: dict[str, Any] = {"view": "chips", "fields": {"name": "h100"}, "panels": ["sheet"]}
LATENCY = 1.0
"""Seconds within which an honest client's quick question is answered at the 95th percentile beside a flood; where the
machine is busy with other things, ten times what the question takes without one."""


TIGHT: dict[str, Any] = {
    "slow_s": 1.0,
    "headers_s": 1.0,
    "body_s": 1.0,
    "write_s": 1.0,
    "grace_s": 1.0,
    "connections_per_address": 40,
    "requests_at_once": 50.0,
    "requests_per_s": 50.0,
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
        slow = [threads.submit(server.ask, SEARCH, f"s{index}", HOSTILE) for index in range(2)]
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
        ends = [stack.enter_context(server.open(HOSTILE)) for _ in range(60)]
        for end in ends:
            with contextlib.suppress(OSError):
                end.sendall(b"GET / HTTP/1.1\r\nx-slow: ")
        late = stack.enter_context(server.open(HOSTILE))
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


def test_a_slow_reader_is_cut_off(server: Served) -> None:
    """It asks for more than the buffers of a connection hold, and reads nothing."""
    one = b"GET /js/vendor/htm-preact.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with server.open(HOSTILE) as end:
        with contextlib.suppress(OSError):
            end.settimeout(3)
            for _ in range(40):
                end.sendall(one * 50)
                time.sleep(0.05)
        assert server.ask(SLIDER)[-1]["done"]
        end.settimeout(60)  # the server cuts it off after seconds; a busy machine may take longer to close
        with contextlib.suppress(ConnectionError):
            while end.recv(1 << 20):
                pass


def test_a_flood_is_answered_by_429(server: Served) -> None:
    statuses = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10, source_address=("127.0.0.9", 0))
    with contextlib.closing(connection):
        for _ in range(1000):
            connection.request("GET", "/api/jobs/none")
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            if response.status == 429:
                assert response.headers["retry-after"] == "1"
                break
    assert statuses[-1] == 429
    assert server.ask(SLIDER)[-1]["done"]


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
    status, said, body = server.send("POST", "/api/ask", json.dumps(request).encode(), JSON, "127.0.0.3")
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


def attack(server: Served, stop: threading.Event) -> None:
    """A hostile client: searches from many tabs, floods of quick questions, large bodies, half-open requests, quick
    exits."""
    large = b'{"view": "' + b"x" * 900_000 + b'"}'
    turn = 0
    kept: list[Any] = []
    while not stop.is_set():
        turn += 1
        with contextlib.suppress(OSError, http.client.HTTPException):
            kind = turn % 5
            if kind == 4:
                server.send("POST", "/api/ask", large, JSON, HOSTILE)
                continue
            end = server.open(HOSTILE)
            if kind == 3:
                end.sendall(b"POST /api/ask HTTP/1.1\r\nx: ")
            else:
                asked = SEARCH | {"fields": SEARCH["fields"] | {"seq": 4096 + turn}} if kind else SLIDER
                body = json.dumps(asked).encode()
                head = "POST /api/ask HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                end.sendall(f"{head}x-dragonscale-tab: t{turn}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            kept.append(end)
            if len(kept) > 30:
                kept.pop(0).close()
        time.sleep(0.005)
    for end in kept:
        end.close()


def latencies(server: Served, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.monotonic()
        assert server.ask(SLIDER, "honest")[-1]["done"]
        found.append(time.monotonic() - began)
        time.sleep(0.02)
    return found


def percentile_95(found: list[float]) -> float:
    return sorted(found)[int(0.95 * (len(found) - 1))]


def beside_a_hostile_client(server: Served, count: int, threads: int) -> None:
    stop = threading.Event()
    attackers = [threading.Thread(target=attack, args=(server, stop)) for _ in range(threads)]
    alone = percentile_95(latencies(server, 6))
    for one in attackers:
        one.start()
    try:
        found = latencies(server, count)
    finally:
        stop.set()
        for one in attackers:
            one.join()
    slowest, most = percentile_95(found), max(LATENCY, 10 * alone)
    assert slowest < most, (
        f"median {statistics.median(found):.3f} s, 95th percentile {slowest:.3f} s; alone {alone:.3f} s"
    )


def test_a_hostile_client_does_not_starve_others(server: Served) -> None:
    beside_a_hostile_client(server, 12, 1)


@pytest.mark.slow
def test_a_determined_hostile_client_does_not_starve_others(server: Served) -> None:
    beside_a_hostile_client(server, 300, 4)


def parallel(server: Served, count: int) -> None:
    """So many at once, half of them from one tab, each answered as the planner alone answers it."""
    from tests.web.test_server import messages, without_time

    names = ("h100", "v5p", "v5e", "a100", "b200", "h10")
    asked = [{"view": "chips", "fields": {"name": name}, "panels": ["sheet"]} for name in names]
    right = [without_time(json.loads(json.dumps(messages(one)))) for one in asked]
    with ThreadPoolExecutor(count) as threads:
        tabs = ["t" if index % 2 else f"t{index}" for index in range(count)]
        found = [threads.submit(server.ask, asked[i % len(asked)], tab, "127.0.0.4") for i, tab in enumerate(tabs)]
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
