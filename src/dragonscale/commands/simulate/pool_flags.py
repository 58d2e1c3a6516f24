"""Flags of `dscale simulate` about what replicas have beside a plan (tiers of cache, LoRA adapters, an encoder for
images), and about the pools beside the first, of other chips, engines, models, or for requests of other lengths and
classes.

    [[pool]]
    on = "h200:4"             # --pool h200:4,replicas=2,plan=tp4,upto=8k says the same
    replicas = 2
    plan = "tp4"
    upto = "8k"               # tokens of prompt and output: the pool with the smallest limit that fits takes a request
    classes = ["chat"]        # of traffic that come here alone
    model = "llama3-8b"       # the question's, unless it says another; likewise engine, max_seqs, token_budget,
                              # memory_fraction, host_cache and autoscale
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.commands.given import comma_list
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.fleet_sizing.replica_extras import AdapterLoad, ImageLoad, TierSize
from dragonscale.simulation.fleet_sizing.traffic_classes import read_parts
from dragonscale.tables import Strict, checked, read_table

# Settings of a pool that are numbers, and how each is read.
_NUMBERS = {"replicas": int, "max_seqs": int, "token_budget": int, "memory_fraction": float}


class PoolTable(Strict, frozen=True):
    """A pool as it is written; see above."""

    on: str
    replicas: int = 1
    model: str = ""
    plan: str = ""
    engine: str = ""
    upto: int | str = 0
    classes: list[str] = []
    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None
    host_cache: str = ""
    autoscale: str = ""

    def over(self, question: SimulateQuestion) -> SimulateQuestion:
        """The question about this pool."""
        settings = {name: value for name, value in msgspec.to_builtins(self).items() if value not in ("", None)}
        for name in ("upto", "classes"):  # which say what comes to the pool, and not what it is
            settings.pop(name, None)
        return replace(question, **({"plan": "", "autoscale": "", "host_cache": ""} | settings))

    @property
    def max_tokens(self) -> int:
        """Tokens of the longest request that it takes; 0 for any."""
        if not self.upto:
            return 0
        return parse_length(self.upto, f"upto of the pool {self.on}")[0]

    @property
    def limits(self) -> LaunchLimits:
        """The limits that its launch alone has."""
        return LaunchLimits(self.max_seqs, self.token_budget, self.memory_fraction)


def check_one_slice(named: str) -> None:
    """Refuse several slices where one is meant, with the pools that say it."""
    first, *others = map(str.strip, named.split(","))
    if others:
        pools = " ".join(f"--pool {part}" for part in others)
        raise InputError(
            f"--on is {shorten(named)}, several slices; the others of a mixed fleet are pools: --on {first} {pools}."
        )


def read_pools(text: str) -> list[PoolTable]:
    """Pools in words, or those of a file.

    >>> [pool.plan for pool in read_pools("h200:4,plan=tensor=4,weights=fp8,replicas=2,a100:8")]
    ['tensor=4,weights=fp8', '']
    """
    if text.endswith(".toml"):
        tables = read_table(Path(text), "fleet file").get("pool")
        if not isinstance(tables, list) or not tables:
            raise InputError(f"The fleet file {shorten(text)} has no [[pool]] in it.")
        return [checked(table, PoolTable, "pool", f"of the fleet file {Path(text).name}") for table in tables]
    pools: list[dict[str, Any]] = []
    plan_settings = {field.name for field in fields(ServingPlan)}
    for part in comma_list(text):
        name, equals, value = part.partition("=")
        if not equals:
            pools.append({"on": name})
        elif not pools:
            raise InputError(f"--pool is {shorten(text)}; begin with the slice of a replica: --pool h200:4,replicas=2.")
        elif name in plan_settings:  # a plan's own settings have commas between them, as pools do
            pools[-1]["plan"] = ",".join(filter(None, (pools[-1].get("plan", ""), part)))
        elif name not in PoolTable.__struct_fields__:
            raise unknown("part of --pool called", name, PoolTable.__struct_fields__)
        else:
            pools[-1][name] = _value(name, value)
    return [checked(pool, PoolTable, "pool", "--pool") for pool in pools]


def _value(name: str, value: str) -> Any:
    if name == "classes":
        return value.split("+")
    if name not in _NUMBERS:
        return value
    try:
        return _NUMBERS[name](value)
    except ValueError:
        raise InputError(f"In --pool {name} is {shorten(value)}; write a number.") from None


def class_indices(tables: Sequence[PoolTable], names: Sequence[str]) -> list[tuple[int, ...]]:
    """The classes of traffic that the first pool and each pool of a table take, as indices (none: all): the first has
    those that no other names."""
    index_of = {name: index for index, name in enumerate(names)}
    # the classes that no pool of a table has named so far
    left = set(index_of.values())
    claimed: list[tuple[int, ...]] = []
    for table in tables:
        for name in table.classes:
            if name not in index_of:
                hint = "there are none; add --class or --traffic"
                if names:
                    hint = f"classes are {', '.join(names)}"
                raise InputError(f"The pool {table.on} is for the class {shorten(name)}, and {hint}.")
        claimed.append(tuple(map(index_of.__getitem__, table.classes)))
        left.difference_update(claimed[-1])
    if not any(claimed):
        return [(), *claimed]
    if not left:
        raise InputError("Other pools take every class of traffic, so that --on has none; leave one to it.")
    return [tuple(sorted(left)), *claimed]


def read_tiers(text: str) -> tuple[TierSize, ...]:
    """`500GB,ssd=4TB@7GB/s,remote=20TB@25GB/s`: the host's memory at the bandwidth of its link, a replica's SSDs, and a
    store of all replicas, which each reads at this bandwidth.

    >>> [tier.shared for tier in read_tiers("500GB,remote=20TB@25GB/s")]
    [False, True]
    """
    tiers: list[TierSize] = []
    for part in comma_list(text):
        name, equals, value = part.partition("=")
        if not equals:  # a size alone is of the host's memory
            name, value = "host", part
        size, at, bandwidth = value.partition("@")
        # the host's link has its bandwidth already; every other tier says its own
        if name not in ("host", "ssd", "remote") or bool(at) == (name == "host"):
            wanted = "500GB of host memory, or 500GB,ssd=4TB@7GB/s,remote=20TB@25GB/s"
            raise InputError(f"--host-cache is {shorten(text)}; write {wanted}.")
        bytes_per_s = None
        if at:
            bytes_per_s = parse(bandwidth, "bytes/s", f"the pace of {name}")
        tiers.append(TierSize(parse(size, "bytes", "--host-cache"), bytes_per_s, shared=name == "remote"))
    if any(tier.shared for tier in tiers[:-1]):
        raise InputError("In --host-cache the remote store comes last, behind a replica's own tiers.")
    return tuple(tiers)


def read_adapters(text: str) -> AdapterLoad | None:
    """`100x16,slots=8,skew=1`: a hundred adapters of rank 16, eight of them in memory at a time.

    >>> read_adapters("100x16,slots=4").slots
    4
    """
    if not text:
        return None
    readers = {"slots": lambda value: parse_count(value, "slots"), "skew": float, "share": float}
    (count, rank), values = read_parts("--adapters", text, r"(\d{1,6})x(\d{1,4})", "100x16,slots=8,skew=1", readers)
    if min(count, rank, values.get("slots", 1)) < 1:
        raise InputError(f"--adapters is {shorten(text)}; adapters, their rank and slots are at least 1.")
    return AdapterLoad(count, rank, **values)


def read_images(text: str) -> ImageLoad:
    """`2x576,encoder=300M`: two images of 576 tokens in every request, by an encoder of so many parameters.

    >>> read_images("2x576").count
    2
    """
    if not text:
        return ImageLoad()
    readers = {"encoder": lambda value: parse_count(value, "encoder"), "patches": float}
    (count, tokens), values = read_parts("--images", text, r"(\d{1,4})x(\d{1,6})", "2x576,encoder=300M", readers)
    if min(count, tokens) < 1 or not all(0 < value < math.inf for value in values.values()):
        raise InputError(f"--images is {shorten(text)}; images, their tokens and the encoder are more than nothing.")
    parameters = values.pop("encoder", 0.0)
    return ImageLoad(count, tokens, parameters, **values)
