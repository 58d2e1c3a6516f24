"""Many clients at once, most of them rude, and a worker killed: no answer is wrong, no page and no slot is lost, memory
stays bounded.

The default runs 16 clients over a device that computes a hash (the engine, the front and the server are the real ones);
the slow one 200 over a tiny model, for as long as DRAGONSCALE_SOAK_S says (an hour unless told).
"""

import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("jax")

from dragonscale.runtime.serve.requests import GenerateRequest
from tests.runtime.serve.chaos_server import LENGTH, VOCABULARY, len_of_prompt

PROMPTS = ["The same beginning of several, " * (1 + at % 2) + chr(65 + at) * (1 + 5 * at % 37) for at in range(16)]
MOST = 60
"""Tokens of the longest answer."""
KINDS = ("answers", "429", "gone", "stopped waiting", "malformed", "too long")
"""What a round has to see."""


@contextmanager
def chaos_server(
    model: str, roles: str, sequences: int, queue: int, port: int = 0, record: Path | str = ""
) -> Iterator[tuple[str, int]]:
    """The address of a server, and its process; one that was killed has ended already."""
    paths = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    command = [
        sys.executable,
        "-m",
        "tests.runtime.serve.chaos_server",
        model,
        roles,
        str(sequences),
        str(queue),
        "4000",
        str(port),
        str(record),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths})
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 300)[0], "the server did not start"
        listens = process.stdout.readline().decode().strip()
        assert listens, "the server ended at its start"
        yield f"http://127.0.0.1:{listens}", process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM, -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


def workers_of(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def resident_mb(process: int) -> float:
    said = Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]
    return int(said) / 1024


def numbers(client: httpx.Client) -> dict[str, float]:
    """Sums over the engines, by name."""
    found: Counter[str] = Counter()
    for line in client.get("/metrics").text.splitlines():
        if not line.startswith("#") and "_bucket" not in line:
            found[line.partition("{")[0]] += float(line.rpartition(" ")[2])
    return found


class Rude:
    """Clients of all kinds, each with what it saw."""

    def __init__(self, url: str, answers: dict[str, str], seed: int) -> None:
        self.url, self.answers, self.chance = url, answers, random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.http = httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=None))

    async def client(self, number: int, until: float) -> None:
        """Asks until the time is over and everything was seen that is to be seen."""
        kinds = [
            self.whole,
            self.stream,
            self.stream,
            self.goes,
            self.stops_waiting,
            self.slow,
            self.malformed,
            self.too_long,
        ]
        await kinds[number % len(kinds)]()
        while (now := time.monotonic()) < until or (now < until + 60 and not all(self.seen[kind] for kind in KINDS)):
            await self.chance.choice(kinds)()

    def asked(self, **more: Any) -> dict[str, Any]:
        prompt, count = self.chance.choice(PROMPTS), self.chance.randrange(1, MOST)
        return {"prompt": prompt, "max_tokens": count, "temperature": 0, **more}

    def right(self, asked: dict[str, Any], text: str, finish: str) -> None:
        self.seen["answers"] += 1
        assert (text, finish) == (self.answers[asked["prompt"]][: asked["max_tokens"]], "length")

    async def refused(self, answer: httpx.Response) -> bool:
        """Whether there is no answer, for a reason that the server may have: it is full, or the worker was killed."""
        if answer.status_code == 200:
            return False
        await answer.aread()
        said = answer.json()["error"]["message"]
        self.seen[f"{answer.status_code}"] += 1
        assert said.endswith("."), said
        assert answer.status_code in (429, 503) or (answer.status_code == 500 and "died" in said), answer.text
        assert answer.status_code == 500 or int(answer.headers["retry-after"]) >= 1
        await asyncio.sleep(self.chance.random() / 4)
        return True

    async def whole(self) -> None:
        asked = self.asked()
        answer = await self.http.post("/v1/completions", json=asked)
        if not await self.refused(answer):
            choice = answer.json()["choices"][0]
            self.right(asked, choice["text"], choice["finish_reason"])

    async def stream(self, pause: float = 0.0) -> None:
        asked = self.asked(stream=True)
        async with self.http.stream("POST", "/v1/completions", json=asked) as answer:
            if await self.refused(answer):
                return
            text, finish, ended = "", "", False
            async for line in answer.aiter_lines():
                if pause:
                    await asyncio.sleep(pause)
                if line == "data: [DONE]":
                    ended = True
                elif line:
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        assert "died" in event["error"]["message"], event
                        self.seen["broken off"] += 1
                        return
                    text += event["choices"][0]["text"]
                    finish = event["choices"][0]["finish_reason"] or finish
        assert ended
        self.right(asked, text, finish)

    async def slow(self) -> None:
        await self.stream(self.chance.random() / 50)

    async def goes(self) -> None:
        """After some events, without a word."""
        async with self.http.stream("POST", "/v1/completions", json=self.asked(stream=True)) as answer:
            if not await self.refused(answer):
                left = self.chance.randrange(20)
                async for _ in answer.aiter_lines():
                    left -= 1
                    if left < 0:
                        break
        self.seen["gone"] += 1

    async def stops_waiting(self) -> None:
        try:
            await self.http.post("/v1/completions", json=self.asked(), timeout=self.chance.random() / 20)
        except httpx.TimeoutException:
            self.seen["stopped waiting"] += 1

    async def malformed(self) -> None:
        content = self.chance.choice(
            [b"{", b'{"prompt": }', b"\xff\xfe", b'{"prompt": "a", "max_tokens": "many"}', b"[" * 5000]
        )
        answer = await self.http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        self.seen["malformed"] += 1

    async def too_long(self) -> None:
        answer = await self.http.post("/v1/completions", json={"prompt": "a" * (LENGTH + self.chance.randrange(1000))})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        self.seen["too long"] += 1

    async def run(self, clients: int, seconds: float, process: int, kill: bool) -> None:
        until = time.monotonic() + seconds
        tasks = [asyncio.create_task(self.client(number, until)) for number in range(clients)]
        if kill:
            await asyncio.sleep(seconds / 3)
            os.kill(self.chance.choice(workers_of(process)), signal.SIGKILL)
        await asyncio.gather(*tasks)
        await self.http.aclose()


def at_rest(client: httpx.Client, restarts: int) -> None:
    """Nothing runs, waits or holds a page; no engine found itself broken."""
    end = time.monotonic() + 60
    while True:
        found = numbers(client)
        busy = [
            found[name] for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "dragonscale:pages_used")
        ]
        if not any(busy) and client.get("/ready").status_code == 200:
            break
        assert time.monotonic() < end, busy
        time.sleep(0.1)
    assert found["dragonscale:restarts_total"] == restarts


def answers_of_the_hash() -> dict[str, str]:
    from unittest import mock

    from tests.runtime.serve import fake_device

    with mock.patch.object(fake_device, "salt", len_of_prompt):
        requests = {one: GenerateRequest(id="", prompt=list(one.encode()), length=MOST) for one in PROMPTS}
        return {one: bytes(fake_device.alone(request, VOCABULARY)).decode() for one, request in requests.items()}


@pytest.mark.parametrize("roles", ["both,both", pytest.param("prefill,decode", marks=pytest.mark.slow)])
def test_rude_clients_and_a_killed_worker(roles: str) -> None:
    with (
        chaos_server("hash", roles, sequences=3, queue=2) as (url, process),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        rude = Rude(url, answers_of_the_hash(), seed=1)
        asyncio.run(rude.run(16, 0.8, process, kill=True))
        at_rest(client, restarts=1)
        assert all(rude.seen[kind] for kind in KINDS), rude.seen


def gone(workers: list[int]) -> bool:
    """Whether processes end within some seconds."""
    until = time.monotonic() + 20
    while (left := any(Path(f"/proc/{one}").exists() for one in workers)) and time.monotonic() < until:
        time.sleep(0.02)
    return not left


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_server_killed_at_any_instant_leaves_nothing_behind(kills: int, tmp_path: Path) -> None:
    """Its workers end, its pages are gone from shared memory, what it recorded is whole lines, and the next one takes
    the same port and answers."""
    chance, port, record = random.Random(kills), 0, tmp_path / "seen.jsonl"
    asked, short = {"prompt": PROMPTS[1], "max_tokens": MOST}, {"prompt": "a", "max_tokens": 2}
    for _ in range(kills):
        with chaos_server("hash", "prefill,decode", 3, 2, port, record) as (url, process):
            workers, port = workers_of(process), int(url.rpartition(":")[2])
            with httpx.Client(base_url=url, timeout=60) as client:
                assert (client.get("/ready").status_code, len(workers)) == (200, 2)
                assert [client.post("/v1/completions", json=short).status_code for _ in range(3)] == [200] * 3
                with client.stream("POST", "/v1/completions", json=asked | {"stream": True}) as said:
                    assert said.status_code == 200
                    time.sleep(chance.random() * 0.1)
                    os.kill(process, signal.SIGKILL)
        assert gone(workers)
        assert not list(Path("/dev/shm").glob(f"dragonscale-{process}-pages-*"))
        assert len([json.loads(line) for line in record.read_text().splitlines()]) >= 3


@pytest.mark.slow
def test_200_rude_clients_for_long() -> None:
    """Memory is what it was after the first minute, however long it goes on."""
    seconds, clients = float(os.environ.get("DRAGONSCALE_SOAK_S", "3600")), 200
    with (
        chaos_server("tiny", "both,both", sequences=16, queue=64) as (url, process),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        alone = {}
        for prompt in PROMPTS:
            asked = {"prompt": prompt, "max_tokens": MOST, "temperature": 0}
            alone[prompt] = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        began, rounds, first = time.monotonic(), 0, {}
        seen: Counter[str] = Counter()
        while time.monotonic() - began < seconds:
            rude = Rude(url, alone, seed=rounds)
            asyncio.run(rude.run(clients, min(60.0, seconds / 3), process, kill=rounds % 10 == 0))
            rounds += 1
            at_rest(client, restarts=1 + (rounds - 1) // 10)
            seen += rude.seen
            held = {one: resident_mb(one) for one in (process, *workers_of(process))}
            print(
                f"{time.monotonic() - began:.0f} s: {dict(seen)}, {[round(mb) for mb in held.values()]} MB",
                file=sys.stderr,
                flush=True,
            )
            first = {one: first.get(one, mb) for one, mb in held.items()}
            assert all(mb < 1.25 * first[one] + 100 for one, mb in held.items()), (first, held)
        assert all(seen[kind] for kind in KINDS), seen
