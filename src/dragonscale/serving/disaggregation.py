"""Prefill and decode in pools of their own: how many of each, what the cache's journey costs, and when it pays.

Prefill is bound by compute and wants few, fast chips; decoding is bound by memory and wants a large batch that no prompt
interrupts. Apart, each gets its own sharding and batch, and the time between tokens is a plain decode step. The price is
the journey of every prompt's cache from one pool to the other, and whole replicas of both kinds.

The configurations that are paired here are those of an engine that runs prompts by themselves (`alone`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.serving.economics import pool_ratio, usd_per_million
from dragonscale.serving.engine import Engine, adjust
from dragonscale.serving.frontier import Ask, Config, first_of_each
from dragonscale.serving.table import LATENCY, port_bandwidth

CANDIDATES = 8
"""Configurations to try for each of the two pools."""


def alone(engine: Engine) -> Engine:
    """The engine with prompts in iterations of their own, as a pool for prefill runs them."""
    return adjust(engine, scheduling={"scheduler": "continuous", "mixed": False})


@dataclass(frozen=True)
class Pools:
    """`prefills` replicas of one configuration feed `decodes` of another."""

    prefill: Config
    decode: Config
    prefills: int
    decodes: int
    ask: Ask

    @property
    def chips(self) -> int:
        return self.prefills * self.prefill.chips + self.decodes * self.decode.chips

    @property
    def requests(self) -> float:
        """Requests per second of both pools: the slower of the two."""
        feeding = self.prefills / prompt_share(self.prefill)
        draining = self.decodes * self.decode.batch / (float(self.decode.state.decode) * max(self.ask.output - 1, 1))
        return min(feeding, draining)

    @property
    def tokens_per_chip(self) -> float:
        """Output tokens per second and chip."""
        return self.requests * self.ask.output / self.chips

    @property
    def transfer_bytes(self) -> float:
        """Bytes of one prompt's cache."""
        return self.ask.prompt * self.decode.kv_bytes_per_token

    @property
    def transfer_s(self) -> float:
        """Seconds for one prompt's cache to reach the other pool, each chip of its place sending and receiving its part."""
        sending = port_bandwidth(self.prefill.piece.chip) * self.prefill.chips / self.prefill.plan.data
        receiving = port_bandwidth(self.decode.piece.chip) * self.decode.chips / self.decode.plan.data
        return LATENCY + self.transfer_bytes / min(sending, receiving)

    @property
    def port_bytes_per_s(self) -> float:
        """Bytes per second that the prefill pool's ports can send."""
        return port_bandwidth(self.prefill.piece.chip) * self.prefill.chips * self.prefills

    @property
    def ttft(self) -> float:
        """Seconds to the first token: the prefill, behind a queue of a pool kept at its pace."""
        return float(self.prefill.state.front) + self.prefill.prefill_s * 1.5

    @property
    def tpot(self) -> float:
        """Seconds between tokens; the journey of the cache delays the second one only."""
        return float(self.decode.state.decode) + self.transfer_s / max(self.ask.output - 1, 1)

    @property
    def meets(self) -> bool:
        """Whether the targets are met."""
        ask = self.ask
        return (ask.ttft is None or self.ttft <= ask.ttft) and (ask.tpot is None or self.tpot <= ask.tpot)

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, or None without prices."""
        prices = (self.prefill.piece.chip.price, self.decode.piece.chip.price)
        if prices[0] is None or prices[1] is None:
            return None
        chips = (self.prefills * self.prefill.chips, self.decodes * self.decode.chips)
        hourly = chips[0] * prices[0] + chips[1] * prices[1]
        return float(usd_per_million(self.requests * self.ask.output, 1, hourly))


def prompt_share(config: Config) -> float:
    """Seconds that one prompt takes of a prefill replica: every data place and pipeline stage has some of its own, and short
    ones go together."""
    return float(config.state.added)


def pools(prefill: Config, decode: Config, ask: Ask, most: int = 32, slack: float = 0.03) -> Pools:
    """The smallest whole numbers of replicas whose ratio wastes little: within `slack` of the best that up to `most` decode
    replicas do."""
    taken = float(decode.state.decode)
    wanted = float(pool_ratio(prompt_share(prefill), decode.batch, taken, max(ask.output - 1, 1)))
    made = [
        Pools(prefill, decode, prefills, decodes, ask)
        for decodes in range(1, most + 1)
        for prefills in {max(1, math.floor(wanted * decodes)), max(1, math.ceil(wanted * decodes))}
    ]
    best = max(pair.tokens_per_chip for pair in made)
    return min((pair for pair in made if pair.tokens_per_chip >= best * (1 - slack)), key=lambda pair: pair.chips)


def best_pools(configs: Sequence[Config], ask: Ask, count: int = 3) -> list[Pools]:
    """The best pairs of configurations of an engine that runs prompts alone: few candidates for each pool, every pair of
    them. Those that meet the targets come first, most tokens per chip first."""
    starts = [one for one in configs if ask.ttft is None or one.prefill_s * 1.5 + one.state.front <= ask.ttft]
    feeding = first_of_each(starts or configs, lambda one: prompt_share(one) * one.chips, CANDIDATES)
    ends = [one for one in configs if ask.tpot is None or float(one.state.decode) <= ask.tpot]
    draining = first_of_each(ends or configs, lambda one: float(one.state.decode) * one.chips / one.batch, CANDIDATES)
    pairs = [pools(start, end, ask) for start in feeding for end in draining]
    return sorted(pairs, key=lambda pair: (not pair.meets, -pair.tokens_per_chip))[:count]
