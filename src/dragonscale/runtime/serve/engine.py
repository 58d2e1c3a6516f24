"""The loop: plan a step, run it on the device, and read the tokens of the one before it meanwhile.

`ServingEngine.step` puts step n+1 on the device's queue before it fetches what step n sampled, so that the host's work
hides behind the device's: decoding rows take their token from the sampler's state on the device. A sequence that ends
at step n then has a token of step n+1 that nobody wants; it is dropped, and since steps run in order, its pages can be
given away at once. A grammar has to see a token before it can say what may follow: the host reads it while the device
computes the logits of the next step, which is sampled then. Where it has to be seen before the step can be planned
(drafts), the loop waits for it.

A step that fails on the device fails the requests that were in it. What the cache holds is in doubt then: everything
else that ran is computed again, and after a few failures in a row the engine is dead and says so to everyone.
"""

import heapq
import time
import traceback
from collections import deque
from dataclasses import dataclass
from typing import Any

import jax
import numpy

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, GenerateRequest, HandedOver, TokenLogprob
from dragonscale.runtime.serve.sampling import Sampled, check_sampling
from dragonscale.runtime.serve.scheduler import BatchScheduler, LiveSequence, ScheduledStep
from dragonscale.runtime.serve.speculation import NgramIndex
from dragonscale.runtime.serve.steps import EngineLimits, StepShape, empty_batch


@dataclass
class InFlight:
    """A step on the device: what was planned and the arrays that will come of it. `extra` are hidden states where a row
    is to be embedded, log probabilities of a prompt's own tokens where they are asked for."""

    step: ScheduledStep
    sampled: Sampled
    extra: Any

    def copy(self) -> None:
        """Has the arrays sent to the host as soon as they are there."""
        more = vars(self.extra).values() if isinstance(self.extra, Sampled) else (self.extra,)
        for array in (*vars(self.sampled).values(), *more):
            if isinstance(array, jax.Array):
                array.copy_to_host_async()

    def fetch(self) -> tuple[Sampled, Any]:
        """Both in numpy; waits for the device."""
        extra = self.extra.fetch() if isinstance(self.extra, Sampled) else jax.device_get(self.extra)
        return self.sampled.fetch(), extra


@dataclass
class ShapeTime:
    """How long steps of a shape took, and the tokens that were not padding."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0

    def add(self, seconds: float, tokens: int) -> None:
        self.steps, self.seconds, self.tokens = self.steps + 1, self.seconds + seconds, self.tokens + tokens


def told(tokens: list[int], found: Sampled, at: tuple[int, int], count: int) -> list[TokenLogprob]:
    """Log probabilities of tokens that a step chose from a place of its reads on."""
    rank, rows = at[0], slice(at[1], at[1] + len(tokens))
    columns = (found.logprobs[rank, rows], found.top[rank, rows, :count], found.top_logprobs[rank, rows, :count])
    each = zip(tokens, *(column.tolist() for column in columns), strict=True)
    return [TokenLogprob(token, own, list(zip(top, logs, strict=True))) for token, own, top, logs in each]


def following(step: ScheduledStep) -> numpy.ndarray:
    """For each row of a step that scores a prompt, the token that comes next in it (after the last: anything)."""
    sequence, (ranks, count) = step.chunks[0], step.batch.tokens.shape
    tokens = numpy.zeros((ranks, count), numpy.int32)
    after = sequence.tokens[step.scored + 1 : step.scored + 1 + step.computed]
    tokens[sequence.rank, : len(after)] = after
    return tokens


def score(step: ScheduledStep, found: Sampled) -> None:
    """Log probabilities of a prompt's own tokens, each from the logits of the one before it."""
    sequence, first = step.chunks[0], step.scored + 1
    prompt, count = sequence.request.prompt, sequence.request.prompt_logprobs or 0
    sequence.scores = sequence.scores or [None] * len(prompt)
    after = prompt[first : first + step.computed]
    sequence.scores[first : first + len(after)] = told(after, found, (sequence.rank, 0), count)


FAILURES = 3
"""Steps that may fail one after the other before the engine gives up."""


class EngineDead(RuntimeError):
    """The device failed too often; the engine has to be started anew."""


class ServingEngine:
    """Requests in, tokens out. `role` is `both`, `prefill` (requests end with their first token and are handed over) or
    `decode`; `grammars` reads the grammars of requests; where `limits` has drafts, `drafter` is the model that makes
    them (None: n-grams)."""

    def __init__(
        self,
        runner: Any,
        sampler: Any,
        limits: EngineLimits,
        shapes: list[StepShape],
        *,
        grammars: Any = None,
        drafter: Any = None,
        prefixes: bool = True,
        role: str = "both",
    ) -> None:
        self.runner, self.sampler, self.grammars, self.drafter = runner, sampler, grammars, drafter
        self.limits, self.role, self.clock = limits, role, time.time
        self.scheduler = BatchScheduler(limits, shapes, prefixes)
        self.live: dict[str, LiveSequence] = {}
        self.pending: deque[InFlight] = deque()
        self.deadlines: list[tuple[float, str]] = []
        self.outbox: list[Emitted] = []
        self.times: dict[StepShape, ShapeTime] = {}
        self.failures = self.tokens_in = self.tokens_out = self.drafted = self.accepted = 0
        self.since = time.perf_counter()
        self.dead = ""

    @property
    def idle(self) -> bool:
        return not self.live and not self.pending and not self.outbox

    def warm(self) -> None:
        """Runs every step once with nothing but padding: a GPU loads a kernel when it is first launched, and that is
        not for the first request to wait for."""
        limits = self.limits
        for shape in self.scheduler.packer.shapes:
            batch = empty_batch(shape, limits.ranks, limits.width, limits.sequences)
            self.sampler.warm(self.runner.run(batch, self.sampler.last), batch)

    def add(self, request: GenerateRequest, handed: HandedOver | None = None, grammar: Any = None) -> None:
        """Queues a request; `handed` is what another engine computed of it, `grammar` the start of its grammar where
        that was read already. Raises `InputError` for one that can never be served."""
        if self.dead:
            raise EngineDead(self.dead)
        if request.id in self.live:
            raise InputError(f"A request with the id {request.id} is being served already.")
        if request.prompt and not 0 <= min(request.prompt) <= max(request.prompt) < self.sampler.vocab:
            raise InputError(f"The prompt has a token that is not one of the {self.sampler.vocab} of the vocabulary.")
        check_sampling(request, self.sampler.vocab)
        if not 0 <= request.adapter <= self.limits.adapters:
            raise InputError(f"There is no adapter {request.adapter} among the {self.limits.adapters} that are served.")
        if request.sampling.grammar is not None:
            if self.grammars is None:
                raise InputError("The tokenizer has no decoder or no end, so output cannot be held to a grammar.")
            if grammar is None:
                grammar = self.grammars.begin(request.sampling.grammar)
            for token in handed.tokens if handed else ():
                grammar.take(token)
        sequence = self.live[request.id] = self.scheduler.add(request, handed, once=self.role == "prefill")
        sequence.grammar = grammar
        self.tokens_in += len(request.prompt)
        if request.deadline:
            heapq.heappush(self.deadlines, (request.deadline, request.id))

    def cancel(self, id: str, why: str = "cancelled") -> None:
        """Ends a request wherever it is; its pages and its slot are free at once. One that is over already is left
        alone."""
        if id in self.live:
            self.finish(self.live[id], why)

    def finish(self, sequence: LiveSequence, finish: str, why: str = "", keep: bool = True, **more: Any) -> None:
        """Ends a sequence and says so."""
        id = sequence.request.id
        self.scheduler.end(sequence, keep)
        del self.live[id]
        self.outbox.append(
            Emitted(id=id, finish=finish, why=why, cached=max(sequence.cached, 0), waited=sequence.waited, **more)
        )

    def step(self) -> list[Emitted]:
        """Runs ahead by one step and tells what the step before gave."""
        while self.deadlines and self.deadlines[0][0] <= self.clock():
            deadline, id = heapq.heappop(self.deadlines)
            if id in self.live and self.live[id].request.deadline == deadline:  # not a later one of the same name
                self.cancel(id, "deadline")
        if len(self.deadlines) > 2 * len(self.live) + 1000:  # of requests that ended long before
            self.deadlines = sorted((s.request.deadline, id) for id, s in self.live.items() if s.request.deadline)
        if self.limits.draft:
            self.collect(0)
        guesses = self.guess()
        step = self.scheduler.plan(drafting=bool(guesses) or self.drafter is not None)
        if self.admit() and step is not None:
            self.dispatch(step, guesses)
        self.collect(0 if step is None else 1)
        said, self.outbox = self.outbox, []
        return said

    def guess(self) -> dict[LiveSequence, list[int]]:
        """Drafts by n-grams for the sequences that decode."""
        guesses = {}
        for running in self.scheduler.running if self.limits.draft and self.drafter is None else ():
            for s in running.values():
                if s.computed >= s.target and s.grammar is None:
                    s.ngrams = s.ngrams or NgramIndex(s.tokens[: s.known])
                    if guess := s.ngrams.propose(self.limits.draft):
                        guesses[s] = guess
        return guesses

    def admit(self) -> bool:
        """Tells the device about sequences that got a slot: how they are sampled, and keys that another engine
        computed."""
        entered, self.scheduler.entered = self.scheduler.entered, []
        try:
            for sequence in entered:
                self.sampler.admit(sequence.rank, sequence.slot, sequence.request, sequence.output)
                if sequence.handed:
                    count = -(-sequence.computed // self.limits.page)
                    self.runner.write_pages(sequence.rank, sequence.pages[:count], sequence.handed.contents)
                    sequence.handed = None
        except Exception as error:  # whatever the device says: the requests are told, the others go on
            self.fail(entered, error)
            return False
        return True

    def dispatch(self, step: ScheduledStep, guesses: dict[LiveSequence, list[int]]) -> None:
        """Puts a step on the device's queue and asks for its tokens."""
        if not self.pending:
            self.since = time.perf_counter()
        held = any(s.grammar is not None for _, _, s in step.rows)
        try:
            probs, last = self.draft(step, guesses) if self.limits.draft else (), self.sampler.last
            logits = self.runner.run(step.batch, last)
            masks = self.masks(step) if held else None
            if held and masks is None:
                return
            sampled = self.sampler.sample(logits, step.batch, masks, probs)
            if self.drafter is not None:  # it has to see prompts and the last draft too
                self.drafter.runner.run(step.batch, last)
            embeds = any(s.request.embed for _, _, s in step.rows)
            extra = self.runner.hidden if embeds else None
            if step.scored >= 0:
                extra = self.sampler.score(logits, following(step))
            self.pending.append(InFlight(step, sampled, extra))
            self.pending[-1].copy()
        except Exception as error:
            self.fail(step.sequences, error)

    def masks(self, step: ScheduledStep) -> Any:
        """What grammars allow next, while the device computes the logits: for that, the tokens before have to be seen.
        None where the step before failed, and took this one along."""
        failures = self.failures
        self.collect(0)
        if self.failures > failures:
            return None
        held = {(rank, row): s.grammar for rank, row, s in step.rows if s.grammar is not None and not s.ended}
        return self.grammars.masks(self.limits.ranks, step.batch.shape.rows, held)

    def draft(self, step: ScheduledStep, guesses: dict[LiveSequence, list[int]]) -> tuple[Any, ...]:
        """Writes drafts into the rows that decode; returns what a model drew them from."""
        batch, q = step.batch, step.batch.shape.queries
        probs = self.drafter.propose(batch) if self.drafter is not None and q > 1 else ()
        for rank, row, s in step.rows if q > 1 else ():
            if row < batch.shape.decodes and s.grammar is None:  # a grammar has to see each token
                drafts = batch.tokens[rank, row * q + 1 : (row + 1) * q]
                guess = guesses.get(s, ()) if self.drafter is None else drafts
                drafts[: len(guess)] = guess
                batch.drafted[rank, row] = len(guess)
                self.drafted += len(guess)
        return probs

    def collect(self, ahead: int) -> None:
        """Fetches the tokens of all steps but the last `ahead`."""
        while len(self.pending) > ahead:
            flight = self.pending.popleft()
            step, shape = flight.step, flight.step.batch.shape
            try:
                found, extra = flight.fetch()
            except Exception as error:
                self.fail(step.sequences, error)
                continue
            now, drafted, self.failures = time.perf_counter(), shape.decodes * shape.queries, 0
            self.times.setdefault(shape, ShapeTime()).add(now - self.since, step.computed)
            self.since = now
            tokens, counts = found.tokens.tolist(), found.counts.tolist()
            scored = [(s.rank, -1, s) for s in step.chunks if step.scored >= 0]
            for rank, row, sequence in (*scored, *step.rows):
                if sequence.ended:
                    continue
                first, kept = drafted + row - shape.decodes, 1
                if 0 <= row < shape.decodes:
                    first, kept = row * shape.queries, counts[rank][row]
                    self.accepted += kept - 1
                try:
                    if row < 0:
                        score(step, extra)
                    elif sequence.request.embed:
                        self.finish(sequence, "stop", embedding=extra[rank, first].tolist())
                    else:
                        self.took(sequence, tokens[rank][first : first + kept], found, (rank, first))
                except Exception as error:
                    # of what the host does for one request: the others have nothing to do with it
                    if not sequence.ended:
                        why = f"What the device gave to this request could not be read: {error}"
                        self.finish(sequence, "error", why, keep=False)

    def took(self, sequence: LiveSequence, tokens: list[int], found: Sampled, at: tuple[int, int]) -> None:
        """New tokens of a sequence, up to one that ends it."""
        request, known, grammar, finish, why = sequence.request, sequence.known, sequence.grammar, "", ""
        for count, token in enumerate(tokens, 1):
            made = known + count - len(request.prompt)
            if grammar is not None:
                grammar.take(token)
                why = grammar.error
            complete = grammar is not None and grammar.complete
            if grammar is not None and why:  # more work than a grammar may be is the client's to mend
                finish = "error" if grammar.disobeyed else "refused"
            elif complete or (token in request.ends and made > request.least):
                finish = "stop"
            elif made >= request.length:
                finish = "length"
            if finish:
                tokens = tokens[:count]
                break
        sequence.tokens[known : known + len(tokens)] = tokens
        self.scheduler.landed(sequence, len(tokens))
        self.tokens_out += len(tokens)
        if sequence.ngrams is not None:
            sequence.ngrams.extend(tokens)
        more: dict[str, Any] = {}
        if request.sampling.logprobs is not None:
            more["logprobs"] = told(tokens, found, at, request.sampling.logprobs)
        if sequence.scores:
            more["prompt_logprobs"], sequence.scores = sequence.scores, []
        if not finish and self.role == "prefill":
            finish, contents = "handover", self.runner.read_pages(sequence.rank, sequence.pages)
            more["handed"] = HandedOver(tokens=sequence.output, computed=sequence.known - 1, contents=contents)
        if finish:
            self.finish(sequence, finish, why, tokens=tokens, **more)
        else:
            said = {"cached": sequence.cached, "waited": sequence.waited}
            self.outbox.append(Emitted(id=request.id, tokens=tokens, **said, **more))

    def fail(self, lost: list[LiveSequence], error: Exception) -> None:
        """The requests of a failed step are told; all others start again with an empty cache."""
        self.failures += 1
        traceback.print_exception(error)  # for the log: what a compiler or a driver says is not for clients
        why = "The step that computed this request failed on the device; the server's log says why."
        for sequence in lost:
            if not sequence.ended:
                self.finish(sequence, "error", why, keep=False)
        self.pending.clear()
        for sequence in self.live.values():  # those of a step that was planned and never dispatched too
            sequence.flying = 0
        for pool, running in zip(self.scheduler.pools, self.scheduler.running, strict=True):
            for sequence in reversed(list(running.values())):
                self.scheduler.preempt(sequence, keep=False)
            pool.clear()
        try:
            for part in (self.runner, self.sampler, *([self.drafter.runner] if self.drafter else [])):
                part.reset()
        except Exception as worse:
            self.failures, error = FAILURES, worse
        if self.failures >= FAILURES:
            self.dead = (
                f"The engine stopped because its device fails ({type(error).__name__}); the server's log says why."
            )
            for sequence in list(self.live.values()):
                self.finish(sequence, "error", self.dead)

    def stats(self) -> dict[str, Any]:
        """Numbers for metrics and reports: gauges of now, counters since the start, seconds by step shape."""
        scheduler, free = self.scheduler, sum(pool.available for pool in self.scheduler.pools)
        return {
            "running": sum(map(len, scheduler.running)),
            "waiting": sum(map(len, scheduler.waiting)),
            "pages_used": self.limits.ranks * (self.limits.pages - 1) - free,
            "pages_free": free,
            "prefix_hits": scheduler.hits,
            "prefix_queries": scheduler.asked,
            "preemptions": scheduler.preemptions,
            "evictions": sum(pool.evictions for pool in scheduler.pools),
            **{name: getattr(self, name) for name in ("drafted", "accepted", "tokens_in", "tokens_out")},
            "steps": sum(taken.steps for taken in self.times.values()),
            "times": self.times,
            "dead": self.dead,
        }
