"""The loop: plan a step, run it on the device, and read the tokens of the one before it meanwhile.

`ServingEngine.step` puts step n+1 on the device's queue before it fetches what step n sampled, so that the host's work hides behind the
device's: decoding rows take their token from the sampler's state on the device. A sequence that ends at step n then has a token of step n+1 that
nobody wants; it is dropped, and since steps run in order, its pages can be given away at once. Where the host has to see a
token before the next step can be planned (grammars, drafts), the loop waits for it.

A step that fails on the device fails the requests that were in it. What the cache holds is in doubt then: everything else that ran is computed
again, and after a few failures in a row the engine is dead and says so to everyone.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, HandedOver, ServeRequest
from dragonscale.runtime.serve.scheduler import BatchScheduler, LiveSequence, ScheduledStep
from dragonscale.runtime.serve.steps import EngineLimits, StepShape

FAILURES = 3
"""Steps that may fail one after the other before the engine gives up."""


class EngineDead(RuntimeError):
    """The device failed too often; the engine has to be started anew."""


@dataclass
class InFlight:
    """A step on the device: what was planned and the arrays that will come of it."""

    step: ScheduledStep
    sampled: Any
    hidden: Any


@dataclass
class ShapeTime:
    """How long steps of a shape took, and the tokens that were not padding."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0


class ServingEngine:
    """Requests in, tokens out. `role` is `both`, `prefill` (requests end with their first token and are handed over) or `decode`."""

    def __init__(
        self, runner: Any, sampler: Any, limits: EngineLimits, shapes: list[StepShape], *, prefixes: bool = True, queue: int = 1024,
        role: str = "both", clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.runner, self.sampler, self.limits, self.role, self.clock = runner, sampler, limits, role, clock
        self.scheduler = BatchScheduler(limits, shapes, prefixes, queue)
        self.live: dict[str, LiveSequence] = {}
        self.exports: dict[str, HandedOver] = {}
        self.pending: deque[InFlight] = deque()
        self.deadlines: list[tuple[float, str]] = []
        self.outbox: list[Emitted] = []
        self.times: dict[StepShape, ShapeTime] = {}
        self.failures = self.tokens_in = self.tokens_out = 0
        self.since = time.perf_counter()
        self.dead = ""

    @property
    def idle(self) -> bool:
        return not self.live and not self.pending and not self.outbox

    def add(self, request: ServeRequest, handed: HandedOver | None = None) -> None:
        """Queues a request; `handed` is what another engine computed of it. Raises `InputError` for one that can never be served,
        `EngineFull` when too many wait."""
        if self.dead:
            raise EngineDead(self.dead)
        if request.id in self.live or request.id in self.exports:
            raise InputError(f"a request with the id {request.id} is being served already")
        self.live[request.id] = self.scheduler.add(request, handed, once=self.role == "prefill")
        self.tokens_in += len(request.prompt)
        if request.deadline:
            heapq.heappush(self.deadlines, (request.deadline, request.id))

    def cancel(self, id: str, why: str = "cancelled") -> None:
        """Ends a request wherever it is; its pages and its slot are free at once. One that is over already is left alone."""
        if id in self.exports:
            self.release(id)
        if (sequence := self.live.get(id)) is not None:
            self.outbox.append(self.finish(sequence, why))

    def export(self, id: str) -> HandedOver:
        """The pages that a request which ended with `handover` has left; they stay until `release`."""
        if id not in self.exports:
            raise InputError(f"no pages are held for request {id}")
        return self.exports[id]

    def release(self, id: str) -> None:
        """Lets the pages of a handed-over request go (they stay in the prefix tree)."""
        handed = self.export(id)
        self.scheduler.pools[handed.rank].release(handed.pages)
        del self.exports[id]

    def finish(self, sequence: LiveSequence, finish: str, why: str = "", keep: bool = True, **more: Any) -> Emitted:
        """Ends a sequence and says so."""
        held = finish == "handover"
        pages = self.scheduler.end(sequence, keep, hold=held)
        if held:
            self.exports[sequence.request.id] = HandedOver(
                tokens=sequence.output, computed=sequence.known - 1, rank=sequence.rank, pages=pages
            )
        del self.live[sequence.request.id]
        return Emitted(id=sequence.request.id, finish=finish, why=why, cached=max(sequence.cached, 0), **more)

    def step(self) -> list[Emitted]:
        """Runs ahead by one step and tells what the step before gave."""
        while self.deadlines and self.deadlines[0][0] <= self.clock():
            self.cancel(heapq.heappop(self.deadlines)[1], "deadline")
        if self.waits():
            self.collect(0)
        step = self.scheduler.plan()
        if self.admit() and step is not None:
            self.dispatch(step)
        self.collect(0 if step is None else 1)
        said, self.outbox = self.outbox, []
        return said

    def waits(self) -> bool:
        """Whether the next step cannot be planned before the tokens of the last one are seen."""
        return False

    def admit(self) -> bool:
        """Tells the device about sequences that got a slot: how they are sampled, and keys that another engine computed."""
        entered, self.scheduler.entered = self.scheduler.entered, []
        try:
            for sequence in entered:
                self.sampler.admit(sequence.rank, sequence.slot, sequence.request)
                if sequence.handed:
                    count = -(-sequence.computed // self.limits.page)
                    self.runner.write_pages(sequence.rank, sequence.pages[:count], sequence.handed.contents)
                    sequence.handed = None
        except Exception as error:
            self.fail(entered, error)
            return False
        return True

    def dispatch(self, step: ScheduledStep) -> None:
        """Puts a step on the device's queue and asks for its tokens."""
        try:
            if not self.pending:
                self.since = time.perf_counter()
            logits = self.runner.run(step.batch, self.sampler.last)
            sampled = self.sampler.sample(logits, step.batch)
            hidden = self.runner.hidden if any(s.request.embed for _, _, s in step.rows) else None
            for array in (*vars(sampled).values(), hidden):
                if isinstance(array, jax.Array):
                    array.copy_to_host_async()
            self.pending.append(InFlight(step, sampled, hidden))
        except Exception as error:  # whatever the device says: the requests of the step are told, the others go on
            self.fail(step.sequences, error)

    def collect(self, ahead: int) -> None:
        """Fetches the tokens of all steps but the last `ahead`."""
        while len(self.pending) > ahead:
            flight = self.pending.popleft()
            try:
                tokens = numpy.asarray(flight.sampled.tokens)
                hidden = numpy.asarray(flight.hidden)
            except Exception as error:
                self.fail(flight.step.sequences, error)
                continue
            now = time.perf_counter()
            record = self.times.setdefault(flight.step.batch.shape, ShapeTime())
            record.steps, record.seconds, record.tokens = (
                record.steps + 1,
                record.seconds + now - self.since,
                record.tokens + flight.step.computed,
            )
            self.since, self.failures = now, 0
            for rank, row, sequence in flight.step.rows:
                if sequence.ended:
                    continue
                if sequence.request.embed:
                    self.outbox.append(self.finish(sequence, "stop", embedding=hidden[rank, row].tolist()))
                else:
                    self.took(sequence, [int(tokens[rank, row])])

    def took(self, sequence: LiveSequence, tokens: list[int]) -> None:
        """New tokens of a sequence, up to one that ends it."""
        request, known, finish = sequence.request, sequence.known, ""
        for count, token in enumerate(tokens, 1):
            made = known + count - len(request.prompt)
            if token in request.ends and made > request.least:
                finish, tokens = "stop", tokens[:count]
            elif made >= request.length:
                finish, tokens = "length", tokens[:count]
            if finish:
                break
        sequence.tokens[known : known + len(tokens)] = tokens
        self.scheduler.landed(sequence, len(tokens))
        self.tokens_out += len(tokens)
        if self.role == "prefill" and not finish:
            finish = "handover"
        if finish:
            self.outbox.append(self.finish(sequence, finish, tokens=tokens))
        else:
            self.outbox.append(Emitted(id=request.id, tokens=tokens, cached=sequence.cached))

    def fail(self, lost: list[LiveSequence], error: Exception) -> None:
        """The requests of a failed step are told; all others start again with an empty cache."""
        self.failures += 1
        why = f"the step that computed this request failed on the device: {error}"
        self.outbox += [self.finish(s, "error", why, keep=False) for s in lost if not s.ended]
        for flight in self.pending:
            for _, _, sequence in flight.step.rows:
                sequence.flying = 0
        self.pending.clear()
        for id_ in list(self.exports):
            self.release(id_)
        for rank, running in enumerate(self.scheduler.running):
            for sequence in reversed(list(running.values())):
                self.scheduler.preempt(sequence, keep=False)
            self.scheduler.pools[rank].clear()
        if self.failures >= FAILURES:
            self.dead = f"the engine stopped after {self.failures} steps failed one after the other: {error}"
            self.outbox += [self.finish(s, "error", self.dead) for s in list(self.live.values())]

    def check(self) -> None:
        """Asserts that nothing is lost or held twice: for tests, after each step."""
        held = [[h.pages for h in self.exports.values() if h.rank == rank] for rank in range(self.limits.ranks)]
        self.scheduler.check(held)
        there = [s.request.id for rank in self.scheduler.running for s in rank.values()]
        there += [s.request.id for rank in self.scheduler.waiting for s in rank]
        assert sorted(there) == sorted(self.live), "a request is neither waiting nor running, or both"

    def stats(self) -> dict[str, Any]:
        """Numbers for metrics and reports: gauges of now, counters since the start, seconds by step shape."""
        scheduler = self.scheduler
        free = sum(pool.available for pool in scheduler.pools)
        return {
            "running": sum(map(len, scheduler.running)), "waiting": sum(map(len, scheduler.waiting)),
            "pages_used": self.limits.ranks * (self.limits.pages - 1) - free, "pages_free": free,
            "prefix_hits": scheduler.hits, "prefix_queries": scheduler.asked, "preemptions": scheduler.preemptions,
            "evictions": sum(pool.evictions for pool in scheduler.pools),
            "tokens_in": self.tokens_in, "tokens_out": self.tokens_out,
            "steps": sum(t.steps for t in self.times.values()), "times": self.times, "dead": self.dead,
        }  # fmt: skip
