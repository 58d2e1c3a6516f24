"""Disaggregated prefill and decode: how many replicas of each, what the cache transfer costs, when it is worth it.

Prefill is compute-bound and wants few, fast chips; decoding is memory-bound and wants a large batch that no prompt
interrupts. Apart, each pool has its own sharding and batch, and the time between tokens is a plain decode step. The
price is the transfer of every prompt's cache from one pool to the other, and whole replicas of both kinds.

Requests arrive at random and are dealt to the prefill replicas in turn, so prompts wait for those before them, the
longer the higher the pool's load, and share iterations with those that wait too (`bulk`). Targets are means;
percentiles need a simulation. The first token comes with the cache.

The configurations that are paired here are those of an engine that runs prompts by themselves (`alone`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy

from dragonscale.physics.numbers import ceil_to
from dragonscale.plan.finite import check_terms
from dragonscale.serving.engine.engine import Engine, adjust
from dragonscale.serving.engine.restrictions import DECODE, PREFILL
from dragonscale.serving.iteration.cache_transfer import CACHE_LATENCY_S, port_bandwidth
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.space.ranking import CLOSE, first_of_each
from dragonscale.serving.space.space import slices_of
from dragonscale.serving.steady.bulk import sojourn
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.serving.steady.steady import Steady

CANDIDATES = 8
"""Configurations to try for each of the two pools."""
LOAD = 0.85
"""The load of a prefill pool without a target for the first token."""
MAX_LOAD = 0.9
"""The highest load of a prefill pool, however loose the target: above it the wait doubles with every further 5%."""
MAX_DECODE_LOAD = 0.95
"""The highest load of a decode pool, whose batches only grow with the load."""
BURST_DEVIATIONS = 1.65
"""Standard deviations above the mean that a decode replica has places for: 95% of a normal distribution."""
MAX_PREFILL_SHARE = 0.95
"""The fraction of the TTFT target that a prompt that waits for nobody may take; the rest is for the cache transfer."""


def alone(engine: Engine) -> Engine:
    """The engine with prompts in iterations of their own, as a prefill pool runs them; in chunks if it cuts them."""
    scheduler = "chunked" if engine.scheduling.scheduler == "chunked" else "continuous"
    return adjust(engine, scheduling={"scheduler": scheduler, "mixed": False})


@dataclass(frozen=True)
class Pools:
    """A prefill pool and a decode pool: `prefills` replicas of one configuration feed `decodes` of another.

    The batch of `decode` is what it takes at once; `ladder` is the decode replica with other batches, ascending.
    `offered` is the rate in requests per second; None means as many as the pools take.
    """

    prefill: Config
    decode: Config
    prefills: int
    decodes: int
    ask: Ask
    ladder: tuple[Config, ...] = ()
    offered: float | None = None

    @cached_property
    def chips_by_price(self) -> list[tuple[int, float | None]]:
        """Chips of each kind, in whole slices if one was named, with the price of one chip."""
        used: dict[str, int] = {}
        prices: dict[str, float | None] = {}
        for config, replicas in ((self.prefill, self.prefills), (self.decode, self.decodes)):
            chip = config.piece.chip
            used[chip.name] = used.get(chip.name, 0) + config.chips * replicas
            prices[chip.name] = chip.price
        rented = dict(self.ask.rented)
        whole = {name: ceil_to(chips, rented.get(name, 1)) for name, chips in used.items()}
        return [(whole[name], price) for name, price in prices.items()]

    @cached_property
    def chips(self) -> int:
        """Chips of both pools, in whole slices if one was named."""
        return sum(count for count, _ in self.chips_by_price)

    @property
    def feeding(self) -> float:
        """Requests per second that the prefill pool does if it is never idle."""
        return self.prefills / prompt_share(self.prefill)

    @property
    def draining(self) -> float:
        """Requests per second that the decode pool does with full batches."""
        return self.decodes * self.decode.batch / (decode_step(self.decode) * max(self.ask.output - 1, 1))

    @property
    def requests(self) -> float:
        """Requests per second: the offered rate, or as many as the slower pool takes at its highest load."""
        capacity = min(self.feeding * self.highest_load, self.draining * decode_load(self.decode))
        return capacity if self.offered is None else min(capacity, self.offered)

    @property
    def prefill_load(self) -> float:
        """The fraction of time that prefill replicas are busy."""
        return self.requests / self.feeding

    @cached_property
    def highest_load(self) -> float:
        """The load of the prefill pool at which the first token is just in time on average."""
        target = self.ask.ttft
        if target is None:
            return LOAD
        low, high = 0.0, MAX_LOAD
        for _ in range(10):  # bisection: the TTFT rises with the load
            load = (low + high) / 2
            if self.ttft_at(load) <= target:
                low = load
            else:
                high = load
        return low or LOAD  # missed even without a queue

    @property
    def tokens_per_chip(self) -> float:
        """Output tokens per second and chip."""
        return self.requests * self.ask.output / self.chips

    @property
    def transfer_bytes(self) -> float:
        """Bytes of one prompt's cache."""
        return self.decode.prompt_bytes

    @property
    def transfer_s(self) -> float:
        """Seconds for one prompt's cache to reach the other pool; each chip of its data rank sends or receives a
        shard."""
        sending = port_bandwidth(self.prefill.piece.chip) * self.prefill.chips / self.prefill.plan.data
        receiving = port_bandwidth(self.decode.piece.chip) * self.decode.chips / self.decode.plan.data
        return CACHE_LATENCY_S + self.transfer_bytes / min(sending, receiving)

    @property
    def port_bytes_per_s(self) -> float:
        """Bytes per second that the prefill pool's ports can send."""
        return port_bandwidth(self.prefill.piece.chip) * self.prefill.chips * self.prefills

    @property
    def around_s(self) -> float:
        """Seconds to the first token besides the prefill: at the front end, and for the cache transfer."""
        return float(self.prefill.state.front) + self.transfer_s

    def ttft_at(self, load: float) -> float:
        """Mean seconds to the first token at a load of the prefill pool."""
        return self.around_s + sojourn(self.prefill.packed, load, self.prefills)

    @property
    def ttft(self) -> float:
        """Mean seconds to the first token, at the rate of `requests`."""
        return self.ttft_at(self.prefill_load)

    @property
    def tpot(self) -> float:
        """Mean seconds between tokens with as many sequences as decode on average; the second token also waits for the
        step in progress."""
        return self.mean_step * (1 + 0.5 / max(self.ask.output - 1, 1))

    @cached_property
    def mean_step(self) -> float:
        """Seconds of the step at which a decode replica makes as many tokens as are asked of it."""
        token_rate = self.requests * (self.ask.output - 1) / self.decodes
        few, low = 0, None
        for config in self.ladder:
            many, high = config.batch, decode_step(config)
            if many > self.decode.batch:
                break
            if low is None:
                low = high  # an empty replica is as slow as the smallest batch
            if many / high >= token_rate:
                # batch = token_rate x step, on the line between two rungs of the ladder
                slope = (high - low) / (many - few)
                return (low - slope * few) / (1 - slope * token_rate)
            few, low = many, high
        return decode_step(self.decode)

    @property
    def decoding(self) -> float:
        """Sequences that a decode replica decodes on average (Little's law)."""
        return self.requests * (self.ask.output - 1) * self.mean_step / self.decodes

    def fitted(self) -> "Pools":
        """The same pools with the smallest batch of the decode replicas that takes the same rate in time.

        More places than bursts fill are only launched for, and drafts should be those that pay at the batches that run.
        """
        for config in self.ladder:
            pools = replace(self, decode=config)
            if pools.requests >= self.requests * (1 - 1e-9) and pools.meets >= self.meets:
                return pools
        return self

    @property
    def prefill_binds(self) -> bool:
        """Whether the prefill pool is closer to its limit than the decode pool with its largest batch."""
        largest = replace(self, decode=self.ladder[-1]) if self.ladder else self
        capacity = largest.draining * decode_load(largest.decode)
        return self.requests / capacity <= self.prefill_load / self.highest_load * (1 + 1e-9)

    @property
    def meets(self) -> bool:
        """Whether the targets are met."""
        return self.ask.met_by(self.ttft, self.tpot)

    @property
    def cost(self) -> float:
        """Dollars (chips without prices) per hour for a request per second."""
        hourly = self.usd_per_h
        if hourly is None:
            hourly = self.chips
        return hourly / self.requests

    def order(self) -> tuple[Any, ...]:
        """The key for sorting: those that meet the targets, cheapest, quickest first token."""
        return not self.meets, self.usd_per_h is None, self.cost, self.ttft

    @property
    def usd_per_h(self) -> float | None:
        """Dollars for an hour of both pools, or None without prices."""
        total = 0.0
        for count, price in self.chips_by_price:
            if price is None:
                return None
            total += count * float(price)
        return total

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, or None without prices."""
        hourly = self.usd_per_h
        if hourly is None:
            return None
        return float(usd_per_million(self.requests * self.ask.output, 1, hourly))


@dataclass(frozen=True)
class PooledConfig(Config):
    """Pools as one configuration beside others.

    Plan, mean batch, step and memory are a decode replica's; chips, times and rates are those of both pools.
    """

    pools: Pools = field(kw_only=True)
    is_fleet: ClassVar[bool] = True

    @property
    def chips(self) -> int:
        """Chips of both pools."""
        return self.pools.chips

    @property
    def place(self) -> tuple[str, ...]:
        """Slice and plan of both kinds of replica."""
        return *super().place, *self.pools.prefill.place

    @property
    def usd_per_h(self) -> float | None:
        """Dollars for an hour of both pools; None without a price."""
        return self.pools.usd_per_h


def as_config(pools: Pools) -> PooledConfig:
    """Pools as a configuration, see `PooledConfig`.

    The first token travels with the cache, no prompt comes between tokens, and prompts pay for the chips of the prefill
    pool.
    """
    prefill, decode = pools.prefill, pools.decode
    prefill_chips, decode_chips = pools.prefills * prefill.chips, pools.decodes * decode.chips
    batch, ladder = max(1, round(pools.decoding)), pools.ladder or (decode,)
    state = Steady(
        batch=batch,
        decode=pools.tpot,
        prefill=prefill.prefill_s,
        added=prefill_chips / (prefill_chips + decode_chips) / pools.requests,
        output=pools.ask.output,
        waiting=max(pools.ttft - pools.around_s - prefill.prefill_s, 0.0),
        front=float(prefill.state.front),
        under_way=pools.transfer_s,
        met=0.0,
        requests=pools.requests,
    )
    terms = {f"{name} of the steady state": value for name, value in vars(state).items()}
    check_terms(terms, True, f"pools of {prefill.plan} and {decode.plan}")
    sizes = [config.batch for config in ladder]

    def at_batch(name: str) -> float:
        return float(numpy.interp(batch, sizes, [getattr(config, name) for config in ladder]))

    changed: dict[str, Any] = {
        "state": state,
        "batch": batch,
        "prefill_s": prefill.prefill_s,
        "meets": pools.meets,
        "chunks": prefill.chunks,
        "chunk_tokens": prefill.chunk_tokens,
        "decode_s": at_batch("decode_s"),
        "lower_s": at_batch("lower_s"),
        "hbm_bytes": at_batch("hbm_bytes"),
        "bound_by": next((config.bound_by for config in ladder if config.batch >= batch), ladder[-1].bound_by),
    }
    return PooledConfig(**(vars(decode) | changed), pools=pools)


def prompt_share(config: Config) -> float:
    """Seconds that one prompt takes of a prefill replica that always has another prompt.

    Every data rank and pipeline stage has prompts of its own, and short ones run together. (On a replica that also
    decodes fewer prompts meet.)
    """
    together, seconds = config.packed[-1]
    return seconds / together


def within_memory(config: Config) -> Config:
    """A prefill replica whose iterations take no more prompts than half of what its memory holds.

    The pages of one iteration's prompts stay until they are handed over, while the next one's are filled.
    """
    limit = max(config.most / 2, 1.0)
    if not config.packed or config.packed[-1][0] <= limit:
        return config
    counts, seconds = zip(*config.packed, strict=True)
    last = limit, float(numpy.interp(limit, counts, seconds))
    return replace(config, packed=(*(pair for pair in config.packed if pair[0] < limit), last))


def decode_step(config: Config) -> float:
    """Seconds per token of a decode replica with a full batch."""
    return float(config.state.decode) if config.drafts else config.decode_s


def decode_load(config: Config) -> float:
    """The mean fraction of a batch that decodes, low enough that bursts still find a place."""
    # The number of sequences is about Poisson: solve mean + BURST_DEVIATIONS·√mean = batch for √mean.
    root = (math.sqrt(BURST_DEVIATIONS**2 + 4 * config.batch) - BURST_DEVIATIONS) / 2
    return min(MAX_DECODE_LOAD, max(root**2, 0.5) / config.batch)


def pools(
    prefill: Config,
    decode: Config,
    ask: Ask,
    max_decodes: int = 32,
    ladder: tuple[Config, ...] = (),
    within: Mapping[str, int] | None = None,
) -> Pools | None:
    """The smallest whole numbers of replicas that take the rate that is asked for.

    Without a rate, those that cost nearly as little (`CLOSE`) as the best of up to `max_decodes` decode replicas. They
    stay `within` so many chips of each kind, those of a slice that was named, or there are none.
    """
    if ask.rate is not None:
        return _sized(Pools(prefill, decode, 1, 1, ask, ladder, ask.rate))
    within = dict(ask.rented) if within is None else within
    candidates: list[Pools] = []
    for decodes in range(1, max_decodes + 1):
        max_prefills = _max_prefills(prefill, decode, decodes, within)
        if max_prefills < 1:
            break
        # prefill replicas, never idle, that keep the decode replicas full; more at the load that targets allow
        wanted = Pools(prefill, decode, 1, decodes, ask).draining * decode_load(decode) * prompt_share(prefill)
        load = Pools(prefill, decode, max(1, round(wanted)), decodes, ask).highest_load
        rounded = (math.floor(wanted / load), math.ceil(wanted / load))
        counts = {int(min(max(1, count), max_prefills)) for count in rounded}
        candidates += [Pools(prefill, decode, prefills, decodes, ask, ladder) for prefills in counts]
    return min(_close(candidates), key=_trouble, default=None)


def _max_prefills(prefill: Config, decode: Config, decodes: int, within: Mapping[str, int]) -> float:
    """The most prefill replicas beside so many decode replicas."""
    prefill_chip, decode_chip = prefill.piece.chip.name, decode.piece.chip.name
    left = within.get(decode_chip, math.inf) - decodes * decode.chips
    if prefill_chip != decode_chip and left >= 0:
        left = within.get(prefill_chip, math.inf)  # other chips have a limit of their own
    return max(left, 0) // prefill.chips


def _sized(pair: Pools) -> Pools:
    """As many replicas of each kind as the offered rate takes with mean first tokens in time."""
    assert pair.offered is not None
    rate = pair.offered / pair.decode.counted
    decodes = max(1, math.ceil(rate / (pair.draining * decode_load(pair.decode)) - 1e-9))
    prefills = max(1, math.ceil(rate / (pair.feeding * MAX_LOAD) - 1e-9))
    sized = replace(pair, prefills=prefills, decodes=decodes)
    # a target may allow less than the highest load
    while sized.feeding * sized.highest_load < rate * (1 - 1e-9):
        sized = replace(sized, prefills=sized.prefills + 1)
    return sized


def best_pools(
    configs: Sequence[Config], ask: Ask, count: int = 3, runs: Callable[[Config, str], bool] = lambda *_: True
) -> list[Pools]:
    """The best pairs of configurations of an engine that runs prompts alone.

    A few candidates for each pool, every pair of them. They stay within the slice that was named. If only a chip was
    named, they stay within the largest slice that a copy is considered on (a rack, or a few servers) if any pair does.
    `runs` says whether a configuration runs in a role (`prefill`, `decode`). Those that meet the targets come first,
    most tokens per chip first.
    """
    configs = [within_memory(config) for config in configs]
    prefills = _prefill_candidates([config for config in configs if runs(config, PREFILL)], ask)
    decodes = _decode_candidates([config for config in configs if runs(config, DECODE)], ask)
    ladders = dict[tuple[str, ...], list[Config]]()
    for config in sorted(configs, key=lambda config: config.batch):
        ladders.setdefault((*config.place, config.engine), []).append(config)
    # A slice that was named is all that there is; the size that is usual for a chip is not.
    limits: tuple[Mapping[str, int], ...] = (dict(ask.rented),)
    if not ask.rented:
        chips = {config.piece.chip.name: config.piece.chip for config in configs}
        limits = ({name: slices_of(chip)[-1].chips for name, chip in chips.items()}, {})
    candidates = list[Pools]()
    for within in limits:
        if candidates:
            break
        for prefill in prefills:
            for decode in decodes:
                batches = ladders[*decode.place, decode.engine]
                ladder = tuple(config for config in batches if config.batch <= decode.batch)
                pair = pools(prefill, decode, ask, ladder=ladder, within=within)
                if pair is not None:
                    candidates.append(pair)
    simplest = sorted(_close([pair for pair in candidates if pair.meets] or candidates), key=_trouble)
    others = sorted((pair for pair in candidates if pair not in simplest), key=Pools.order)
    return [pair.fitted() for pair in (*simplest, *others)[:count]]


def _prefill_candidates(configs: Sequence[Config], ask: Ask) -> list[Config]:
    """Configurations whose chips prefill most; those that are in time if any is."""
    in_time = configs
    if ask.ttft is not None:
        limit = MAX_PREFILL_SHARE * ask.ttft
        in_time = [config for config in configs if config.prefill_s + config.state.front < limit]
    best = first_of_each(in_time or configs, lambda config: prompt_share(config) * config.chips, CANDIDATES)
    # a prompt of a prefill pool runs by itself, whatever the batch its replica was judged at
    return [replace(config, prefill_s=config.packed[0][1]) for config in best]


def _decode_candidates(configs: Sequence[Config], ask: Ask) -> list[Config]:
    """Configurations whose chips decode most; those that are in time if any is."""
    in_time = configs
    if ask.step is not None:
        in_time = [config for config in configs if decode_step(config) <= ask.step]
    return first_of_each(
        in_time or configs, lambda config: decode_step(config) * config.chips / config.batch, CANDIDATES
    )


def _close(candidates: Sequence[Pools]) -> list[Pools]:
    """Those that cost nearly as little as the cheapest."""
    least = min((pair.cost for pair in candidates), default=0.0)
    return [pair for pair in candidates if pair.cost <= (1 + CLOSE) * least]


def _trouble(pair: Pools) -> tuple[float, ...]:
    """The effort of running pools: chips, replicas; then the cost."""
    return pair.chips, pair.prefills + pair.decodes, pair.cost
