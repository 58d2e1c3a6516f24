"""Traffic: a stream of requests, and what clients do once they have their output.

`OpenLoop` does not wait for outputs. In a `ClosedLoop` each client sends its next request when it has the output of its
last (and has thought about it), as load generators with a fixed concurrency do; clients start together or spread over a
ramp. Every stream is generated lazily and depends on the seed alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice, repeat, tee
from typing import Any, Protocol

import numpy

from dragonscale.errors import InputError
from dragonscale.simulation.distributions import CHUNK, Arrivals, Lengths
from dragonscale.simulation.request import SimulatedRequest

After = Callable[[SimulatedRequest, float], SimulatedRequest | None]
"""The request that follows when another has ended at a time, if any."""


class TrafficSource(Protocol):
    """What drives a simulation."""

    @property
    def requests(self) -> int:
        """How many requests there are in all."""
        ...

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After | None]:
        """Requests that come by themselves, in order of arrival, and the one that follows when another ends, if any."""
        ...


@dataclass(frozen=True)
class Prefixes:
    """Shared prefixes: a fraction `share` of the prompts starts with one of `groups` prefixes of `tokens` tokens.

    Group i is as popular as i^-skew (0: all alike). A prompt no longer than the prefix is cut from it.
    """

    groups: int
    tokens: int
    share: float = 1.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        if self.groups < 1 or self.tokens < 1 or not 0 <= self.share <= 1 or self.skew < 0:
            raise InputError(
                "Shared prefixes need at least 1 group, 1 token, a share from 0 to 1 and a skew of 0 or more."
            )

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        """Group of each request, -1 for none."""
        weights = numpy.arange(1, self.groups + 1) ** -float(self.skew)
        bounds = numpy.cumsum(weights / weights.sum())  # the distribution function, to be inverted
        while True:
            groups = numpy.minimum(numpy.searchsorted(bounds, random.random(CHUNK)), self.groups - 1)
            yield from numpy.where(random.random(CHUNK) < self.share, groups, -1).tolist()


@dataclass(frozen=True)
class Brought:
    """What requests have besides text: one of some LoRA `adapters` (drawn like prefixes, without tokens), and a number
    of `images`, whose tokens are part of the prompt."""

    adapters: Prefixes | None = None
    images: int = 0

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        """The adapter of each request, -1 for none."""
        if self.adapters is None:
            return repeat(-1)
        return self.adapters.draw(random)


PLAIN = Brought()


def _bodies(
    prompt: Lengths, output: Lengths, prefixes: Prefixes | None, brought: Brought, seed: int
) -> tuple[Iterator[Any], ...]:
    """All fields of requests but numbers and times, as streams in order of the fields.

    Each has a random stream of its own, so that changing one distribution leaves the others' draws unchanged.
    """
    inputs = prompt.draw(numpy.random.default_rng((seed, 1)))
    outputs = output.draw(numpy.random.default_rng((seed, 2)))
    adapters = brought.draw(numpy.random.default_rng((seed, 4)))
    # kind, priority, session, adapter, images, warm
    rest = repeat(0), repeat(0), repeat(-1), adapters, repeat(brought.images), repeat(0)
    if prefixes is None:
        return inputs, outputs, repeat(()), repeat(0), *rest
    # a prefix is one block of all its tokens
    block_groups, size_groups = tee(prefixes.draw(numpy.random.default_rng((seed, 3))))
    blocks = (() if group < 0 else (group,) for group in block_groups)
    sizes = (0 if group < 0 else prefixes.tokens for group in size_groups)
    return inputs, outputs, blocks, sizes, *rest


def _check_count(requests: int) -> None:
    if requests < 0:
        raise InputError(f"Traffic of {requests} requests is not possible; write 0 or more.")


@dataclass(frozen=True)
class OpenLoop:
    """Requests that arrive whatever becomes of those before."""

    arrivals: Arrivals
    requests: int
    prompt: Lengths
    output: Lengths
    prefixes: Prefixes | None = None
    brought: Brought = PLAIN

    def __post_init__(self) -> None:
        _check_count(self.requests)

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], None]:
        """Requests in order of arrival; none follow."""
        times = self.arrivals.times(numpy.random.default_rng((seed, 0)))
        bodies = _bodies(self.prompt, self.output, self.prefixes, self.brought, seed)
        make = partial(tuple.__new__, SimulatedRequest)  # skips the named tuple's Python constructor
        stream: Iterator[SimulatedRequest] = map(make, zip(count(), times, *bodies, strict=False))
        return islice(stream, self.requests), None


@dataclass(frozen=True)
class ClosedLoop:
    """`clients` that send one request after the other, `requests` in all.

    They start together, or one after the other over `ramp_s` seconds; between an output and the next request they think
    for `think_s`.
    """

    clients: int
    requests: int
    prompt: Lengths
    output: Lengths
    think_s: float = 0.0
    ramp_s: float = 0.0
    prefixes: Prefixes | None = None
    brought: Brought = PLAIN

    def __post_init__(self) -> None:
        _check_count(self.requests)
        if self.clients < 1 or self.think_s < 0 or self.ramp_s < 0:
            raise InputError("A closed loop needs at least 1 client, and thinking and ramp times of 0 seconds or more.")

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After]:
        """The clients' first requests, and the next of whoever has its output."""
        bodies = zip(*_bodies(self.prompt, self.output, self.prefixes, self.brought, seed), strict=False)
        first = min(self.clients, self.requests)
        request_numbers = iter(range(first, self.requests))
        begin = [
            SimulatedRequest(n, n * self.ramp_s / self.clients, *body)
            for n, body in zip(range(first), bodies, strict=False)
        ]

        def after(_request: SimulatedRequest, now: float) -> SimulatedRequest | None:
            number = next(request_numbers, None)
            if number is None:
                return None
            return SimulatedRequest(number, now + self.think_s, *next(bodies))

        return iter(begin), after


@dataclass(frozen=True)
class Replay:
    """Given requests in order of arrival; `speed` 2 replays them twice as fast.

    `read` is called anew for every run. Requests that `after` lists arrive when another has ended, and some seconds
    later.
    """

    read: Callable[[], Iterator[SimulatedRequest]]
    requests: int
    speed: float = 1.0
    brought: Brought = PLAIN
    after: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    note: str = ""
    """What the file was read as, where that is worth a sentence."""

    def __post_init__(self) -> None:
        if self.speed <= 0:
            raise InputError(f"A trace cannot be replayed at {self.speed} times its speed.")

    def start(self, seed: int) -> tuple[Iterator[SimulatedRequest], After | None]:
        stream = (request._replace(arrival_s=request.arrival_s / self.speed) for request in self.read())
        if self.brought.adapters is not None:
            drawn = zip(stream, self.brought.draw(numpy.random.default_rng((seed, 4))), strict=False)
            stream = (request._replace(adapter=adapter) for request, adapter in drawn)
        stream = islice(stream, self.requests)
        if not self.after:
            return stream, None
        by_number = {request.number: request for request in stream}
        next_of = {before: by_number[number] for number, (before, _) in self.after.items() if number in by_number}

        def after(ended: SimulatedRequest, now: float) -> SimulatedRequest | None:
            request = next_of.get(ended.number)
            if request is None:
                return None
            return request._replace(arrival_s=now + self.after[request.number][1] / self.speed)

        return (request for request in by_number.values() if request.number not in self.after), after

    def first(self, requests: int) -> "Replay":
        """No more than so many of them."""
        return replace(self, requests=min(requests, self.requests))
