"""Classes of traffic as people write them: a file of `[[class]]` tables (`--traffic`), words (`--class
chat,rate=8/s,priority=0`), or a use case and a number of users.

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
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from dragonscale import simulation as sim
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse, parse_length
from dragonscale.serving.steady.targets import LATENCIES, LatencyTarget, read_target
from dragonscale.simulation.distributions import Profile
from dragonscale.tables import Strict, checked, read_table

DRAWN = 2000
"""Requests that say what traffic is like on average."""
OF_CLASSES = ("prompt", "output", "lengths", "prefixes", "rate", "ttft", "tpot", "e2e")
"""Flags that a use case takes for its own numbers, and that other classes of traffic say themselves."""
TARGETS = [name for name in LATENCIES if name != "itl"]


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
        think, pause = (parse(getattr(self, name), "s", name) for name in ("think", "pause"))
        return (self.turns - 1) * think + self.turns * (self.calls - 1) * pause

    @property
    def targets(self) -> dict[str, LatencyTarget]:
        """By the name of the latency."""
        found = {f"{name}_s": read_target(getattr(self, name), f"{name} of {self.name}") for name in TARGETS}
        return {name: target for name, target in found.items() if target is not None}

    @property
    def text(self) -> str:
        """What it says, without what everybody has (but for lengths that it draws) and where it comes from."""
        usual, always = msgspec.to_builtins(ClassTable(self.name)), () if self.pairs else ("prompt", "output")
        said = msgspec.to_builtins(self).items()
        own = {name: value for name, value in said if name in always or value != usual[name]}
        hidden = ("name", "source", "assumed", "pairs", "later", "profile")
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in own.items()
            if name not in hidden
        )


@functools.cache
def use_cases() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("use_cases.toml").read_text(encoding="utf-8"))


def class_of(words: dict[str, Any], origin: str) -> ClassTable:
    """A class by what is said of it, over the use case of its name."""
    return checked(use_cases().get(words.get("name", ""), {}) | words, ClassTable, "class of traffic", origin)


def read_classes(question: SimulateQuestion) -> list[ClassTable]:
    """The classes of a question; none where it has one kind of request."""
    if sum(map(bool, (question.traffic, question.classes, question.use_case))) > 1:
        raise InputError("--traffic, --class and --use-case each say what comes; give one of them.")
    if question.use_case:
        return [_use_case(question)]
    if question.classes:
        return [class_of(words, "--class") for words in _words(question.classes)]
    if not question.traffic:
        return []
    tables = read_table(Path(question.traffic), "traffic file").get("class")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"The traffic file {shorten(question.traffic)} has no [[class]] in it.")
    return [class_of(table, f"the traffic file {Path(question.traffic).name}") for table in tables]


def has_classes(question: SimulateQuestion) -> bool:
    return bool(question.traffic or question.classes or question.use_case)


def _use_case(question: SimulateQuestion) -> ClassTable:
    if question.use_case not in use_cases():
        raise unknown("use case called", question.use_case, use_cases())
    words = {name: value for name in OF_CLASSES if (value := getattr(question, name))}
    users = {"users": float(question.users)} if question.users else {}
    return class_of({"name": question.use_case} | words | users, "--use-case")


def _words(text: str) -> list[dict[str, Any]]:
    """`chat,rate=8/s,agent,users=50`: a word without a value begins a class."""
    found: list[dict[str, Any]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, given, value = part.partition("=")
        if not given:
            found.append({"name": name})
        elif not found:
            raise InputError(f"--class is {shorten(text)}; begin with its name: --class chat,rate=8/s.")
        elif name not in ClassTable.__struct_fields__:
            raise unknown("part of --class called", name, ClassTable.__struct_fields__)
        else:
            text_of = isinstance(getattr(ClassTable("", ""), name), str) or name in ("prompt", "output", "result")
            found[-1][name] = value if text_of else _number(name, value)
    return found


def _number(name: str, value: str) -> float:
    try:
        return int(value) if value.lstrip("-").isdigit() else float(value)
    except ValueError:
        raise InputError(f"In --class {name} is {shorten(value)}; write a number.") from None


@dataclass(frozen=True)
class TrafficMeans:
    """What requests are like: tokens on average and at most, and the part of prompts that was a prompt before."""

    prompt: int
    output: int
    longest: int
    repeated: float


def means_of(source: sim.TrafficSource, seed: int = 0) -> TrafficMeans:
    """Of the first requests, answered at once."""
    stream, after = source.start(seed)
    prompts = outputs = count = again = 0
    longest, seen = 1, set[int]()
    for first in islice(stream, DRAWN):
        request: sim.SimulatedRequest | None = first
        while request is not None and count < DRAWN:
            count += 1
            prompts, outputs = prompts + request.input_tokens, outputs + request.output_tokens
            longest = max(longest, request.input_tokens + request.output_tokens)
            blocks = request.blocks  # whoever has seen one has seen those before it
            known = bisect_left(range(len(blocks)), True, key=lambda place: blocks[place] not in seen)
            again += min(known * request.block_tokens, request.input_tokens)
            seen.update(blocks[known:])
            request = after(request, request.arrival_s) if after is not None else None
    count = max(count, 1)
    whole = max(round(prompts / count), 1), max(round(outputs / count), 1)
    return TrafficMeans(*whole, longest, again / max(prompts, 1))


def router_for(tables: Sequence[ClassTable]) -> str:
    """The router that finds in caches what requests begin with: a session goes on where it was, prompts that share one
    of several prefixes go where it is. Empty where every replica has all there is to find."""
    if any(one.turns > 1 or one.calls > 1 for one in tables):
        return "session_sticky"
    groups = [int(one.prefixes.partition("x")[0]) for one in tables if one.prefixes]
    return "prefix_affinity" if any(group > 1 for group in groups) else ""


def tokens_of(one: ClassTable, name: str) -> int:
    if name == "output" and str(one.output) == "0":  # embeddings and scores: a request ends with its prompt
        return 1
    return parse_length(str(getattr(one, name)), f"{name} of {one.name}")[0]


def arrivals_of(one: ClassTable, rate: float) -> Any:
    """How sessions come, where the file gives the rate over time."""
    return Profile(rate, tuple(one.profile), parse(one.every, "s", "every"), one.burst)
