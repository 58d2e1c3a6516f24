"""Classes of traffic: users of several kinds at once, with conversations and agents among them.

A session consists of turns: its user reads an output and thinks before the next turn. A turn consists of calls of the
model: between them an agent runs its tools. The prompt of a call is the session so far plus what is new, so prompts
grow and share prefixes with earlier ones; what precedes a session (a system prompt) may be common to many. Tokens that
a call produced are prefilled again with the next one, since engines cache the blocks of prompts.
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
"""Tokens of one block of a session's prompts, the unit of prefix sharing."""
STEADY = Poisson, Gamma, Diurnal
"""Arrival processes whose sessions can be running when a run begins: those with a mean rate from the start."""
SPAN = 1 << 24
"""Block names that are reserved for each session or prefix."""


@dataclass(frozen=True)
class Pairs:
    """Prompt and output lengths drawn together, from observed pairs."""

    seen: tuple[tuple[int, int], ...]

    def draw(self, random: numpy.random.Generator) -> Iterator[tuple[int, int]]:
        while True:
            yield from (self.seen[index] for index in random.integers(0, len(self.seen), CHUNK).tolist())


@dataclass(frozen=True)
class TrafficClass:
    """Sessions that arrive by `arrivals`.

    Each has `turns` turns on average with a pause of `think_s` before the next (exponential), each turn `calls` calls
    with `pause_s` of tools between them; both numbers are geometric. A turn adds `prompt` tokens (or those of `pairs`,
    with their outputs; of `later` after the first), a tool's answer `result`; the first comes after the session's
    prefix. A session has one adapter, and each turn its images, of what is `brought`; it ends before its prompt and
    output exceed `most` tokens.
    """

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
    """One running class of traffic: its draws, each kind of number from a random stream of its own."""

    def __init__(self, number: int, traffic: TrafficClass, seed: int) -> None:
        def stream(purpose: int) -> numpy.random.Generator:
            return numpy.random.default_rng((seed, 1000 + number, purpose))

        self.number, self.traffic = number, traffic
        self.times = traffic.arrivals.times(stream(0))
        self.prompts, self.outputs = traffic.prompt.draw(stream(1)), traffic.output.draw(stream(2))
        self.pairs = traffic.pairs.draw(stream(1)) if traffic.pairs is not None else None
        self.later = traffic.later.draw(stream(6)) if traffic.later is not None else self.pairs
        self.results = traffic.result.draw(stream(3))
        self.groups = traffic.prefixes.draw(stream(4)) if traffic.prefixes is not None else None
        self.random, self.adapters = stream(5), traffic.brought.draw(stream(7))
        self.shares = traffic.turns > 1 or traffic.calls > 1

    def body(self, prompt: bool, first: bool) -> tuple[int, int]:
        """New tokens of a call, and its output tokens; `prompt` for a turn of the user's, else a tool's answer."""
        pairs = self.pairs if first else self.later
        if pairs is not None and prompt:
            return next(pairs)
        return next(self.prompts if prompt else self.results), next(self.outputs)

    def begin(self) -> Iterator["_Waiting"]:
        """New sessions with the time of their first call."""
        for time in self.times:
            yield _Waiting(time, self.session(), prompt=True)

    def session(self) -> "_Session":
        """A new session."""
        return _Session(self, next(self.groups) if self.groups is not None else -1)

    def under_way(self, call_s: float) -> list["_Waiting"]:
        """Sessions that began before the run, with the time of their next call, where a call takes `call_s` seconds.

        Calls continue with the same probability after each one, so a waiting session has made a geometric number of
        them. How many wait is Poisson, by Little's law: the rate of calls that are followed by another, times the
        seconds from one to the other. A random moment falls into a long wait more often than into a short one. Of the
        pause, which is exponential, all is still to come during the call, and, by its memorylessness, again all of it
        after that.
        """
        traffic, random = self.traffic, self.random
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
        """Whether the next call is a turn of the user's, and the seconds until it comes; -1 if the session ends."""
        traffic, draw = self.traffic, self.random.random
        # geometric numbers: each call is the turn's last, each turn the session's last, with a fixed probability
        if traffic.calls > 1 and draw() > 1 / traffic.calls:
            return False, self.random.exponential(traffic.pause_s)
        if traffic.turns > 1 and draw() > 1 / traffic.turns:
            return True, self.random.exponential(traffic.think_s)
        return True, -1.0


class _Session:
    """A session: its tokens so far (`said`) and its place in the name space of blocks (`base`)."""

    def __init__(self, kind: _Kind, group: int) -> None:
        self.kind, self.group, self.said, self.base = kind, group, 0, -1
        self.adapter = next(kind.adapters)
        self.cached = 0  # tokens of its last prompt, where that was before the run

    @property
    def prefix(self) -> int:
        """Tokens in whole blocks that it shares with other sessions."""
        prefixes = self.kind.traffic.prefixes
        if prefixes is None or self.group < 0:
            return 0
        return prefixes.tokens // BLOCK * BLOCK

    def go_on(self, calls: int, turn_share: float) -> bool:
        """Add the tokens of so many calls, each after the first a user's turn with a probability; returns whether all
        of them stay within the limit."""
        kind = self.kind
        for number in range(calls):
            prompt = number == 0 or kind.random.random() < turn_share
            new, output = kind.body(prompt, not self.said)
            self.cached = (self.said or self.prefix) + new
            self.said = self.cached + output
            if self.said > kind.traffic.most:
                return False
        return True

    def call(self, request_numbers: Iterator[int], time: float, prompt: bool) -> SimulatedRequest | None:
        """Its next call; None if it would be too long."""
        kind, whole = self.kind, self.prefix
        new, output = kind.body(prompt, not self.said)
        tokens = (self.said or whole) + new
        if tokens + output > kind.traffic.most and self.said:
            return None
        number = next(request_numbers)
        if self.base < 0:
            self.base = number  # the first request names the session
        self.said = tokens + output
        # shared blocks have negative names, a session's own blocks follow on from its base
        common = range(-self.group * SPAN - SPAN, -self.group * SPAN - SPAN + whole // BLOCK)
        private = range(self.base * SPAN + len(common), self.base * SPAN + -(-tokens // BLOCK)) if kind.shares else ()
        blocks = (*common, *private)
        warm, self.cached = self.cached // BLOCK, 0
        return SimulatedRequest(
            number,
            time,
            tokens,
            output,
            blocks,
            block_tokens=BLOCK if blocks else 0,
            kind=kind.number,
            priority=kind.traffic.priority,
            session=self.base,
            adapter=self.adapter,
            images=kind.traffic.brought.images if prompt else 0,
            warm=warm,
        )


@dataclass(frozen=True)
class _Waiting:
    """A session whose next call comes at a time; `prompt` if that is a turn of the user's."""

    time: float
    session: _Session
    prompt: bool

    def by_time(self) -> float:
        return self.time


@dataclass(frozen=True)
class Mixed:
    """Several classes at once; a run has `requests` requests of them in all.

    If a call is known to take `call_s` seconds, sessions are running when a run begins, in every phase, with their
    earlier tokens in the cache of whichever replica gets them next; otherwise the first session begins with the run.
    """

    classes: tuple[TrafficClass, ...]
    requests: int
    call_s: float | None = None

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After]:
        """Calls that come by themselves in order of arrival, no more than `requests`, and what follows when a call has
        ended."""
        kinds = [_Kind(number, traffic, seed) for number, traffic in enumerate(self.classes)]
        request_numbers, under_way = count(), dict[int, _Session]()

        def numbered(session: _Session, time: float, prompt: bool) -> SimulatedRequest | None:
            request = session.call(request_numbers, time, prompt)
            if request is not None and session.kind.shares:
                under_way[request.session] = session
            return request

        def first() -> Iterator[SimulatedRequest]:
            begun = [kind.under_way(self.call_s) for kind in kinds if self.call_s is not None]
            for waiting in heapq.merge(*begun, *(kind.begin() for kind in kinds), key=_Waiting.by_time):
                request = numbered(waiting.session, waiting.time, waiting.prompt)
                if request is not None:  # otherwise its session has become too long
                    yield request

        def after(request: SimulatedRequest, now: float) -> SimulatedRequest | None:
            session = under_way.pop(request.session, None)
            if session is None:
                return None
            prompt, wait = session.kind.pause()
            if wait < 0:
                return None
            return numbered(session, now + wait, prompt)

        return islice(first(), self.requests), after

    @property
    def has_rate(self) -> bool:
        """Whether sessions of every class arrive at a constant mean rate, around which it may swing."""
        return all(isinstance(traffic.arrivals, STEADY) for traffic in self.classes)

    def faster(self, factor: float, requests: int) -> "Mixed":
        """The same classes with `factor` times as many sessions per second, and so many requests."""
        classes: list[TrafficClass] = []
        for traffic in self.classes:
            arrivals: Any = traffic.arrivals
            classes.append(replace(traffic, arrivals=replace(arrivals, rate=factor * arrivals.rate)))
        return replace(self, classes=tuple(classes), requests=requests)
