"""Collectives and their times on tori, under switches and across pods."""

from dragonscale.physics.collectives.cost import BOOK, EXACT, Options, Seconds, collective_time, wire_bytes
from dragonscale.physics.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.transfer import gather_time, transfer_time

__all__ = ["BOOK", "EXACT", "Group", "Options", "Ring", "Rings", "Seconds", "Stacked", "Switches", "Wide"]
__all__ += ["collective_time", "gather_time", "transfer_time", "wire_bytes"]
