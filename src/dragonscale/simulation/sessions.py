"""Classes of traffic: users of several kinds at once, with conversations and agents among them.

A session is some turns: its user reads an output and thinks before the next turn. A turn is some calls of the model:
between them an agent runs its tools. The prompt of a call is the session so far and what is new, so prompts grow and
begin like the ones before; what comes before a session (a system prompt) may be common to many. Tokens that a call
produced are prefilled again with the next one: engines keep the blocks of prompts.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.simulation.distributions import CHUNK, Arrivals, Diurnal, Fixed, Gamma, Lengths, Poisson
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.traffic import PLAIN, After, Brought, Prefixes

BLOCK = 64
"""Tokens of a block of a session's prompts."""
STEADY = Poisson, Gamma, Diurnal
"""Arrivals whose sessions can be under way when a run begins: those with a mean rate from the beginning on."""
SPAN = 1 << 24
"""Names of blocks that a session or a prefix has for itself."""


@dataclass(frozen=True)
class Pairs:
    """Prompt and output lengths drawn together, from pairs that were seen."""

    seen: tuple[tuple[int, int], ...]

    def draw(self, random: numpy.random.Generator) -> Iterator[tuple[int, int]]:
        while True:
            yield from (self.seen[index] for index in random.integers(0, len(self.seen), CHUNK).tolist())


@dataclass(frozen=True)
class TrafficClass:
    """Sessions that come by `arrivals`, each of `turns` turns on average with a pause of `think_s` before the next
    (exponential), each turn of `calls` calls with `pause_s` of tools between them; both numbers are geometric. A turn
    adds `prompt` tokens (or those of `pairs`, with their outputs; of `later` after the first), what a tool says
    `result`; the first comes after its prefix. A session has one adapter, and each turn its images, of what is
    `brought`; it ends before its prompt and output exceed `most` tokens."""

    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    turns: float = 1.0
    think_s: float = 0.0
    calls: float = 1.0
    pause_s: float = 0.0
    result: Lengths = field(default_factory=lambda: Fixed(1))
    prefixes: Prefixes | None = None
    priority: int = 0
    pairs: Pairs | None = None
    later: Pairs | None = None
    most: int = 1_000_000
    brought: Brought = PLAIN

    def __post_init__(self) -> None:
        if self.turns < 1 or self.calls < 1 or min(self.think_s, self.pause_s) < 0:
            raise InputError("A session has 1 turn or more, a turn 1 call or more, and pauses take 0 seconds or more.")


class _Kind:
    """One class under way: its draws, each kind of number from a stream of its own."""

    def __init__(self, number: int, one: TrafficClass, seed: int) -> None:
        def stream(purpose: int) -> numpy.random.Generator:
            return numpy.random.default_rng((seed, 1000 + number, purpose))

        self.number, self.one = number, one
        self.times = one.arrivals.times(stream(0))
        self.prompts, self.outputs = one.prompt.draw(stream(1)), one.output.draw(stream(2))
        self.pairs = one.pairs.draw(stream(1)) if one.pairs is not None else None
        self.later = one.later.draw(stream(6)) if one.later is not None else self.pairs
        self.results = one.result.draw(stream(3))
        self.groups = one.prefixes.draw(stream(4)) if one.prefixes is not None else None
        self.random, self.adapters = stream(5), one.brought.draw(stream(7))
        self.shares = one.turns > 1 or one.calls > 1

    def body(self, prompt: bool, first: bool) -> tuple[int, int]:
        """New tokens of a call, and its output."""
        pairs = self.pairs if first else self.later
        if pairs is not None and prompt:
            return next(pairs)
        return next(self.prompts if prompt else self.results), next(self.outputs)

    def begin(self) -> Iterator["_Waiting"]:
        """Sessions by the time of their first call."""
        for time in self.times:
            yield _Waiting(time, self.session(), prompt=True)

    def session(self) -> "_Session":
        """A new one."""
        return _Session(self, next(self.groups) if self.groups is not None else -1)

    def under_way(self, call_s: float) -> list["_Waiting"]:
        """Sessions that began before the run, by the time of their next call, where a call takes `call_s` seconds.

        Calls go on with the same probability after each one, so a session that waits has made a geometric number of
        them. How many wait is Poisson, by Little's law: the rate of calls that are followed by another, times the
        seconds from one to the other. A moment falls into a long wait more often than into a short one: of the pause,
        which is exponential, all is still to come during the call, and by its memorylessness again all of it after
        that.
        """
        traffic, random = self.one, self.random
        rate = traffic.arrivals.rate if isinstance(traffic.arrivals, STEADY) else 0.0
        if not self.shares or not rate:
            return []
        tool_share, turn_share = 1 - 1 / traffic.calls, (1 - 1 / traffic.turns) / traffic.calls
        pauses = {False: traffic.pause_s, True: traffic.think_s}  # by whether the user's turn is next
        spans = {False: tool_share * (call_s + traffic.pause_s), True: turn_share * (call_s + traffic.think_s)}
        calls, total = traffic.turns * traffic.calls, sum(spans.values())
        waiting: list[_Waiting] = []
        for _ in range(random.poisson(rate * calls * total)):
            session = self.session()
            if not session.go_on(random.geometric(1 / calls), turn_share / (tool_share + turn_share)):
                continue  # it would have been too long, and ended
            prompt = random.random() < spans[True] / total
            span, time = call_s + pauses[prompt], 0.0
            if random.random() < call_s / max(span, 1e-9):
                time = call_s * random.random()
            waiting.append(_Waiting(time + random.exponential(pauses[prompt]), session, prompt))
        return sorted(waiting, key=_Waiting.by_time)

    def pause(self) -> tuple[bool, float]:
        """Whether the next call is a turn of the user's, and the seconds until it comes; -1 where there is none."""
        traffic, draw = self.one, self.random.random
        if traffic.calls > 1 and draw() > 1 / traffic.calls:
            return False, self.random.exponential(traffic.pause_s)
        if traffic.turns > 1 and draw() > 1 / traffic.turns:
            return True, self.random.exponential(traffic.think_s)
        return True, -1.0


class _Session:
    """A session: what it has said so far."""

    def __init__(self, kind: _Kind, group: int) -> None:
        self.kind, self.group, self.said, self.base = kind, group, 0, -1
        self.adapter = next(kind.adapters)
        self.cached = 0  # tokens of its last prompt, where that was before the run

    @property
    def prefix(self) -> int:
        """Tokens of whole blocks that it has in common with others."""
        prefixes = self.kind.one.prefixes
        return prefixes.tokens // BLOCK * BLOCK if prefixes is not None and self.group >= 0 else 0

    def go_on(self, calls: int, turn_share: float) -> bool:
        """Say what so many calls say, each after the first a turn of the user's with a probability; whether there is
        room for all of them."""
        kind = self.kind
        for number in range(calls):
            prompt = number == 0 or kind.random.random() < turn_share
            new, output = kind.body(prompt, not self.said)
            self.cached = (self.said or self.prefix) + new
            self.said = self.cached + output
            if self.said > kind.one.most:
                return False
        return True

    def call(self, request_numbers: Iterator[int], time: float, prompt: bool) -> SimulatedRequest | None:
        """Its next call; none where it would be too long."""
        kind, whole = self.kind, self.prefix
        new, output = kind.body(prompt, not self.said)
        tokens = (self.said or whole) + new
        if tokens + output > kind.one.most and self.said:
            return None
        number = next(request_numbers)
        self.base = number if self.base < 0 else self.base
        self.said = tokens + output
        common = range(-self.group * SPAN - SPAN, -self.group * SPAN - SPAN + whole // BLOCK)
        private = range(self.base * SPAN + len(common), self.base * SPAN + -(-tokens // BLOCK)) if kind.shares else ()
        blocks = (*common, *private)
        size = BLOCK if blocks else 0
        who = kind.number, kind.one.priority, self.base, self.adapter, kind.one.brought.images if prompt else 0
        warm, self.cached = self.cached // BLOCK, 0
        return SimulatedRequest(number, time, tokens, output, blocks, size, *who, warm)


@dataclass(frozen=True)
class _Waiting:
    """A session whose next call comes at a time; whether that is a turn of the user's."""

    time: float
    session: _Session
    prompt: bool

    def by_time(self) -> float:
        return self.time


@dataclass(frozen=True)
class Mixed:
    """Several classes at once; a run takes `requests` of them in all. Where it is known that a call takes `call_s`
    seconds, sessions are under way when a run begins, in every phase, with what they said before in the cache of
    whoever gets them next; else the first one begins with the run."""

    classes: tuple[TrafficClass, ...]
    requests: int
    call_s: float | None = None

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After]:
        """Calls that come by themselves in order of arrival, no more than `requests`, and what follows when a call has
        ended."""
        kinds = [_Kind(number, one, seed) for number, one in enumerate(self.classes)]
        request_numbers, under_way = count(), dict[int, _Session]()

        def numbered(session: _Session, time: float, prompt: bool) -> SimulatedRequest | None:
            request = session.call(request_numbers, time, prompt)
            if request is not None and session.kind.shares:
                under_way[request.session] = session
            return request

        def first() -> Iterator[SimulatedRequest]:
            begun = [one.under_way(self.call_s) for one in kinds if self.call_s is not None]
            for one in heapq.merge(*begun, *(kind.begin() for kind in kinds), key=_Waiting.by_time):
                request = numbered(one.session, one.time, one.prompt)
                if request is not None:  # else its session has become too long
                    yield request

        def after(request: SimulatedRequest, now: float) -> SimulatedRequest | None:
            session = under_way.pop(request.session, None)
            prompt, wait = session.kind.pause() if session is not None else (True, -1.0)
            return None if session is None or wait < 0 else numbered(session, now + wait, prompt)

        return islice(first(), self.requests), after

    @property
    def has_rate(self) -> bool:
        """Whether sessions of every class come at a rate that stays, around which it may swing."""
        return all(isinstance(one.arrivals, STEADY) for one in self.classes)

    def faster(self, factor: float, requests: int) -> "Mixed":
        """So many times as many sessions a second, and so many requests."""
        arrivals: Any = [one.arrivals for one in self.classes]
        faster = [replace(one, rate=factor * one.rate) for one in arrivals]
        pairs = zip(self.classes, faster, strict=True)
        return replace(self, classes=tuple(replace(one, arrivals=own) for one, own in pairs), requests=requests)
