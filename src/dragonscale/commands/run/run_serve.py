"""`dscale run serve`: a server until it is told to stop, and then what came of it beside the plan."""

import asyncio
import errno
import socket
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.blocks.colour import wants_colour
from dragonscale.blocks.sheet import Column, Prose, Sheet, Title, amount, table
from dragonscale.blocks.terminal import text_of, width_of
from dragonscale.commands.asked_chips import asked_chips
from dragonscale.commands.questions.run import RunServeQuestion
from dragonscale.commands.record import Face, Record, bind, shared
from dragonscale.commands.run.run_train import check_installed
from dragonscale.commands.run.serve_order import ServeOrder, read_order
from dragonscale.commands.run.serve_planned import (
    ENGINE,
    PlannedServing,
    planned_page_bytes,
    planned_serving,
    uneven_heads,
)
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import render
from dragonscale.runtime.server.traffic_record import TrafficRecord
from dragonscale.runtime.server.wire import WorkerReady
from dragonscale.stderr_relay import StderrRelay


class ServedTimes(msgspec.Struct):
    """A latency over requests."""

    p50: float
    p95: float


class ServeRun(Record):
    """What a server did. `kv_tokens` is the room of one replica's KV cache, `page_bytes` are of one chip;
    `tokens_per_s` are output tokens from the first request to the last token. `planned` is the planner's steady state,
    none where the chip is not known."""

    model: str
    plan: str
    replicas: int
    prefill_replicas: int
    devices: int
    device_kind: str
    parameters: int
    kv_tokens: int
    page_bytes: int
    planned_page_bytes: float
    start_s: float
    requests: int
    failed: int
    restarts: int
    prompt_tokens: int
    output_tokens: int
    tokens_per_s: float | None
    ttft_s: ServedTimes | None
    tpot_s: ServedTimes | None
    planned: Any

    def headline(self) -> str:
        rate = ""
        if self.tokens_per_s is not None:
            rate = f", {self.tokens_per_s:,.0f} output tokens/s"
        return f"{self.model}: {self.requests:,} requests{rate}"


def served_times(values: Collection[float]) -> ServedTimes | None:
    """The median and the 95th percentile.

    >>> served_times([1.0, 2.0, 3.0])
    ServedTimes(p50=2.0, p95=3.0)
    """
    ranked = sorted(values)
    if not ranked:
        return None
    return ServedTimes(*(ranked[min(int(part * len(ranked)), len(ranked) - 1)] for part in (0.5, 0.95)))


def beside(name: str, times: ServedTimes | None, planned: float | None) -> str:
    """A latency in a line: `TTFT 41 ms (p95 60 ms, planned 39 ms)`."""
    if times is None:
        return f"{name} -"
    expected = ""
    if planned is not None:
        expected = f", planned {render(planned, 's')}"
    return f"{name} {render(times.p50, 's')} (p95 {render(times.p95, 's')}{expected})"


NEEDED = ("jax", "starlette", "uvicorn", "tokenizers", "jinja2", "llguidance", "prometheus_client")
# Names of this machine: a server that listens to it alone answers to no other, so that no web page can call it under
# its own.
LOCAL = ("127.0.0.1", "localhost", "::1", "[::1]")
# Parts of the bar that a worker's start is.
PORTIONS = 1000


def ask_serve(question: RunServeQuestion, listener: Listener) -> ServeRun:
    """Serve until SIGINT or SIGTERM."""
    check_installed(NEEDED, "serve a model", "serve")
    order = read_order(question)
    if order.saved.engine.partition(",")[0] not in ("", ENGINE):
        listener.note(f"The plan was made for the engine {order.saved.engine}; it is {ENGINE} that serves it here.")
    for note in uneven_heads(order):
        listener.note(note)
    if question.host not in LOCAL and not order.api_key:
        listener.note(
            f"Everybody who reaches {question.host}:{question.port} may use the server; --api-key asks for a key."
        )
    if question.profile and not order.slice:
        raise InputError(
            "--profile is of the chips that the planned times are of; name them with --on, such as --on h200:1."
        )
    if order.slice:
        order = replace(order, slice=asked_chips(order.slice, "", question.profile))
        parse_slice(order.slice)  # one that there is not is told before anything is loaded
    with StderrRelay():
        served = asyncio.run(_serve(order, listener))
    return served.came_from(question, listener.notes)


async def _serve(order: ServeOrder, listener: Listener) -> ServeRun:
    from dragonscale.runtime.server.front import ServingFront
    from dragonscale.runtime.server.http import build_app, serve_http
    from dragonscale.runtime.server.routes import HttpSettings
    from dragonscale.runtime.server.text import load_text, plain_text

    question, vocabulary = order.question, order.model.program().sections[0].dims["v"]
    if order.folder:
        text = load_text(order.folder)
    else:
        text = plain_text(vocabulary)
    facts = {"model": order.saved.model, "engine": ENGINE, "plan": str(order.plan), "slice": order.slice}
    facts |= {"max_seqs": order.first.sequences, "token_budget": order.first.tokens}
    facts |= {"replicas": order.replicas}
    # what a replay may share
    shared = {}
    if order.first.prefix_cache:
        shared = {"block_tokens": order.first.page}
    record = TrafficRecord(question.record, **facts, **shared)
    # before any model is loaded
    listening = _listening(question.host, question.port)
    begun, log_every_s, bar = time.monotonic(), question.log_every.read(), StartBar(len(order.workers), listener)
    front = ServingFront(
        order.workers,
        order.environments,
        router=question.router,
        queue=question.queue_limit,
        record=record,
        say=bar.heard,
    )
    settings = {
        "root": order.folder or order.saved.model,
        "adapters": tuple(order.first.adapters),
        "api_key": order.api_key,
        "grace_s": question.grace.read(),
        "hosts": LOCAL if question.host in LOCAL else (),
    }
    app = build_app(front, text, HttpSettings(order.name, order.first.length, vocabulary, **settings))
    # an IPv6 address stands in brackets in a URL
    host = f"[{question.host}]" if ":" in question.host else question.host
    url = f"http://{host}:{listening.getsockname()[1]}"
    listener.log(f"Listening on {url}; {url}/ready says how far the start is.")
    try:
        serving = asyncio.create_task(serve_http(app, listening))
        await _begun(front, app, serving)
        ready = next(worker.facts for worker in front.workers if worker.runs.role != "prefill")
        assert ready is not None
        # the devices that served, which need not be the plan's, and what one replica had room for
        record.facts |= {"device": ready.device_kind, "devices": ready.devices, "length": order.first.length}
        record.facts |= {"pages": ready.pages, "kv_tokens": ready.kv_tokens}
        started = ServedSoFar(order, front, ready, planned_serving(order, ready.device_kind), time.monotonic() - begun)
        listener.log(text_of(start_blocks(started), width_of(sys.stderr), wants_colour("auto", sys.stderr)))
        watch = None
        if log_every_s:
            watch = asyncio.create_task(started.tell(listener, log_every_s))
        listener.log(_welcome(url, order))
        await serving
        if watch is not None:
            watch.cancel()
    finally:
        listening.close()
        await front.close()
        record.close()
    return started.result()


async def _begun(front: Any, app: Any, serving: asyncio.Task[None]) -> None:
    """Wait until the workers take requests, while the server says that they do not yet; a signal ends it."""
    start = asyncio.create_task(front.start())
    await asyncio.wait((start, serving), return_when=asyncio.FIRST_COMPLETED)
    # the server ends by itself only at a signal
    if serving.done():
        start.cancel()
        raise KeyboardInterrupt
    if start.exception() is not None:
        app.state.server.should_exit = True
        await serving
    start.result()


class StartBar:
    """How far all workers are on their way, as one bar: loading is a tenth of it, compiling the rest."""

    def __init__(self, workers: int, listener: Listener) -> None:
        self.parts, self.listener = [0.0] * workers, listener

    def heard(self, index: int, message: Any) -> None:
        done = message.done / max(message.total, 1)
        self.parts[index] = 0.1 * done if message.what == "loading" else 0.1 + 0.9 * done
        self.listener.step(round(PORTIONS * sum(self.parts)), PORTIONS * len(self.parts))


@dataclass
class ServedSoFar:
    """What a running server has reached."""

    order: ServeOrder
    front: Any
    facts: WorkerReady
    planned: PlannedServing | None
    start_s: float

    @property
    def page_bytes(self) -> float:
        return planned_page_bytes(self.order, self.facts.page)

    def plan_anew(self) -> PlannedServing | None:
        """The plan of the requests that came, once there are some: their lengths, and how many were under way."""
        came = self.front.record.typical(self.order.replicas)
        if came:
            self.planned = planned_serving(self.order, self.facts.device_kind, came)
        return self.planned

    async def tell(self, listener: Listener, interval_s: float) -> None:
        """A line every so many seconds, where there was something to do."""
        record, before = self.front.record, 0
        while True:
            await asyncio.sleep(interval_s)
            if record.tokens == before and not self.front.flights:
                continue
            rate, before = (record.tokens - before) / interval_s, record.tokens
            planned = await asyncio.to_thread(self.plan_anew)
            ttft = beside("TTFT", served_times(record.ttft), planned and planned.ttft_s)
            tpot = beside("TPOT", served_times(record.tpot), planned and planned.tpot_s)
            running = len(self.front.flights)
            listener.log(f"{record.requests:,} requests, {running} under way  {ttft}  {tpot}  {rate:,.0f} tokens/s")

    def result(self) -> ServeRun:
        order, record, workers = self.order, self.front.record, self.front.workers
        # from the first request to the last token
        span = record.until - record.began
        fields = shared(
            ServeRun,
            record,
            self.facts,
            model=order.name,
            plan=str(order.plan),
            replicas=order.replicas,
            prefill_replicas=len(order.workers) - order.replicas,
            devices=sum(worker.facts.devices for worker in workers if worker.facts),
            planned_page_bytes=self.page_bytes,
            start_s=round(self.start_s, 2),
            restarts=sum(worker.restarts for worker in workers),
            output_tokens=record.tokens,
            tokens_per_s=record.tokens / span if span > 0 else None,
            ttft_s=served_times(record.ttft),
            tpot_s=served_times(record.tpot),
            planned=self.plan_anew(),
        )
        return ServeRun(**fields)


def _listening(host: str, port: int) -> socket.socket:
    """The socket, taken before anything is loaded: a port that is not free is told at once."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
        if in_use:
            other = "another --port, or 0"
        else:
            other = "an address of this machine as --host"
        raise InputError(
            f"{host}:{port} cannot be listened on ({getattr(error, 'strerror', None) or error}); give {other}."
        ) from None


def _welcome(url: str, order: ServeOrder) -> str:
    key = ""
    if order.api_key:
        key = " -H 'authorization: Bearer KEY'"
    body = f'{{"model": "{order.name}", "prompt": "Once upon a time", "max_tokens": 32}}'
    return (
        f"Serving {order.name} at {url}/v1 (Ctrl-C ends it). Try:\n"
        f"curl {url}/v1/completions{key} -H 'content-type: application/json' -d '{body}'"
    )


def start_blocks(started: ServedSoFar) -> Sheet:
    """What is ready to be asked."""
    order, facts, planned, first = started.order, started.facts, started.planned, started.order.first
    page = f"{amount(facts.page_bytes, 'bytes')} of {facts.page} tokens"
    rows = [
        ("devices", f"{facts.devices} x {facts.device_kind}", planned and planned.slice),
        ("KV page", page, amount(started.page_bytes, "bytes")),
        ("KV room", f"{facts.kv_tokens:,} tokens", planned and f"{planned.tokens:,.0f} tokens"),
        ("at once", f"{first.sequences * facts.ranks} sequences of up to {first.length:,} tokens", None),
        ("TTFT", None, planned and amount(planned.ttft_s, "s")),
        ("TPOT", None, planned and amount(planned.tpot_s, "s")),
    ]
    head = f"{order.name}: {facts.parameters:,} parameters"
    count, prefill = "", len(order.workers) - order.replicas
    if prefill:
        count = f", {prefill} that prefill and {order.replicas} that decode, below is one that decodes"
    elif order.replicas > 1:
        count = f", {order.replicas} replicas, each as below"
    aside = f"plan {order.plan}{count}; {facts.programs} programs ready in {started.start_s:.0f} s"
    columns = ["", Column("", right=True), Column("planned", right=True)]
    remarks = []
    if planned is not None and planned.ttft_s is not None:
        remark = f"Planned: {planned.batch} requests of {planned.prompt:,} + {planned.output:,} tokens under way."
        remarks.append(Prose(remark))
    return Sheet((Title(head, aside), table(columns, rows), *remarks))


def run_blocks(result: ServeRun, _detail: bool) -> Sheet:
    """The run and the plan side by side."""
    planned = result.planned

    def times(name: str) -> str | None:
        latency = getattr(result, name)
        if latency is None:
            return None
        return f"{amount(latency.p50, 's')} (p95 {amount(latency.p95, 's')})"

    rates = [rate and f"{rate:,.0f}" for rate in (result.tokens_per_s, planned and planned.tokens_per_s)]
    rows = [
        ("requests", f"{result.requests:,}", None),
        ("failed or given up", f"{result.failed:,}", None),
        ("TTFT", times("ttft_s"), planned and amount(planned.ttft_s, "s")),
        ("TPOT", times("tpot_s"), planned and amount(planned.tpot_s, "s")),
        ("output tokens/s", *rates),
        ("KV page on a chip", amount(result.page_bytes, "bytes"), amount(result.planned_page_bytes, "bytes")),
    ]
    remarks = []
    if planned is not None:
        remarks.append(
            f"Planned: {planned.batch} requests of {planned.prompt:,} + {planned.output:,} tokens under way in one "
            f"replica on {planned.slice}, as many as a request saw; tokens/s for {planned.mean_batch:.3g}, the mean."
        )
    if result.restarts:
        remarks.append(f"Workers died and were started again: {result.restarts}.")
    head = f"{result.model}: {result.parameters:,} parameters"
    aside = f"plan {result.plan}, on {result.devices} x {result.device_kind}"
    columns = ["", Column("served", right=True), Column("planned", right=True)]
    return Sheet((Title(head, aside), *((Prose("\n".join(remarks)),) if remarks else ()), table(columns, rows)))


bind(ServeRun, Face(run_blocks))
