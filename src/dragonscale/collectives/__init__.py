"""Collectives and what they cost on tori, under switches and across pods."""

from dragonscale.collectives.cost import (
    BOOK,
    EXACT,
    KINDS,
    Options,
    Seconds,
    bus_bandwidth,
    collective_time,
    ragged_fill,
    sent_bytes,
    wire_bytes,
)
from dragonscale.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.collectives.transfer import gather_time, transfer_time

__all__ = [
    "BOOK", "EXACT", "KINDS", "Group", "Options", "Ring", "Rings", "Seconds", "Stacked", "Switches", "Wide",
    "bus_bandwidth", "collective_time", "gather_time", "ragged_fill", "sent_bytes", "transfer_time", "wire_bytes",
]  # fmt: skip
