"""What a fleet of replicas takes and costs: its chips, dollars an hour and watts. Every answer has them from here."""

from collections.abc import Iterable
from dataclasses import dataclass

from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.price_book import site_watts
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.economics import usd_per_million


@dataclass(frozen=True)
class FleetCost:
    """Chips of a fleet (not whole where it grows and shrinks: the mean), dollars for an hour of them, and watts at the
    chips' power limits with their share of hosts; None where a price or a power limit is not known."""

    chips: float
    usd_per_h: float | None
    watts: float | None = None

    def usd_per_mtok(self, tokens_per_s: float) -> float | None:
        """Dollars for a million tokens of so many per second; None without a price, or without tokens."""
        if self.usd_per_h is None or not tokens_per_s:
            return None
        return float(usd_per_million(tokens_per_s, 1, self.usd_per_h))


def fleet_cost(pools: Iterable[tuple[float, Slice]]) -> FleetCost:
    """The cost of pools, each so many replicas on a slice each."""
    chips = 0.0
    usd_per_h: float | None = 0.0
    watts: float | None = 0.0
    for replicas, piece in pools:
        pool_chips = replicas * piece.chips
        chips += pool_chips
        price, chip_watts = piece.chip.price, site_watts(piece.chip)
        usd_per_h = None if usd_per_h is None or price is None else usd_per_h + pool_chips * price
        watts = None if watts is None or chip_watts is None else watts + pool_chips * chip_watts
    return FleetCost(chips, usd_per_h, watts)


def config_cost(config: Config, replicas: int) -> FleetCost:
    """The cost of so many replicas of a configuration; of one with two pools as it is billed, in whole slices."""
    usd_per_h = config.usd_per_h
    return FleetCost(replicas * config.chips, None if usd_per_h is None else replicas * usd_per_h)
