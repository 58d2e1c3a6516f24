"""Classes of traffic as files have them, in `[[class]]` tables, and use cases, which are classes with known numbers.

[[class]]
name = "chat"             # one of the use cases, whose numbers it has unless it says others, or any other
rate = "8/s"              # requests; or users = 1000 and each = "10/h"
prompt = 300              # tokens that a turn adds
output = 200
turns = 3                 # on average; think = "60s" before the next
calls = 1                 # of the model in a turn, with pause = "2s" of tools between them that add result = 400
prefixes = "10x1024"
priority = 0              # the smallest goes first
ttft = "p95:500ms"        # its own targets: ttft, tpot, e2e
input_price = 0.5         # dollars that a million of its tokens earn
output_price = 1.5
"""

import functools
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse, parse_length
from dragonscale.serving.steady.targets import LATENCIES, LatencyTarget, read_target
from dragonscale.simulation.distributions import Profile
from dragonscale.simulation.fleet_sizing.fleet_traffic import (
    MAX_REQUESTS,
    FleetTraffic,
    ServiceClass,
    arrivals_of,
    lengthened,
    lengths_of,
)
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.sessions import Mixed, Pairs, TrafficClass
from dragonscale.simulation.traffic import PLAIN, Brought, Prefixes, TrafficSource
from dragonscale.tables import Strict, checked

# Requests from which the means of traffic are taken.
SAMPLED_REQUESTS = 2000

# Times of the longest session that a run takes, unless its requests are given.
SESSION_TIMES = 5

# Longest request that step times are tabulated for, over the longest of those that were sampled.
LONGEST_OVER_SAMPLED = 4

# Latencies that a class may have targets for; gaps between tokens have one target for all of the fleet.
CLASS_TARGETS = tuple(name for name in LATENCIES if name != "itl")

# Fields that the description of a class leaves out.
UNDESCRIBED = ("name", "source", "assumed", "pairs", "later", "profile")


class ClassTable(Strict, frozen=True):
    """A class as it is written; see above."""

    name: str
    rate: str = ""
    users: float = 0
    each: str = ""
    prompt: int | str = 2048
    output: int | str = 256
    lengths: str = "varied"
    cv: float = 1.0
    turns: float = 1
    think: str = "0s"
    calls: float = 1
    pause: str = "0s"
    result: int | str = 1
    prefixes: str = ""
    priority: int = 0
    ttft: str = ""
    tpot: str = ""
    e2e: str = ""
    input_price: float = 0
    output_price: float = 0
    arrivals: str = "poisson"
    burst: float = 2.0
    swing: float = 0.5
    period: str = "24h"
    profile: list[float] = []
    every: str = "60s"
    pairs: list[tuple[int, int]] = []
    later: list[tuple[int, int]] = []
    source: str = ""
    assumed: str = ""

    @property
    def requests_per_s(self) -> float:
        """Requests that come: as they are given, or those of all users."""
        if self.rate:
            return parse(self.rate, "count/s", f"the rate of {self.name}")
        if not self.users or not self.each:
            raise InputError(f"The class {self.name} says no rate; add rate=8/s, or users=1000 and each=10/h.")
        return self.users * parse(self.each, "count/s", f"the requests of each user of {self.name}")

    @property
    def session_s(self) -> float:
        """Seconds of pauses in a session."""
        think_s = parse(self.think, "s", "think")
        pause_s = parse(self.pause, "s", "pause")
        return (self.turns - 1) * think_s + self.turns * (self.calls - 1) * pause_s

    @property
    def session_calls(self) -> float:
        """Calls of the model in a session, on average."""
        return self.turns * self.calls

    @property
    def targets(self) -> dict[str, LatencyTarget]:
        """By the name of the latency."""
        targets: dict[str, LatencyTarget] = {}
        for name in CLASS_TARGETS:
            target = read_target(getattr(self, name), f"{name} of {self.name}")
            if target is not None:
                targets[f"{name}_s"] = target
        return targets

    @property
    def service(self) -> ServiceClass:
        """What its requests must get, and what they earn."""
        return ServiceClass(self.name, self.priority, self.targets, self.input_price, self.output_price)

    @property
    def text(self) -> str:
        """Its settings that are not the usual ones; prompt and output always, unless they are drawn from pairs."""
        usual = msgspec.to_builtins(ClassTable(self.name))
        always = () if self.pairs else ("prompt", "output")
        parts: list[str] = []
        for name, value in msgspec.to_builtins(self).items():
            if name in UNDESCRIBED or (name not in always and value == usual[name]):
                continue
            parts.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
        return ", ".join(parts)

    def tokens(self, name: str) -> int:
        """Tokens of one of its lengths."""
        if name == "output" and str(self.output) == "0":  # embeddings and scores: a request ends with its prompt
            return 1
        return parse_length(str(getattr(self, name)), f"{name} of {self.name}")[0]


@functools.cache
def use_cases() -> dict[str, dict[str, Any]]:
    """The use cases by name, as tables of a class."""
    return tomllib.loads(Path(__file__).with_name("use_cases.toml").read_text(encoding="utf-8"))


def class_of(table: dict[str, Any], origin: str) -> ClassTable:
    """A class from its table, laid over the use case of its name; `origin` says where the table was given."""
    return checked(use_cases().get(table.get("name", ""), {}) | table, ClassTable, "class of traffic", origin)


def class_traffic(
    tables: Sequence[ClassTable],
    rates: Sequence[float],
    requests: int,
    *,
    fixed_count: bool,
    context: int | None = None,
    brought: Brought = PLAIN,
    image_tokens: int = 0,
) -> FleetTraffic:
    """Traffic of several classes at once, each at its rate in requests per second. A run whose length nobody gave takes
    several times the longest session, so that sessions are in every phase after one of them."""
    longest_session_s = max(table.session_s for table in tables)
    rate = sum(rates)
    if not fixed_count:
        requests = min(max(requests, round(SESSION_TIMES * longest_session_s * rate)), MAX_REQUESTS)
    pairs = zip(tables, rates, strict=True)
    classes = tuple(_traffic_class(table, class_rate, context, brought, image_tokens) for table, class_rate in pairs)
    source = Mixed(classes, requests)
    means = means_of(source)
    longest = LONGEST_OVER_SAMPLED * means.longest
    if context:
        longest = min(longest, context)
    return FleetTraffic(
        source,
        longest=max(longest, means.longest),
        prompt=means.prompt,
        output=means.output,
        rate=rate,
        classes=tuple(table.service for table in tables),
        shares_prefixes=True,
        fixed_count=fixed_count,
        session_share=longest_session_s * rate / max(requests, 1),
        repeated_share=means.repeated_share,
    )


def _traffic_class(
    table: ClassTable, rate: float, context: int | None, brought: Brought, image_tokens: int
) -> TrafficClass:
    """The sessions of a class, `rate` requests of them a second."""
    prompt = table.tokens("prompt")
    output = table.tokens("output")
    for name in ("turns", "calls"):
        count = getattr(table, name)
        if count < 1:
            raise InputError(f"{name} of the class {table.name} is {count:g}; a session has at least 1.")
    sessions_per_s = rate / table.session_calls
    if table.profile:
        every_s = parse(table.every, "s", "every")
        arrivals: Any = Profile(sessions_per_s, tuple(table.profile), every_s, table.burst)
    else:
        period_s = parse(table.period, "s", "--period")
        arrivals = arrivals_of(table.arrivals, sessions_per_s, table.burst, table.swing, period_s)
    prompt_spread = prompt // 2 if table.lengths == "uniform" else 0
    return TrafficClass(
        arrivals,
        lengthened(lengths_of(table.lengths, prompt, prompt_spread, table.cv), image_tokens),
        lengths_of(table.lengths, output, output // 2, table.cv),
        turns=table.turns,
        think_s=parse(table.think, "s", "think"),
        calls=table.calls,
        pause_s=parse(table.pause, "s", "pause"),
        result=lengths_of(table.lengths, table.tokens("result"), 0, table.cv),
        prefixes=read_prefixes(table.prefixes),
        priority=table.priority,
        pairs=_pairs(table.pairs),
        later=_pairs(table.later),
        most=context or TrafficClass.most,
        brought=brought,
    )


def _pairs(seen: Sequence[tuple[int, int]]) -> Pairs | None:
    """Lengths of prompts and outputs to draw together; none where none were seen."""
    return Pairs(tuple(seen)) if seen else None


@dataclass(frozen=True)
class TrafficMeans:
    """What requests are like: tokens on average and at most, and the part of prompts that was in an earlier prompt."""

    prompt: int
    output: int
    longest: int
    repeated_share: float


def means_of(source: TrafficSource, seed: int = 0) -> TrafficMeans:
    """The means of the first requests, each answered as soon as it comes."""
    stream, next_of = source.start(seed)
    prompt_tokens = output_tokens = repeated_tokens = count = 0
    longest = 1
    seen_blocks = set[int]()
    for first in islice(stream, SAMPLED_REQUESTS):
        request: SimulatedRequest | None = first
        while request is not None and count < SAMPLED_REQUESTS:
            count += 1
            prompt_tokens += request.input_tokens
            output_tokens += request.output_tokens
            longest = max(longest, request.input_tokens + request.output_tokens)
            # a block was seen only together with all blocks before it, so the first that was not is found by bisection
            blocks = request.blocks
            known_blocks = bisect_left(range(len(blocks)), True, key=lambda index: blocks[index] not in seen_blocks)
            repeated_tokens += min(known_blocks * request.block_tokens, request.input_tokens)
            seen_blocks.update(blocks[known_blocks:])
            request = next_of(request, request.arrival_s) if next_of is not None else None
    count = max(count, 1)
    return TrafficMeans(
        prompt=max(round(prompt_tokens / count), 1),
        output=max(round(output_tokens / count), 1),
        longest=longest,
        repeated_share=repeated_tokens / max(prompt_tokens, 1),
    )


def router_for(tables: Sequence[ClassTable]) -> str:
    """The router that finds in caches what requests begin with: a session goes on where it was, prompts that share one
    of several prefixes go where it is. Empty where every replica has all there is to find."""
    if any(table.session_calls > 1 for table in tables):
        return "session_sticky"
    groups = [int(table.prefixes.partition("x")[0]) for table in tables if table.prefixes]
    return "prefix_affinity" if any(count > 1 for count in groups) else ""


def read_parts(
    flag: str, text: str, first: str, wanted: str, readers: Mapping[str, Callable[[str], Any]]
) -> tuple[list[int], dict[str, Any]]:
    """`16x32,name=value`: the numbers of the first part, and the named values after it."""
    head, *rest = (part.strip() for part in text.split(","))
    match = re.fullmatch(first, head)
    if match is None:
        raise InputError(f"{flag} is {shorten(text)}; write {wanted}.")
    values: dict[str, Any] = {}
    for part in rest:
        name, _, value = part.partition("=")
        if name not in readers:
            raise unknown(f"part of {flag} called", name, readers)
        try:
            values[name] = readers[name](value)
        except InputError:
            raise
        except ValueError:
            raise InputError(f"In {flag} {name} is {shorten(value)}; write a number.") from None
    return [int(number) for number in match.groups()], values


def read_prefixes(text: str) -> Prefixes | None:
    """`100x1024,share=0.8,skew=1`: a hundred prefixes of 1,024 tokens that begin 80% of the prompts; nothing is none.

    >>> read_prefixes("100x1024,skew=1")
    Prefixes(groups=100, tokens=1024, share=1.0, skew=1.0)
    """
    if not text:
        return None
    wanted = "GROUPSxTOKENS, such as 100x1024,share=0.8,skew=1"
    sizes, values = read_parts("--prefixes", text, r"(\d{1,9})x(\d{1,9})", wanted, {"share": float, "skew": float})
    return Prefixes(*sizes, **values)
