"""Disaggregated prefill and decode: how many of each, what the cache's journey costs, and when it is worth it.

Prefill is bound by compute and wants few, fast chips; decoding is bound by memory and wants a large batch that no
prompt interrupts. Apart, each gets its own sharding and batch, and the time between tokens is a plain decode step. The
price is the journey of every prompt's cache from one pool to the other, and whole replicas of both kinds.

Requests come at random and are dealt to the prefill replicas in turn, so prompts wait for those before them, the longer
the fuller the pool is, and share iterations with those that wait too (`bulk`). Targets are means; percentiles are for
runs to tell. The first token comes with the cache.

The configurations that are paired here are those of an engine that runs prompts by themselves (`alone`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy

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
"""Of a prefill pool without a target for the first token."""
MOST_LOAD = 0.9
"""Of a prefill pool, however loose the target: above it the wait doubles with every further 5%."""
MOST_DECODING = 0.95
"""Of a decode pool, whose batches only grow with the load."""
SPREAD = 1.65
"""Standard deviations above the mean that a decode replica has places for: 95% of a normal distribution."""


STARTED = 0.95
"""Of the target what a prompt may take that waits for nobody: the rest is for the cache's journey."""


def alone(engine: Engine) -> Engine:
    """The engine with prompts in iterations of their own, as a pool for prefill runs them: in chunks where the engine
    cuts them."""
    cut = engine.scheduling.scheduler == "chunked"
    return adjust(engine, scheduling={"scheduler": "chunked" if cut else "continuous", "mixed": False})


@dataclass(frozen=True)
class Pools:
    """`prefills` replicas of one configuration feed `decodes` of another, whose batch is what they take at once.
    `ladder` is the decode replica with other batches, rising. `offered` requests per second come, or as many as the
    pools take."""

    prefill: Config
    decode: Config
    prefills: int
    decodes: int
    ask: Ask
    ladder: tuple[Config, ...] = ()
    offered: float | None = None

    @cached_property
    def chips_by_price(self) -> list[tuple[int, float | None]]:
        """Chips of each kind, in whole slices where one was named, with the price of one."""
        pools = ((self.prefill, self.prefills), (self.decode, self.decodes))
        kinds = {one.piece.chip.name: one.piece.chip.price for one, _ in pools}
        used = {name: sum(one.chips * n for one, n in pools if one.piece.chip.name == name) for name in kinds}
        each = dict(self.ask.rented)
        return [(-(-used[name] // each.get(name, 1)) * each.get(name, 1), price) for name, price in kinds.items()]

    @cached_property
    def chips(self) -> int:
        return sum(count for count, _ in self.chips_by_price)

    @property
    def feeding(self) -> float:
        """Requests per second that the prefill pool could do, never idle."""
        return self.prefills / prompt_share(self.prefill)

    @property
    def draining(self) -> float:
        """The same of the decode pool, with full batches."""
        return self.decodes * self.decode.batch / (decode_step(self.decode) * max(self.ask.output - 1, 1))

    @property
    def requests(self) -> float:
        """Requests per second: those offered, or as many as the slower of the two pools takes at its highest load."""
        most = min(self.feeding * self.highest_load, self.draining * decode_load(self.decode))
        return most if self.offered is None else min(most, self.offered)

    @property
    def prefill_load(self) -> float:
        """The part of the time that prefill replicas are busy."""
        return self.requests / self.feeding

    @cached_property
    def highest_load(self) -> float:
        """The load of the prefill pool at which the first token is just in time on average."""
        target = self.ask.ttft
        if target is None:
            return LOAD
        low, high = 0.0, MOST_LOAD
        for _ in range(10):
            load = (low + high) / 2
            low, high = (load, high) if self.ttft_at(load) <= target else (low, load)
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
        """Seconds for one prompt's cache to reach the other pool, each chip of its place sending and receiving its
        part."""
        sending = port_bandwidth(self.prefill.piece.chip) * self.prefill.chips / self.prefill.plan.data
        receiving = port_bandwidth(self.decode.piece.chip) * self.decode.chips / self.decode.plan.data
        return CACHE_LATENCY_S + self.transfer_bytes / min(sending, receiving)

    @property
    def port_bytes_per_s(self) -> float:
        """Bytes per second that the prefill pool's ports can send."""
        return port_bandwidth(self.prefill.piece.chip) * self.prefill.chips * self.prefills

    @property
    def around_s(self) -> float:
        """Seconds to the first token before and after a prefill: at the front, and with the cache."""
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
        """Seconds between tokens with as many sequences as decode on average; the second token waits for the step under
        way."""
        return self.mean_step * (1 + 0.5 / max(self.ask.output - 1, 1))

    @cached_property
    def mean_step(self) -> float:
        """Seconds of the step at which a decode replica makes as many tokens as are asked of it."""
        asked = self.requests * (self.ask.output - 1) / self.decodes
        steps = [(one.batch, decode_step(one)) for one in self.ladder if one.batch <= self.decode.batch]
        for (few, low), (many, high) in pairwise([(0, steps[0][1]), *steps] if steps else ()):
            if many / high >= asked:
                slope = (high - low) / (many - few)
                return (low - slope * few) / (1 - slope * asked)  # batch = asked x step on the line between the two
        return decode_step(self.decode)

    @property
    def decoding(self) -> float:
        """Sequences that a decode replica decodes on average."""
        return self.requests * (self.ask.output - 1) * self.mean_step / self.decodes

    def fitted(self) -> "Pools":
        """With the smallest batch of the decode replicas that takes the same rate in time: more places than bursts fill
        are only launched for, and what is drafted is what pays at the batches that run."""
        pairs = (replace(self, decode=one) for one in self.ladder)
        alike = (pair for pair in pairs if pair.requests >= self.requests * (1 - 1e-9) and pair.meets >= self.meets)
        return next(alike, self)

    @property
    def prefill_binds(self) -> bool:
        """Whether the prefill pool is nearer to the most that it takes than the decode pool with its largest batch."""
        last = replace(self, decode=self.ladder[-1]) if self.ladder else self
        most = last.draining * decode_load(last.decode)
        return self.requests / most <= self.prefill_load / self.highest_load * (1 + 1e-9)

    @property
    def meets(self) -> bool:
        """Whether the targets are met."""
        return self.ask.met_by(self.ttft, self.tpot)

    @property
    def cost(self) -> float:
        """What a request costs, in dollars (in chips without prices)."""
        hourly = self.usd_per_h
        return (self.chips if hourly is None else hourly) / self.requests

    def order(self) -> tuple[Any, ...]:
        """What comes first: those that meet the targets, cheapest, quickest first token."""
        return not self.meets, self.usd_per_h is None, self.cost, self.ttft

    @property
    def usd_per_h(self) -> float | None:
        """Dollars for an hour of both pools, or None without prices."""
        costs = [None if price is None else count * float(price) for count, price in self.chips_by_price]
        return None if None in costs else sum(filter(None, costs))

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, or None without prices."""
        hourly = self.usd_per_h
        return None if hourly is None else float(usd_per_million(self.requests * self.ask.output, 1, hourly))


@dataclass(frozen=True)
class PooledConfig(Config):
    """Pools as one configuration beside others: a decode replica's plan, with the batch that decodes on average, its
    step and its memory, and the chips, times and rates of both pools."""

    pools: Pools = field(kw_only=True)
    is_fleet: ClassVar[bool] = True

    @property
    def chips(self) -> int:
        return self.pools.chips

    @property
    def place(self) -> tuple[str, ...]:
        return *super().place, *self.pools.prefill.place

    @property
    def usd_per_h(self) -> float | None:
        return self.pools.usd_per_h


def as_config(pair: Pools) -> PooledConfig:
    """See `PooledConfig`. The first token travels with the cache, no prompt comes between tokens, and prompts pay for
    the chips of the prefill pool."""
    own, rate = pair.prefill, pair.requests
    paid = pair.prefills * own.chips / (pair.prefills * own.chips + pair.decodes * pair.decode.chips) / rate
    waiting = max(pair.ttft - pair.around_s - own.prefill_s, 0.0)
    times = paid, pair.ask.output, waiting, float(own.state.front), pair.transfer_s
    batch, ladder = max(1, round(pair.decoding)), pair.ladder or (pair.decode,)
    state = Steady(batch, pair.tpot, own.prefill_s, *times, met=0.0, requests=rate)
    words = {"state": state, "batch": batch, "prefill_s": own.prefill_s, "meets": pair.meets, "chunks": own.chunks}
    for name in ("decode_s", "lower_s", "hbm_bytes"):
        values = [getattr(one, name) for one in ladder]
        words[name] = float(numpy.interp(batch, [one.batch for one in ladder], values))
    times_and_rates = {f"{name} of the steady state": value for name, value in vars(state).items()}
    check_terms(times_and_rates, True, f"pools of {own.plan} and {pair.decode.plan}")
    words["bound_by"] = next((one.bound_by for one in ladder if one.batch >= batch), ladder[-1].bound_by)
    return PooledConfig(**(vars(pair.decode) | words | {"chunk_tokens": own.chunk_tokens, "pools": pair}))


def prompt_share(config: Config) -> float:
    """Seconds that one prompt takes of a prefill replica that has nothing else to do and always another prompt: every
    data place and pipeline stage has some of its own, and short ones go together. (Those that happen to meet in a
    replica that also decodes are fewer.)"""
    together, seconds = config.packed[-1]
    return seconds / together


def within_memory(config: Config) -> Config:
    """A prefill replica whose iterations take no more prompts than half of what its memory holds: the pages of one
    iteration's prompts stay until they are handed over, while the next one's are filled."""
    room = max(config.most / 2, 1.0)
    if not config.packed or config.packed[-1][0] <= room:
        return config
    counts, seconds = zip(*config.packed, strict=True)
    last = room, float(numpy.interp(room, counts, seconds))
    return replace(config, packed=(*(one for one in config.packed if one[0] < room), last))


def decode_step(config: Config) -> float:
    """Seconds per token of a decode replica whose whole batch decodes."""
    return float(config.state.decode) if config.drafts else config.decode_s


def decode_load(config: Config) -> float:
    """The part of a batch that decodes on average, so that bursts still find a place in it."""
    root = (math.sqrt(SPREAD**2 + 4 * config.batch) - SPREAD) / 2
    return min(MOST_DECODING, max(root**2, 0.5) / config.batch)


def pools(
    prefill: Config,
    decode: Config,
    ask: Ask,
    most: int = 32,
    ladder: tuple[Config, ...] = (),
    within: Mapping[str, int] | None = None,
) -> Pools | None:
    """The smallest whole numbers of replicas that take the asked rate; without one, those that cost nearly as little
    (`CLOSE`) as the best of up to `most` decode replicas. They stay `within` so many chips of each kind,
    those of a slice that was named, or there are none."""
    if ask.rate is not None:
        return _sized(Pools(prefill, decode, 1, 1, ask, ladder, ask.rate))
    within = dict(ask.rented) if within is None else within
    made: list[Pools] = []
    for decodes in range(1, most + 1):
        one, room = Pools(prefill, decode, 1, decodes, ask), _room(prefill, decode, decodes, within)
        if room < 1:
            break
        wanted = one.draining * decode_load(decode) * prompt_share(prefill)
        load = Pools(prefill, decode, max(1, round(wanted)), decodes, ask).highest_load
        counts = {int(min(max(1, number), room)) for number in (math.floor(wanted / load), math.ceil(wanted / load))}
        made += [Pools(prefill, decode, prefills, decodes, ask, ladder) for prefills in counts]
    return min(_close(made), key=_trouble, default=None)


def _room(prefill: Config, decode: Config, decodes: int, within: Mapping[str, int]) -> float:
    """The most prefill replicas beside so many decode replicas."""
    first, second = prefill.piece.chip.name, decode.piece.chip.name
    left = within.get(second, math.inf) - decodes * decode.chips
    if first != second:  # which are had apart
        left = within.get(first, math.inf) if left >= 0 else 0
    return left // prefill.chips


def _sized(one: Pools) -> Pools:
    """As many replicas of each kind as the offered rate takes with first tokens in time on average."""
    assert one.offered is not None
    rate = one.offered / one.decode.counted
    decodes = max(1, math.ceil(rate / (one.draining * decode_load(one.decode)) - 1e-9))
    prefills = max(1, math.ceil(rate / (one.feeding * MOST_LOAD) - 1e-9))
    made = replace(one, prefills=prefills, decodes=decodes)
    while made.feeding * made.highest_load < rate * (1 - 1e-9):
        made = replace(made, prefills=made.prefills + 1)
    return made


def best_pools(
    configs: Sequence[Config], ask: Ask, count: int = 3, runs: Callable[[Config, str], bool] = lambda *_: True
) -> list[Pools]:
    """The best pairs of configurations of an engine that runs prompts alone: few candidates for each pool, every pair
    of them. They stay within the slice that was named. Where only a chip was named, they stay within the largest slice
    that a copy is looked for on (a rack, or a few servers) if any pair does. `runs` says whether a configuration runs
    in a role (`prefill`, `decode`). Those that meet the targets come first, most tokens per chip first."""
    configs = [within_memory(one) for one in configs]
    chips = {one.piece.chip.name: one.piece.chip for one in configs}
    room = dict(ask.rented) or {name: slices_of(chip)[-1].chips for name, chip in chips.items()}
    able = [one for one in configs if runs(one, PREFILL)]
    starts = [one for one in able if ask.ttft is None or one.prefill_s + one.state.front < STARTED * ask.ttft]
    feeding = first_of_each(starts or able, lambda one: prompt_share(one) * one.chips, CANDIDATES)
    able = [one for one in configs if runs(one, DECODE)]
    ends = [one for one in able if ask.step is None or decode_step(one) <= ask.step]
    draining = first_of_each(ends or able, lambda one: decode_step(one) * one.chips / one.batch, CANDIDATES)
    ladders = dict[tuple[str, ...], list[Config]]()
    for one in sorted(configs, key=lambda one: one.batch):
        ladders.setdefault((*one.place, one.engine), []).append(one)
    # a prompt of a prefill pool runs by itself, whatever the batch its replica was judged at
    feeding = [replace(one, prefill_s=one.packed[0][1]) for one in feeding]
    pairs = [(start, end, ladders[*end.place, end.engine]) for start in feeding for end in draining]
    made = list[Pools]()
    # A slice that was named is all that there is; the size that is usual for a chip is not.
    limits = (room,) if ask.rented else (room, {})
    for within in limits:
        found = (pools(start, end, ask, ladder=_up_to(end, alike), within=within) for start, end, alike in pairs)
        made = made or [one for one in found if one is not None]
    handy = sorted(_close([one for one in made if one.meets] or made), key=_trouble)
    others = sorted((one for one in made if one not in handy), key=Pools.order)
    return [one.fitted() for one in (*handy, *others)[:count]]


def _close(found: Sequence[Pools]) -> list[Pools]:
    """Those that cost nearly as little as the cheapest."""
    least = min((one.cost for one in found), default=0.0)
    return [one for one in found if one.cost <= (1 + CLOSE) * least]


def _trouble(pair: Pools) -> tuple[float, ...]:
    """What there is to run: chips, replicas; and what that costs."""
    return pair.chips, pair.prefills + pair.decodes, pair.cost


def _up_to(largest: Config, configs: Sequence[Config]) -> tuple[Config, ...]:
    return tuple(one for one in configs if one.batch <= largest.batch)
