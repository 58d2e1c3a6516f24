"""A fleet: pools of equal replicas behind a router, what may happen to them, and how they are scaled.

One pool does everything, unless the fleet has a `prefill` pool: then prompts are prefilled there and their caches are
sent to the main pool, which decodes (disaggregation).

Engines: in which order an iteration takes prompts and decoding sequences.

All engines but `static` are one scheduler with two switches. *Chunked*: may a prompt be cut to fill an iteration's
token budget, or is it prefilled whole? *Mixed*: do decoding sequences get their token in the same iteration as prompts,
or do they wait?

    continuous           whole prompts first, decoding waits (vLLM before its V1, TGI)
    continuous, mixed    whole prompts beside decoding (TensorRT-LLM's in-flight batching)
    chunked              decoding first, prompts fill the rest of the budget (vLLM V1; SGLang with mixed chunks)
    chunked, not mixed   prompts in chunks before any decoding (SGLang's default)

`static` collects a batch, prefills it together and decodes until its longest member ends; ended members keep their
places, as padding. A prompt that is longer than the budget of an engine that does not cut prompts runs alone.

>>> Scheduler("chunked").beside, Scheduler("continuous").beside
(True, False)
"""

from dataclasses import dataclass, field
from functools import cached_property

from dragonscale.errors import InputError, unknown
from dragonscale.serving.iteration.step_times import StepTimes
from dragonscale.serving.steady.speculation import Acceptance, check_acceptance

KINDS = ("static", "continuous", "chunked")
RESERVES = ("prompt", "whole")


@dataclass(frozen=True)
class Scheduler:
    """How one replica schedules.

    `sequences` and `tokens` cap an iteration of all `ranks` together; a prompt lies on one of them, so that no chunk is
    larger than a rank's part of what decoding sequences leave. Pages are taken for the prompt at admission and one by
    one afterwards, or (`reserve="whole"`) for prompt and output at once, which never preempts. `watermark` is the share
    of pages that an admission must leave free (vLLM's block manager: 0.01); with `page_each` it is a page for each
    sequence that runs. `draft` tokens are proposed to every
    sequence in each step and each is accepted with probability `acceptance`, given those before it (by position where
    it is several). While an iteration runs, `ahead` more are settled already (asynchronous scheduling: 1), so a request
    that comes meanwhile waits for them too; and new requests are looked for every `poll` iterations only. An idle
    engine takes them at once. With `chunk` iterations are compiled for a few sizes of chunks of prompts, powers of two
    of it up to `tokens`, beside those that decode (`dragonscale.serving.engine.chunk_shapes`). A static batch starts
    when it is full or its oldest member has waited `patience_s`."""

    kind: str = "chunked"
    sequences: int = 256
    tokens: int = 8192
    ranks: int = 1
    mixed: bool | None = None
    reserve: str = "prompt"
    watermark: float = 0.01
    page_tokens: int = 16
    draft: int = 0
    acceptance: Acceptance = 0.0
    patience_s: float = 0.0
    ahead: int = 0
    poll: int = 1
    chunk: int = 0
    page_each: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("engine", self.kind, KINDS)
        if self.reserve not in RESERVES:
            raise unknown("way to reserve pages called", self.reserve, RESERVES)
        for name in ("sequences", "tokens", "ranks", "page_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"An engine's {name} is {getattr(self, name)}; it must be at least 1.")
        check_acceptance(self.acceptance, "An engine's acceptance")
        for name, holds, wanted in (
            ("watermark", 0 <= self.watermark < 1, "a share of the pages, from 0 to below 1"),
            ("draft", self.draft >= 0, "0 (no speculation) or more tokens"),
            ("ahead", self.ahead >= 0, "0 or more iterations"),
            ("poll", self.poll >= 1, "1 or more iterations"),
            ("chunk", self.chunk >= 0, "0 (any size) or more tokens"),
            ("patience_s", self.patience_s >= 0, "0 or more seconds"),
        ):
            if not holds:
                raise InputError(f"An engine's {name} is {getattr(self, name)}; it is {wanted}.")

    @property
    def beside(self) -> bool:
        """Whether decoding goes on beside prompts."""
        return self.kind == "chunked" if self.mixed is None else self.mixed

    @property
    def queries(self) -> int:
        """Tokens a step puts through the model for each decoding sequence."""
        return self.draft + 1


ROUTERS = (
    *("round_robin", "least_loaded", "prefix_affinity", "slo_aware", "session_sticky"),
    *("cache_aware", "cache_scores"),
)
POOLS = ("serve", "prefill")
SIGNALS = ("requests", "queue", "kv", "ttft")
"""What an autoscaler may look at."""
DAY_S = 86400.0


@dataclass(frozen=True)
class Autoscale:
    """Keep what `on` names near `target`, between `least` and `most` replicas: requests on each replica, those that
    queue there, the used part of its cache, or the mean time to the first token. With a `schedule` of (second of a
    day, replicas) the clock decides. A new replica serves `startup_s` after it is asked for; one that is let go, which
    all looks of `hold_s` have to agree to, finishes what it has."""

    least: int
    most: int
    target: float
    startup_s: float = 60.0
    every_s: float = 10.0
    on: str = "requests"
    hold_s: float = 0.0
    schedule: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        if self.least < 0 or self.most < 1:
            raise InputError(
                f"Autoscaling from {self.least} to {self.most} replicas is not possible; write 0 or more for the least "
                "and 1 or more for the most, as in 0..4."
            )
        if self.least > self.most:
            raise InputError(
                f"Autoscaling from {self.least} to {self.most} replicas: the least comes first, as in "
                f"{self.most}..{self.least}."
            )
        if self.target <= 0 or self.startup_s < 0 or self.every_s <= 0:
            raise InputError(
                "Autoscaling needs a target load and an interval above 0 and a start-up time of 0 or more."
            )
        if self.on not in SIGNALS:
            raise unknown("signal of autoscaling called", self.on, SIGNALS)

    def planned(self, now: float) -> int:
        """Replicas by the schedule; before its first time of a day those of its last.

        >>> Autoscale(1, 9, 1.0, schedule=((8 * 3600.0, 9), (20 * 3600.0, 2))).planned(3600.0)
        2
        """
        later = [count for at, count in sorted(self.schedule) if at <= now % DAY_S]
        return later[-1] if later else sorted(self.schedule)[-1][1]


@dataclass(frozen=True)
class CacheTier:
    """Where prefixes are kept behind a replica's cache: so many tokens, loaded back at `tokens_per_s`. What falls out
    of one tier goes to the next. A `shared` one is a store of all replicas of the pool, which each new block is written
    to at once, as Mooncake's store and LMCache's remote backends are."""

    tokens: int
    tokens_per_s: float
    shared: bool = False

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.tokens_per_s <= 0:
            raise InputError("A tier of the cache holds 1 token or more and loads more than 0 of them a second.")


@dataclass(frozen=True)
class Pool:
    """Equal replicas. `kv_tokens` is what the cache of one replica holds. With `share_prefixes` leading blocks of
    prompts are kept and reused; what falls out of the cache goes to the `tiers` behind it. Requests of more than `upto`
    tokens (prompt and output; 0: any) go elsewhere, as do those of classes of traffic that are not among its `kinds`
    (none: all are). An image takes `image_s` before the prompt it is in. Of the requests' LoRA adapters `adapters` are
    in memory at a time (0: they have none), and one takes `adapter_s` to load."""

    times: StepTimes
    kv_tokens: int
    scheduler: Scheduler = field(default_factory=Scheduler)
    replicas: int = 1
    router: str = "round_robin"
    share_prefixes: bool = False
    tiers: tuple[CacheTier, ...] = ()
    autoscale: Autoscale | None = None
    upto: int = 0
    kinds: tuple[int, ...] = ()
    image_s: float = 0.0
    adapters: int = 0
    adapter_s: float = 0.0

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise unknown("router", self.router, ROUTERS)
        empty = self.autoscale is not None and self.autoscale.least == 0
        if self.replicas < (0 if empty else 1):
            raise InputError(
                f"A pool has {self.replicas} replicas; it needs at least 1, or autoscaling from 0 (--autoscale "
                "0..4,target=24)."
            )
        if self.kv_tokens < self.scheduler.page_tokens:
            raise InputError(
                f"A replica's cache holds {self.kv_tokens} tokens, less than one page of {self.scheduler.page_tokens}."
            )
        if min(self.upto, self.image_s, self.adapters, self.adapter_s) < 0:
            raise InputError(
                "The longest request of a pool, its adapters and their and images' times are not negative."
            )

    @cached_property
    def pages(self) -> int:
        """Pages of one replica's cache."""
        return int(self.kv_tokens // self.scheduler.page_tokens)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence that its cache holds."""
        return self.pages * self.scheduler.page_tokens


@dataclass(frozen=True)
class Failure:
    """Replica number `replica` of a pool dies at `at_s` and is back `for_s` later (never, if infinite). Its requests go
    back to the router with the tokens they already have. With `notice_s` it is told at `at_s`, takes no more requests
    and dies so much later: a drain, or a spot machine that is taken back."""

    replica: int
    at_s: float
    for_s: float = float("inf")
    pool: str = "serve"
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        if self.pool not in POOLS:
            raise unknown("pool", self.pool, POOLS)
        if not (self.replica >= 0 and self.at_s >= 0 and self.for_s >= 0 and self.notice_s >= 0):
            raise InputError(
                "A failure needs a replica's number (from 0), a time and a duration, none of them negative."
            )


@dataclass(frozen=True)
class Faults:
    """Every replica dies by chance, `mtbf_s` after it came up on average (exponential), told `notice_s` before, and is
    back `for_s` later."""

    mtbf_s: float
    for_s: float = 600.0
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mtbf_s > 0 and self.for_s >= 0 and self.notice_s >= 0):
            raise InputError("Failures by chance need a mean time above 0 seconds, and none of their times negative.")


@dataclass(frozen=True)
class Fleet:
    """What serves. `overhead_s` passes between a request's arrival and its engine's knowing of it (network,
    tokenizer); no more than `queue_limit` requests may wait in the fleet, others are refused, as are those of more
    than `context` tokens, the model's, or of more than `served_length`, the engine's own limit (`--max-model-len`).
    Beside the main pool there may be `others`, of other chips, engines or models: a request goes to one of the pools
    that take it, of those with the least `upto`; where these are several, one router, the main pool's, chooses among
    the replicas of all of them."""

    pool: Pool
    prefill: Pool | None = None
    failures: tuple[Failure, ...] = ()
    overhead_s: float = 0.0
    queue_limit: int | None = None
    context: int | None = None
    served_length: int | None = None
    faults: Faults | None = None
    others: tuple[Pool, ...] = ()

    def __post_init__(self) -> None:
        if self.others and self.prefill is not None:
            raise InputError("A fleet of several pools that decode has no prefill pool beside them; leave one out.")
        for failure in self.failures:
            pool = self.prefill if failure.pool == "prefill" else self.pool
            if pool is None:
                raise InputError("A failure names the prefill pool of a fleet that has none.")
            count = pool.replicas + (sum(one.replicas for one in self.others) if failure.pool == "serve" else 0)
            if failure.replica >= count:
                raise InputError(
                    f"A failure names replica {failure.replica} of a pool whose {count} are numbered from 0."
                )
        if self.overhead_s < 0:
            raise InputError(f"A fleet's overhead is {self.overhead_s} s; it cannot be negative.")
        if self.queue_limit is not None and self.queue_limit < 0:
            raise InputError(f"A fleet's queue limit is {self.queue_limit}; it cannot be negative.")
        if self.prefill is not None and "static" in (self.pool.scheduler.kind, self.prefill.scheduler.kind):
            raise InputError("Prefill and decode pools need a continuous or chunked engine, not a static one.")
