"""How often chips and the hosts around them fail, from published counts.

A synchronous job stops when any of its chips or hosts fails. Failures of chips (a GPU, its memory) and of hosts (CPU,
NIC, switch, software) are counted apart, so that a job's rate follows from how many it has of each:

    failures per second = chips · rate per chip + hosts · rate per host

>>> from dragonscale.physics.hardware.slices import parse_slice
>>> round(1 / failure_rate(parse_slice("h100:16384")) / 3600, 1)  # hours; LLaMA-3 405B met 419 failures in 54 days
3.1
"""

import functools
from dataclasses import dataclass
from typing import Any

from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.slices import Slice
from dragonscale.physics.units import DAY
from dragonscale.tables import beside


@dataclass(frozen=True)
class FailureRates:
    """Failures per second of one chip and of one host, and in words where they were counted."""

    per_chip: float
    per_host: float
    source: str


@functools.cache
def _table() -> dict[str, Any]:
    return beside(__file__, "failures.toml")


def failure_rates(chip: Chip) -> FailureRates:
    """The published rates of a chip's architecture, or of all chips of its kind.

    Chips that nobody has published counts of get those of the family marked `stand_in`; the source says so.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> failure_rates(load_chip("mi300x")).source
    "no counts of AMD Instinct MI300X 192GB are known; as LLaMA-3's 16,384 H100 had (419 in 54 days, arXiv:2407.21783)"
    """
    families = _table()["families"]
    counted_on = next((name for name in (chip.architecture, chip.kind) if name in families), None)
    if counted_on is not None:
        family = families[counted_on]
        source = family["name"]
    else:
        family = next(family for family in families.values() if family.get("stand_in"))
        source = f"no counts of {chip.title} are known; {family['name']}"
    per_chip, per_host = (family[part]["failures"] / family[part]["days"] / DAY for part in ("chip", "host"))
    return FailureRates(per_chip, per_host, source)


def failure_rate(piece: Slice) -> float:
    """Failures per second of a job on all chips of a slice."""
    rates = failure_rates(piece.chip)
    return piece.chips * rates.per_chip + piece.hosts * rates.per_host


def spread_between_clusters() -> float:
    """The standard deviation of the logarithm of failure rates, from one published cluster to another."""
    return float(_table()["clusters"]["log_spread"])
