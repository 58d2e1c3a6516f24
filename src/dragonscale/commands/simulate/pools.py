"""What replicas of `dscale simulate` have beside a plan: tiers of cache, LoRA adapters, an encoder for images; and the
pools beside the first, of other chips, engines, models, or for requests of other lengths and classes.

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
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy

from dragonscale import simulation as sim
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.fleet import read_parts
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.lora import adapted_lines, adapter_parameters
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.simulation.adapters import AdapterTimes
from dragonscale.tables import Strict, checked, read_table

ADAPTER_S = 2e-3 / 224
"""Seconds that an iteration takes longer for each matmul with adapters: Punica adds 2 ms to a token of LLaMA-2 7B,
which has 224 of them (arXiv:2310.18547)."""
SLOTS = 8
"""Adapters in memory at a time, unless it is said."""
ADAPTER_BYTES = 2
"""Of a parameter: adapters are served in 16 bits."""
PATCHES = 4
"""Patches that an encoder sees for each token that the model gets: LLaVA-OneVision's, Qwen2.5-VL's and InternVL's
projectors merge 2 x 2."""
ENCODER = 6.3e8
"""Parameters of the encoder, unless they are said or the model's own are known: ViT-H/14, about that of Qwen2.5-VL
(arXiv:2502.13923)."""
PROBE = 2048
"""Tokens of the prompt whose pace in the model an encoder has by its own FLOPs."""


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
        own = {name: value for name, value in msgspec.to_builtins(self).items() if value not in ("", None)}
        words = {name: value for name, value in own.items() if name not in ("upto", "classes")}
        return replace(question, **({"plan": "", "autoscale": "", "host_cache": ""} | words))

    @property
    def most(self) -> int:
        """Tokens of the longest request; 0 for any."""
        return parse_length(self.upto, f"upto of the pool {self.on}")[0] if self.upto else 0


def check_one_slice(named: str) -> None:
    """Refuse several slices where one is meant, with the pools that say it."""
    first, *others = (part.strip() for part in named.split(","))
    if others:
        pools = " ".join(f"--pool {part}" for part in others)
        told = f"--on is {shorten(named)}, several slices; the others of a mixed fleet are pools"
        raise InputError(f"{told}: --on {first} {pools}.")


def read_pools(text: str) -> list[PoolTable]:
    """Pools in words, or those of a file.

    >>> [one.plan for one in read_pools("h200:4,plan=tensor=4,weights=fp8,replicas=2,a100:8")]
    ['tensor=4,weights=fp8', '']
    """
    if text.endswith(".toml"):
        tables = read_table(Path(text), "fleet file").get("pool")
        if not isinstance(tables, list) or not tables:
            raise InputError(f"The fleet file {shorten(text)} has no [[pool]] in it.")
        return [checked(table, PoolTable, "pool", f"of the fleet file {Path(text).name}") for table in tables]
    found: list[dict[str, Any]] = []
    settings = {one.name for one in fields(ServingPlan)}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, given, value = part.partition("=")
        if not given:
            found.append({"on": name})
        elif not found:
            raise InputError(f"--pool is {shorten(text)}; begin with the slice of a replica: --pool h200:4,replicas=2.")
        elif name in settings:
            found[-1]["plan"] = ",".join(filter(None, (found[-1].get("plan", ""), part)))
        elif name not in PoolTable.__struct_fields__:
            raise unknown("part of --pool called", name, PoolTable.__struct_fields__)
        else:
            found[-1][name] = _value(name, value)
    return [checked(table, PoolTable, "pool", "--pool") for table in found]


def _value(name: str, value: str) -> Any:
    if name == "classes":
        return value.split("+")
    if name not in ("replicas", "max_seqs", "token_budget", "memory_fraction"):
        return value
    try:
        return float(value) if name == "memory_fraction" else int(value)
    except ValueError:
        raise InputError(f"In --pool {name} is {shorten(value)}; write a number.") from None


def placed(
    pool: sim.Pool, tables: list[PoolTable], pools: list[sim.Pool], names: list[str]
) -> tuple[sim.Pool, list[sim.Pool]]:
    """The pools with the classes and lengths that each takes; the first has the classes that no other names."""
    for table in tables:
        for name in table.classes:
            if name not in names:
                told = f"classes are {', '.join(names)}" if names else "there are none; add --class or --traffic"
                raise InputError(f"The pool {table.on} is for the class {shorten(name)}, and {told}.")
    own = [tuple(names.index(name) for name in table.classes) for table in tables]
    taken = {kind for kinds in own for kind in kinds}
    left = tuple(kind for kind in range(len(names)) if kind not in taken) if taken else ()
    if taken and not left:
        raise InputError("Other pools take every class of traffic, so that --on has none; leave one to it.")
    rows = zip(pools, tables, own, strict=True)
    return replace(pool, kinds=left), [replace(one, upto=table.most, kinds=kinds) for one, table, kinds in rows]


# What replicas have beside a plan.


def with_tiers(pool: sim.Pool, text: str, deployment: Deployment) -> sim.Pool:
    """`500GB,ssd=4TB@7GB/s,remote=20TB@25GB/s`: the host's memory at the pace of its link, a replica's SSDs, and a
    store of all replicas, which each reads at this pace."""
    if not text:
        return pool
    each = pool.times.per_token  # pyright: ignore[reportAttributeAccessIssue]
    whole = each * deployment.plan.tensor * deployment.plan.pipe  # each chip holds, and loads, its own share of a token
    found: list[sim.CacheTier] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, given, value = part.partition("=")
        size, at, pace = (value if given else part).partition("@")
        if (given and name not in ("host", "ssd", "remote")) or bool(at) != (given != "" and name != "host"):
            wanted = "500GB of host memory, or 500GB,ssd=4TB@7GB/s,remote=20TB@25GB/s"
            raise InputError(f"--host-cache is {shorten(text)}; write {wanted}.")
        speed = parse(pace, "bytes/s", f"the pace of {name}") / whole if at else deployment.chip.host_link / each
        tokens = int(parse(size, "bytes", "--host-cache") / whole)
        found += [sim.CacheTier(tokens, speed, name == "remote")] if tokens else []
    if any(one.shared for one in found[:-1]):
        raise InputError("In --host-cache the remote store comes last, behind a replica's own tiers.")
    return replace(pool, tiers=tuple(found))


@dataclass(frozen=True)
class AskedAdapters:
    """LoRA adapters: how many, of which rank, those in memory at a time, how popular each is."""

    many: int
    rank: int
    slots: int = SLOTS
    skew: float = 0.0
    share: float = 1.0

    @property
    def drawn(self) -> sim.Prefixes:
        """Whose adapter a request has."""
        return sim.Prefixes(self.many, 1, self.share, self.skew)

    def on(self, pool: sim.Pool, deployment: Deployment) -> sim.Pool:
        """A pool whose replicas have them: less room for the cache, longer steps, and loads from the host."""
        sections = deployment.model.program().sections[1:-1]
        size = ADAPTER_BYTES * float(sum(adapter_parameters(sections, self.rank).values()))
        matmuls = sum(len(adapted_lines(one)) * one.repeat for one in sections)
        chips, chip = deployment.plan.tensor * deployment.plan.pipe, deployment.chip
        slots = min(self.slots, self.many)
        room = pool.kv_tokens - int(slots * size / (pool.times.per_token * chips))  # pyright: ignore
        if room < pool.scheduler.page_tokens:
            raise InputError(f"{slots} adapters of {size / 1e9:.2f} GB leave no room for a KV cache; take fewer slots.")
        weights = numpy.arange(1, self.many + 1) ** -float(self.skew)
        chances = tuple(float(one) for one in self.share * weights / weights.sum())
        step_s, read_s = ADAPTER_S * float(matmuls), size / chips / chip.bandwidth("hbm")
        times = AdapterTimes(pool.times, chances, slots, step_s, read_s)
        return replace(
            pool, times=times, kv_tokens=room, adapters=slots, adapter_s=size / chips / float(chip.host_link)
        )


def read_adapters(text: str) -> AskedAdapters | None:
    """`100x16,slots=8,skew=1`: a hundred adapters of rank 16, eight of them in memory at a time.

    >>> read_adapters("100x16,slots=4").slots
    4
    """
    if not text:
        return None
    kinds = {"slots": lambda value: parse_count(value, "slots"), "skew": float, "share": float}
    (many, rank), values = read_parts("--adapters", text, r"(\d{1,6})x(\d{1,4})", "100x16,slots=8,skew=1", kinds)
    if min(many, rank, values.get("slots", 1)) < 1:
        raise InputError(f"--adapters is {shorten(text)}; adapters, their rank and slots are at least 1.")
    return AskedAdapters(many, rank, **values)


@dataclass(frozen=True)
class AskedImages:
    """Images of a request, the tokens of each, and the parameters of their encoder."""

    many: int = 0
    tokens: int = 0
    encoder: float = 0.0
    patches: float = PATCHES

    def on(self, pool: sim.Pool, deployment: Deployment) -> sim.Pool:
        """A pool whose replicas encode them, at the FLOP/s that prompts have there."""
        if not self.many:
            return pool
        prompt, counts = pool.times.step(0, 0.0, [(PROBE, 0)]), count_parameters(deployment.model)
        encoder = self.encoder or float(counts.extras_by_part.get("vision", 0)) or ENCODER
        part = encoder * self.patches * self.tokens / (float(counts.active) * PROBE)
        return replace(pool, image_s=prompt * part)


def read_images(text: str) -> AskedImages:
    """`2x576,encoder=300M`: two images of 576 tokens in every request, by an encoder of so many parameters.

    >>> read_images("2x576").many
    2
    """
    if not text:
        return AskedImages()
    kinds = {"encoder": lambda value: parse_count(value, "encoder"), "patches": float}
    (many, tokens), values = read_parts("--images", text, r"(\d{1,4})x(\d{1,6})", "2x576,encoder=300M", kinds)
    if min(many, tokens) < 1 or not all(0 < value < math.inf for value in values.values()):
        raise InputError(f"--images is {shorten(text)}; images, their tokens and the encoder are more than nothing.")
    return AskedImages(many, tokens, **values)
