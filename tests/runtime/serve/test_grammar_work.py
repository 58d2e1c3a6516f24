"""Grammars are work that a client hands to the server: none of it holds others up, and none of it is without end."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from typing import Any

import httpx
import msgspec
import pytest

pytest.importorskip("jax")
pytest.importorskip("llguidance")

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, GenerateRequest, Sampling
from dragonscale.runtime.server import grammar_check, grammar_process, wire
from dragonscale.runtime.server.text import plain_text
from dragonscale.runtime.server.worker import WorkerLoop
from tests.runtime.serve.echo_front import EchoFront, served, settings
from tests.runtime.serve.fake_worker import build

ENDLESS = {"type": "integer", "multipleOf": 99999937}  # llguidance takes minutes to build it
HTTP = httpx.Client(timeout=60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(EchoFront(pace=0.01), settings()) as address, HTTP:
        assert ask(address, guided_regex="a")[0] == 200  # the process has started
        yield address


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for a grammar, and two of a client in the queue."""
    monkeypatch.setattr(grammar_check, "TIME_S", 0.5)
    monkeypatch.setattr(grammar_check, "WAITING", 2)


def ask(url: str, **more: Any) -> tuple[int, str]:
    answer = HTTP.post(url + "/v1/completions", json={"prompt": "abc", "max_tokens": 2, **more})
    return answer.status_code, answer.json().get("error", {}).get("message", "")


def gaps(url: str, until: Any) -> list[float]:
    """Seconds between the events of a stream, as long as something is not done."""
    asked = {"prompt": "abc", "max_tokens": 500, "stream": True}
    times = []
    with HTTP.stream("POST", url + "/v1/completions", json=asked) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                times.append(time.monotonic())
            if until():
                break
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.usefixtures("short")
def test_a_grammar_without_end_is_refused_in_time_and_streams_go_on(url: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        answers = [pool.submit(ask, url, guided_json=ENDLESS | {"title": name}) for name in "ab"]
        waits = gaps(url, lambda: all(answer.done() for answer in answers))
    for status, said in (answer.result() for answer in answers):
        assert (status, said) == (
            400,
            "The json_schema cannot be used as a grammar: it takes more than 0.5 s to read.",
        )
    assert time.monotonic() - began > 1.0, "one after the other"
    assert len(waits) > 10
    assert max(waits) < 1, "two grammars took that long"


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ({"guided_grammar": "start: start start"}, "no text is complete"),
        ({"guided_json": {"$ref": "#"}}, "no text is complete"),
        ({"guided_grammar": 'start: "a" start'}, "too many states"),
        ({"guided_regex": "b{999999}"}, "too many states"),
        ({"guided_regex": "a\\"}, "ends with a backslash"),
        ({"structured_outputs": {"regex": "\\"}}, "ends with a backslash"),
        ({"guided_choice": [f"number {number}" for number in range(2100)]}, "too many of its rules"),
        ({"guided_regex": "a" * 70_000}, "65,536 can be used"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_did_wrong_is_a_400(url: str, grammar: dict[str, Any], said: str, stream: bool) -> None:
    status, told = ask(url, stream=stream, **grammar)
    assert status == 400
    assert said in told


@pytest.mark.usefixtures("short")
def test_a_client_has_few_grammars_in_the_queue(url: str) -> None:
    many = grammar_check.WAITING + 3
    with ThreadPoolExecutor(many) as pool:
        answers = list(pool.map(lambda number: ask(url, guided_json=ENDLESS | {"title": f"c{number}"}), range(many)))
    statuses = [status for status, _ in answers]
    assert statuses.count(429) == 3
    assert statuses.count(400) == grammar_check.WAITING


def killed(checker: grammar_check.GrammarChecker, pipe: Any) -> Any:
    """A new process that dies before it is asked, as it would of a grammar that takes all memory."""
    assert checker._process is not None
    checker._process.kill()
    checker._process.wait()
    return pipe


def test_a_busy_machine_is_not_held_against_a_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = plain_text(300)
    checker = grammar_check.GrammarChecker(grammar_process.Vocabulary(text.tokenizer.to_str(), 300, [299]))
    try:
        checker._start()
        monkeypatch.setattr(grammar_check, "TIME_S", 0.0)
        assert "more than 0 s to read" in checker._try(("regex", "a"))
        monkeypatch.setattr(grammar_check, "TIME_S", 300.0)
        assert checker._try(("regex", "a")) == ""
    finally:
        checker.close()


def test_what_takes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies of it, and nothing else does."""
    monkeypatch.setattr(grammar_check, "TIME_S", 300.0)  # however busy this machine is
    text = plain_text(300)
    checker = grammar_check.GrammarChecker(grammar_process.Vocabulary(text.tokenizer.to_str(), 300, [299], core_s=1))
    try:
        assert checker._try(("regex", "a")) == ""
        assert checker._process is not None
        checker._process.kill()  # as the system does where memory is short: no fault of the next grammar
        assert checker._try(("regex", "b")) == ""
        monkeypatch.setattr(checker, "_start", lambda start=checker._start: killed(checker, start()))
        checker._end()
        assert (
            checker._try(("regex", "c")) == "The regex cannot be used as a grammar: it takes too much memory to read."
        )
        monkeypatch.undo()
        monkeypatch.setattr(grammar_check, "TIME_S", 300.0)
        said = checker._try(("json_schema", json.dumps(ENDLESS)))
        assert said == "The json_schema cannot be used as a grammar: it takes more than 1 s of a core to read."
    finally:
        checker.close()


def test_a_text_without_an_end_takes_no_grammar() -> None:
    with served(EchoFront(), settings(), plain_text(300)) as url, httpx.Client() as http:
        answer = http.post(url + "/v1/completions", json={"prompt": "a", "guided_regex": "a"})
    assert answer.status_code == 400
    assert "no end of a text" in answer.json()["error"]["message"]


class SlowGrammars:
    """Grammars that take the seconds that are their text to be built."""

    def begin(self, grammar: tuple[str, str]) -> Any:
        if grammar[1] == "wrong":
            raise InputError("It is wrong.")
        time.sleep(float(grammar[1]))
        return self

    def masks(self, _ranks: int, _rows: int, held: Any) -> Any:
        return held

    def take(self, _token: int) -> None: ...

    complete, error = False, ""


def test_an_engine_goes_on_while_a_grammar_is_built() -> None:
    order = wire.WorkerOrder(model="fake", length=256, sequences=4, tokens=64, pages=200, page=4)
    engine, _ = build(order, lambda *_: None)
    engine.grammars = SlowGrammars()
    front, pipe = Pipe()
    loop = WorkerLoop(pipe, engine)  # pyright: ignore[reportArgumentType]  on POSIX a pipe is a Connection

    def run() -> None:
        with pytest.raises((EOFError, BrokenPipeError, ConnectionResetError)):
            loop.run()

    def send(id: str, length: int, grammar: str = "") -> None:
        sampling = Sampling(grammar=("regex", grammar)) if grammar else Sampling()
        request = GenerateRequest(id=id, prompt=[1, 2, 3], length=length, sampling=sampling)
        front.send_bytes(wire.encode(wire.Submit(request)))

    thread = threading.Thread(target=run)
    thread.start()
    decode = msgspec.msgpack.Decoder(wire.FromWorker).decode
    try:
        send("stream", 200)
        send("left", 9, "0.2")
        send("slow", 9, "1.5")
        send("wrong", 9, "wrong")
        front.send_bytes(wire.encode(wire.Drop("left")))
        heard: list[tuple[float, Emitted]] = []
        while len({emitted.id for _, emitted in heard if emitted.finish}) < 3:
            message = decode(front.recv_bytes())
            if isinstance(message, wire.StepOutput):
                heard += [(time.monotonic(), emitted) for emitted in message.emitted]
    finally:
        front.close()
        thread.join(20)
        pipe.close()
    assert not thread.is_alive()
    times = [at for at, emitted in heard if emitted.id == "stream"]
    ends = {emitted.id: (emitted.finish, emitted.why) for _, emitted in heard if emitted.finish}
    assert ends == {"stream": ("length", ""), "slow": ("length", ""), "wrong": ("refused", "It is wrong.")}
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 0.75
