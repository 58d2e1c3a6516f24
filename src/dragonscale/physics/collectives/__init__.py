# ruff: noqa: F401  what is imported here is what the package offers
"""Collectives and what they cost on tori, under switches and across pods."""

from dragonscale.physics.collectives.cost import BOOK, EXACT, Options, Seconds, collective_time, wire_bytes
from dragonscale.physics.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.transfer import gather_time, transfer_time
