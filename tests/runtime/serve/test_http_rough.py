"""The server under rough use: clients that go, do not read, ask too much at once or too slowly, and a server that is
stopped."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from dragonscale.runtime.serve.requests import Emitted
from dragonscale.runtime.server.front import DIED
from dragonscale.runtime.server.logs import LogWriter
from dragonscale.runtime.server.text import plain_text
from tests.runtime.serve.echo_front import EchoFront, served, settings

HTTP = httpx.Client(timeout=60)
ASKED = {"prompt": "abc", "max_tokens": 400}


@pytest.fixture(scope="module", autouse=True)
def _closed():
    with HTTP:
        yield


def until(said, seconds=240.0):
    """Whether something becomes so in time."""
    end = time.monotonic() + seconds
    while not said() and time.monotonic() < end:
        time.sleep(0.005)
    return said()


def sent(url, body, path="/v1/completions", **headers):
    """A connection whose request was sent; nobody reads its answer."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.settimeout(60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {len(content)}",
    ]
    connection.sendall("\r\n".join([*lines, *[f"{k}: {v}" for k, v in headers.items()], "", ""]).encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_is_cancelled(stream):
    front = EchoFront(pace=0.01)
    with served(front, settings()) as url:
        connection = sent(url, ASKED | {"stream": stream, "n": 3})
        assert until(lambda: front.open == 3)
        connection.close()
        assert until(lambda: front.open == 0)
        assert front.cancelled == 3


def test_a_stream_that_waits_begins_without_a_token(monkeypatch):
    monkeypatch.setattr("dragonscale.runtime.server.answers._START_AFTER_S", 0.05)
    front, go = EchoFront(), threading.Event()
    speak = front.generate

    async def held(request):
        while not go.is_set():
            await asyncio.sleep(0.01)
        async for emitted in speak(request):
            yield emitted

    front.generate = held
    with served(front, settings()) as url:
        try:
            with HTTP.stream("POST", url + "/v1/completions", json=ASKED | {"stream": True, "max_tokens": 1}) as answer:
                assert answer.status_code == 200
                go.set()
                assert '"finish_reason":"length"' in answer.read().decode()
        finally:
            go.set()


def test_a_stop_string_cancels_the_rest():
    front = EchoFront()
    with served(front, settings()) as url:
        said = HTTP.post(url + "/v1/completions", json=ASKED | {"stop": "ca"}).json()["choices"][0]
        assert (said["text"], said["finish_reason"], front.cancelled, front.open) == ("ab", "stop", 1, 0)


def test_a_client_that_does_not_read_is_cut_off():
    """Its tokens are merged while it does not read, up to a bound; others go on."""
    front = EchoFront()
    with served(front, settings(length=10_000_000, unread_bytes=1_000)) as url:
        slow = sent(url, {"prompt": "abc" * 100, "max_tokens": 5_000_000, "stream": True})
        assert until(lambda: front.open == 1)
        assert HTTP.post(url + "/v1/completions", json=ASKED).status_code == 200
        assert until(lambda: front.open == 0)
        assert front.cancelled == 1
        slow.close()


def test_unread_tokens_are_merged():
    front = EchoFront()
    with served(front, settings(length=1_000_000)) as url:
        slow = sent(url, {"prompt": "abcd", "max_tokens": 8_000, "stream": True})
        assert until(lambda: front.seen and front.open == 0)
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += slow.recv(1 << 20)
        slow.close()
    events = [json.loads(line[6:]) for line in got.decode().splitlines() if line.startswith("data: {")]
    texts = [one["choices"][0]["text"] for one in events]
    assert "".join(texts) == "abcd" * 2_000
    assert max(map(len, texts)) > 1000


def test_a_full_queue_says_when_to_come_again():
    front = EchoFront(pace=0.01, most=2)
    with served(front, settings()) as url:
        held = sent(url, ASKED | {"n": 2})
        assert until(lambda: front.open == 2)
        for stream in (False, True):
            answer = HTTP.post(url + "/v1/completions", json=ASKED | {"stream": stream})
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
            assert answer.json()["error"]["type"] == "rate_limit_error"
        held.close()
        assert until(lambda: front.open == 0)


@pytest.mark.parametrize(
    ("path", "many"),
    [
        ("completions", lambda count: {"prompt": ["ab"] * count, "max_tokens": 30}),
        ("completions", lambda count: {"prompt": "ab", "n": count, "max_tokens": 30}),
        ("embeddings", lambda count: {"input": ["ab"] * count}),
        ("chat/completions", lambda count: {"messages": [{"role": "user", "content": "a"}], "n": count}),
    ],
)
def test_many_at_once_are_refused_before_one_is_computed(path, many):
    """What can never fit by 400, what does not fit now by 429."""
    front = EchoFront(pace=0.01, most=3)
    with served(front, settings()) as url:
        assert HTTP.post(f"{url}/v1/{path}", json=many(4)).status_code == 400
        held = sent(url, ASKED)
        assert until(lambda: front.open == 1)
        answer = HTTP.post(f"{url}/v1/{path}", json=many(3))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        assert len(front.seen) == 1
        held.close()
        assert until(lambda: front.open == 0)


@pytest.mark.parametrize("where", ["header", "body", "server"])
def test_deadlines(where):
    front = EchoFront(pace=0.02)
    with served(front, settings(deadline_s=0.2 if where == "server" else 60)) as url:
        asked = {"json": ASKED | ({"timeout": 0.2} if where == "body" else {})}
        if where == "header":
            asked["headers"] = {"x-request-timeout": "0.2"}
        answer = HTTP.post(url + "/v1/completions", **asked)
        assert (answer.status_code, "time limit" in answer.json()["error"]["message"]) == (408, True)
        asked["json"]["stream"] = True
        lines = HTTP.post(url + "/v1/completions", **asked).text.splitlines()
        assert "time limit" in json.loads(lines[-4][6:])["error"]["message"]
        assert lines[-2] == "data: [DONE]"
        assert front.open == 0


def test_bodies_and_headers_have_to_arrive():
    with served(EchoFront(), settings(arrival_s=0.2, idle_s=1)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 60) as slow:
            slow.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: "
                b"9\r\n\r\n{"
            )
            assert b" 408 " in slow.recv(1000)
        with socket.create_connection((host, int(port)), 60) as silent:
            silent.sendall(b"GET / HT")
            assert silent.recv(10) == b""
        with socket.create_connection((host, int(port))) as second:  # drips, so that it is never idle
            second.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert second.recv(1000)
            assert until(lambda: dripped(second))


def dripped(connection):
    """Whether the other side is gone, after one more byte."""
    try:
        connection.sendall(b"G")
        time.sleep(0.1)
        return not connection.recv(1000, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as nobody, os.fdopen(writing, "w") as full:
        monkeypatch.setattr("sys.stderr", full)
        log = LogWriter()
        began = time.monotonic()
        for number in range(12_000):  # the pipe holds 64 kB
            log({"id": str(number), "why": "x" * 100})
        assert time.monotonic() - began < 5
        assert log.lost
        threading.Thread(target=lambda: list(nobody), daemon=True).start()
        assert until(log.lines.empty)
        log({"id": "the last"})
        assert log.lost == 0
        log.close()
        assert not log.thread.is_alive()
        monkeypatch.undo()


def test_a_body_without_a_length_is_bounded():
    with served(EchoFront(), settings(body_bytes=1000)) as url:
        pieces = (b" " * 100 for _ in range(1000))
        answer = HTTP.post(url + "/v1/completions", content=pieces, headers={"content-type": "application/json"})
        assert answer.status_code == 413


def test_what_is_too_large_is_refused_in_a_sentence_however_much_is_sent():
    """A client that sends all of it before it reads hears why."""
    with served(EchoFront(), settings(body_bytes=1000)) as url:
        for size in (2000, 30_000_000):
            with sent(url, {"prompt": "a" * size}) as connection:
                answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 413 ")
        with sent(url, {}, **{"x-long": "x" * 2_000_000}) as connection:
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert answer.endswith(b"The headers of the request are longer than 64 kB.\n")
        with sent(url, {}) as connection:  # no HTTP at all
            answer = b""
            while not answer.endswith(b"}}"):
                answer += connection.recv(65536)
            connection.sendall(b"\0" * 100)
            assert b" 400 " in connection.recv(65536)
            assert HTTP.get(url + "/health").status_code == 200


def test_whoever_never_ends_a_refused_request_is_cut_off(monkeypatch):
    monkeypatch.setattr("dragonscale.prompt_http.LINGER_S", 0.3)
    with served(EchoFront(), settings()) as url, sent(url, {}, **{"x-long": "x" * 200_000}) as connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b" 431 " in answer
        assert until(lambda: dripped(connection), 10)


def test_an_engine_that_fails_is_a_500_and_one_that_is_not_there_a_503():
    front = EchoFront()

    async def failing(request):
        yield Emitted(id=request.id, finish="error", why="out of luck")

    front.generate = failing
    with served(front, settings()) as url:
        answer = HTTP.post(url + "/v1/completions", json=ASKED)
        assert (answer.status_code, "out of luck" in answer.json()["error"]["message"]) == (500, True)

        async def broken(request):
            yield request

        async def orphaned(request):
            yield Emitted(id=request.id, finish="error", why=DIED)

        front.generate = orphaned
        answer = HTTP.post(url + "/v1/completions", json=ASKED)
        assert (answer.status_code, answer.json()["error"]["message"], answer.headers["retry-after"]) == (
            503,
            DIED,
            "1",
        )
        front.generate = broken
        answer = HTTP.post(url + "/v1/completions", json=ASKED)
        assert (answer.status_code, "its log says more" in answer.json()["error"]["message"]) == (500, True)
        front.why = "worker 0 is compiling (3 of 20)"
        told = HTTP.get(url + "/ready")
        assert (told.status_code, told.json()) == (503, {"status": "starting", "reason": front.why})
        assert HTTP.get(url + "/health").status_code == 200
        answer = HTTP.post(url + "/v1/completions", json=ASKED)
        assert (answer.status_code, front.why in answer.json()["error"]["message"]) == (503, True)
        assert answer.headers["retry-after"] == "1"


def test_a_failure_of_the_server_has_an_id_and_its_status(monkeypatch):
    lines = []
    monkeypatch.setattr("dragonscale.runtime.server.routes.usage", lambda *_: 1 / 0)
    with served(EchoFront(), settings(log=lines.append)) as url:
        answer = HTTP.post(url + "/v1/completions", json={"prompt": "a", "max_tokens": 1})
    assert (answer.status_code, answer.json()["error"]["code"], lines[0]["status"]) == (500, "500", 500)
    assert answer.headers["x-request-id"] == lines[0]["id"]


def test_long_choices_are_read_to_their_end():
    """What a choice says at once (its prompt again) is no sign of a client that does not read."""
    with served(EchoFront(), settings(unread_bytes=800)) as url:
        asked = {"prompt": "a" * 450, "max_tokens": 2, "stream": True, "n": 2, "echo": True}
        assert HTTP.post(url + "/v1/completions", json=asked).text.count('"finish_reason":"length"') == 2


def test_many_prompts_do_not_hold_others_up():
    text, busy = plain_text(300), []
    encode = text.encode
    text.encode = lambda *given: (busy.append(threading.current_thread()), encode(*given))[1]
    with served(EchoFront(), settings(), text) as url:
        assert HTTP.post(url + "/v1/completions", json={"prompt": ["a" * 500] * 50, "max_tokens": 1}).status_code == 200
        assert HTTP.post(url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
    assert len({*busy}) == 2, "long prompts are read beside the event loop, a short one within"
    assert len({*busy[:50]}) == 1


SERVER = """
import asyncio, socket, sys
from tests.runtime.serve.echo_front import *
from dragonscale.runtime.server.http import serve_http
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = build_app(EchoFront(pace=0.01), plain_text(300), settings(grace_s=float(sys.argv[1]), model="echo"))
asyncio.run(serve_http(app, listener))
"""


@pytest.mark.parametrize(("grace", "whole"), [(60.0, True), pytest.param(0.2, False, marks=pytest.mark.slow)])
def test_a_stopped_server_drains(grace, whole):
    """SIGTERM: not ready, nothing new, what runs ends; or, where the time of grace is too short, is ended."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])}
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(grace)], stdout=subprocess.PIPE, env=env)
    url = f"http://127.0.0.1:{process.stdout.readline().decode().strip()}"
    try:
        assert until(lambda: _answers(url))
        asked = ASKED | {"max_tokens": 150, "stream": True}
        with HTTP.stream("POST", url + "/v1/completions", json=asked) as answer:
            lines = answer.iter_lines()
            text = next(lines)
            process.send_signal(signal.SIGTERM)
            if whole:
                assert until(lambda: HTTP.get(url + "/ready").status_code == 503)
                assert HTTP.post(url + "/v1/completions", json=ASKED).status_code == 503
                assert HTTP.get(url + "/health").status_code == 200
            text += "\n".join(lines)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert text.rstrip().endswith("data: [DONE]")
    assert ('"finish_reason":"length"' in text) == whole
    assert ("shutting down" in text) != whole


def _answers(url):
    try:
        return HTTP.get(url + "/health").status_code == 200
    except httpx.HTTPError:
        return False


def test_the_app_needs_no_socket():
    """As other programs mount it: through ASGI alone."""
    from dragonscale.runtime.server.http import build_app

    async def ask():
        app = build_app(EchoFront(), plain_text(300), settings())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return (await client.post("/v1/completions", json={"prompt": "ab", "max_tokens": 3})).json()

    assert asyncio.run(ask())["choices"][0]["text"] == "aba"
