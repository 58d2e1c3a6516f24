"""Classes of traffic: users of several kinds at once, with conversations and agents among them.

A session is some turns: its user reads an output and thinks before the next turn. A turn is some calls of the model:
between them an agent runs its tools. The prompt of a call is the session so far and what is new, so prompts grow and
begin like the ones before; what comes before a session (a system prompt) may be common to many. Tokens that a call
produced are prefilled again with the next one: engines keep the blocks of prompts.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.simulation.distributions import CHUNK, Arrivals, Fixed, Lengths
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.traffic import PLAIN, After, Brought, Prefixes

BLOCK = 64
"""Tokens of a block of a session's prompts."""
SPAN = 1 << 24
"""Names of blocks that a session or a prefix has for itself."""


@dataclass(frozen=True)
class Pairs:
    """Prompt and output lengths drawn together, from pairs that were seen."""

    seen: tuple[tuple[int, int], ...]

    def draw(self, random: numpy.random.Generator) -> Iterator[tuple[int, int]]:
        while True:
            yield from (self.seen[place] for place in random.integers(0, len(self.seen), CHUNK).tolist())


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
        def stream(place: int) -> numpy.random.Generator:
            return numpy.random.default_rng((seed, 1000 + number, place))

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

    def begin(self) -> Iterator[tuple[float, int, "_Session"]]:
        """Sessions by the time of their first call."""
        for time in self.times:
            yield time, self.number, _Session(self, next(self.groups) if self.groups is not None else -1)

    def pause(self) -> tuple[bool, float]:
        """Whether the next call is a turn of the user's, and the seconds until it comes; -1 where there is none."""
        one, draw = self.one, self.random.random
        if one.calls > 1 and draw() > 1 / one.calls:
            return False, self.random.exponential(one.pause_s)
        if one.turns > 1 and draw() > 1 / one.turns:
            return True, self.random.exponential(one.think_s)
        return True, -1.0


class _Session:
    """A session: what it has said so far."""

    def __init__(self, kind: _Kind, group: int) -> None:
        self.kind, self.group, self.said, self.base = kind, group, 0, -1
        self.adapter = next(kind.adapters)

    def call(self, numbers: Iterator[int], time: float, prompt: bool) -> SimulatedRequest | None:
        """Its next call; none where it would be too long, or no number is left."""
        kind, prefix = self.kind, self.kind.one.prefixes
        new, output = kind.body(prompt, not self.said)
        whole = prefix.tokens // BLOCK * BLOCK if prefix is not None and self.group >= 0 else 0
        tokens = (self.said or whole) + new
        too_long = tokens + output > kind.one.most and self.said
        if too_long or (number := next(numbers, None)) is None:
            return None
        self.base = number if self.base < 0 else self.base
        self.said = tokens + output
        common = range(-self.group * SPAN - SPAN, -self.group * SPAN - SPAN + whole // BLOCK)
        own = range(self.base * SPAN + len(common), self.base * SPAN + -(-tokens // BLOCK)) if kind.shares else ()
        blocks = (*common, *own)
        size = BLOCK if blocks else 0
        who = kind.number, kind.one.priority, self.base, self.adapter, kind.one.brought.images if prompt else 0
        return SimulatedRequest(number, time, tokens, output, blocks, size, *who)


@dataclass(frozen=True)
class Mixed:
    """Several classes at once, `requests` in all."""

    classes: tuple[TrafficClass, ...]
    requests: int

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After]:
        """First calls in order of arrival, and what follows when a call has ended."""
        kinds = [_Kind(number, one, seed) for number, one in enumerate(self.classes)]
        numbers, under_way = iter(range(self.requests)), dict[int, _Session]()

        def numbered(session: _Session, time: float, prompt: bool) -> SimulatedRequest | None:
            request = session.call(numbers, time, prompt)
            if request is not None and session.kind.shares:
                under_way[request.session] = session
            return request

        def first() -> Iterator[SimulatedRequest]:
            for time, _, session in heapq.merge(*(kind.begin() for kind in kinds), key=lambda row: row[0]):
                request = numbered(session, time, True)
                if request is None:
                    return
                yield request

        def after(request: SimulatedRequest, now: float) -> SimulatedRequest | None:
            session = under_way.pop(request.session, None)
            prompt, wait = session.kind.pause() if session is not None else (True, -1.0)
            return None if session is None or wait < 0 else numbered(session, now + wait, prompt)

        return first(), after

    def faster(self, factor: float, requests: int) -> "Mixed":
        """So many times as many sessions a second, and so many requests."""
        arrivals: Any = [one.arrivals for one in self.classes]
        faster = [replace(one, rate=factor * one.rate) for one in arrivals]
        pairs = zip(self.classes, faster, strict=True)
        return Mixed(tuple(replace(one, arrivals=own) for one, own in pairs), requests)
