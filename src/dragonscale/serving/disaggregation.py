"""Prefill and decode in pools of their own: how many of each, what the cache's journey costs, and when it pays.

Prefill is bound by compute and wants few, fast chips; decoding is bound by memory and wants a large batch that no prompt
interrupts. Apart, each gets its own sharding and batch, and the time between tokens is a plain decode step. The price is
the journey of every prompt's cache from one pool to the other, and whole replicas of both kinds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.serving.deployment import Deployment
from dragonscale.serving.frontier import Ask, Config
from dragonscale.serving.limits_fleet import pool_ratio, usd_per_million
from dragonscale.serving.table import LATENCY, port_bandwidth


@dataclass(frozen=True)
class Pools:
    """`prefills` replicas of one configuration feed `decodes` of another."""

    prefill: Config
    decode: Config
    prefills: int
    decodes: int
    transfer_s: float
    transfer_bytes_per_s: float
    output: int

    @property
    def chips(self) -> int:
        return self.prefills * self.prefill.chips + self.decodes * self.decode.chips

    @property
    def requests(self) -> float:
        """Requests per second of both pools: the slower of the two."""
        feeding = self.prefills / prompt_share(self.prefill)
        draining = self.decodes * self.decode.batch / (self.decode.decode_s * max(self.output - 1, 1))
        return min(feeding, draining)

    @property
    def tokens_per_chip(self) -> float:
        """Output tokens per second and chip."""
        return self.requests * self.output / self.chips

    @property
    def ttft(self) -> float:
        """Seconds to the first token: the prefill, behind a queue of a pool kept at its pace."""
        return self.prefill.state.front + self.prefill.prefill_s * 1.5

    @property
    def tpot(self) -> float:
        """Seconds between tokens; the journey of the cache delays the second one only."""
        return self.decode.decode_s + self.transfer_s / max(self.output - 1, 1)

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, or None without prices."""
        prices = (self.prefill.piece.chip.price, self.decode.piece.chip.price)
        if prices[0] is None or prices[1] is None:
            return None
        chips = (self.prefills * self.prefill.chips, self.decodes * self.decode.chips)
        hourly = chips[0] * prices[0] + chips[1] * prices[1]
        return float(usd_per_million(self.requests * self.output, 1, hourly))


def prompt_share(config: Config) -> float:
    """Seconds that one prompt takes of a prefill replica: every data place and pipeline stage has one of its own."""
    return config.prefill_s / (config.plan.data * config.plan.pipe)


def transfer_seconds(prefill: Deployment, tokens: float, cache_bytes: float) -> float:
    """Seconds for one prompt's cache to reach the other pool, each chip sending its part through its own port."""
    return LATENCY + tokens * cache_bytes / (port_bandwidth(prefill) * float(prefill.plan.tensor * prefill.plan.pipe))


def pools(prefill: Config, decode: Config, deployment: Deployment, ask: Ask, most: int = 32) -> Pools:
    """The smallest whole numbers of replicas whose ratio wastes least of either pool."""
    wanted = float(pool_ratio(prompt_share(prefill), decode.batch, decode.decode_s, max(ask.output - 1, 1)))
    seconds = transfer_seconds(deployment, ask.prompt, decode.kv_bytes_per_token)

    def made(decodes: int) -> Pools:
        prefills = max(1, math.ceil(wanted * decodes - 1e-9))
        pair = Pools(prefill, decode, prefills, decodes, seconds, 0.0, ask.output)
        return Pools(
            prefill,
            decode,
            prefills,
            decodes,
            seconds,
            pair.requests * ask.prompt * decode.kv_bytes_per_token,
            ask.output,
        )

    return max(
        (made(count) for count in range(1, most + 1)), key=lambda pair: (round(pair.tokens_per_chip, 3), -pair.chips)
    )


def best_pools(configs: Sequence[Config], deployments: dict[int, Deployment], ask: Ask, count: int = 3) -> list[Pools]:
    """The best pairs of configurations under the targets: few candidates for each pool, every pair of them."""
    starts = [one for one in configs if ask.ttft is None or one.prefill_s * 1.5 + one.state.front <= ask.ttft]
    starts = sorted(starts, key=lambda one: prompt_share(one) * one.chips)
    seen: dict[str, Config] = {}
    for one in starts:
        seen.setdefault(f"{one.piece} {one.plan}", one)
        if len(seen) >= 8:
            break
    ends = [one for one in configs if ask.tpot is None or one.decode_s <= ask.tpot]
    ends = sorted(ends, key=lambda one: -one.batch / one.decode_s / one.chips)[:8]
    pairs = [pools(first, second, deployments[id(first.piece)], ask) for first in seen.values() for second in ends]
    met = [
        pair
        for pair in pairs
        if (ask.tpot is None or pair.tpot <= ask.tpot) and (ask.ttft is None or pair.ttft <= ask.ttft)
    ]
    return sorted(met, key=lambda pair: -pair.tokens_per_chip)[:count]
