"""A measured collective as a typed row, and in the model's terms: bytes over groups of chips."""

import re
from dataclasses import dataclass, replace

import msgspec

from dragonscale.evidence.rows import Skip
from dragonscale.physics.collectives.cost import Options
from dragonscale.physics.collectives.group import Group, Ring, Rings, Switches, Wide
from dragonscale.physics.collectives.profile import Profile
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import Chip, Torus, load_chip

DEEPEP = "deepep"
"""The library that sends tokens to experts, once to every node where that is shorter."""


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """A typed row: `bytes` over all `ranks` (of an AllToAll, what all of them send), of which
    `local` share a node that `egress` bytes per second leave (0: all share one). On a torus `axes`
    are the sizes of its rings, a line's with a `-`; `slices` are joined by the data-centre network.
    `inside_bytes` are what an exchange that sends a token only once to every node passes on inside.
    `message` is the size that the source states."""

    id: str
    source: str = ""
    chip: str
    collective: str
    bytes: float
    message: float
    seconds: float
    ranks: int = 0
    local: int = 0
    egress: float = 0.0
    inside_bytes: float = 0.0
    axes: str = ""
    slices: int = 0
    transport: str = ""
    library: str = "nccl"
    in_network: bool = False


@dataclass(frozen=True)
class CollectiveCase:
    """A typed row in the model's terms. Several `parts` run at the same time, so the slowest
    counts."""

    row: CollectiveRow
    network: str
    parts: tuple[tuple[float, Group], ...]
    profile: Profile
    options: Options


def case_of(row: CollectiveRow) -> CollectiveCase:
    """A typed row as a case."""
    chip = load_chip(row.chip)
    profile = profile_for(chip, row.transport, row.library)
    if isinstance(chip.network, Torus):
        group = _torus_group(row, chip)
        network = (profile.wide if isinstance(group, Wide) else profile.torus).name
        return CollectiveCase(row, network, ((row.bytes, group),), profile, Options())
    node, *fabric = chip.network.levels
    options = Options(in_network=row.in_network)
    if not row.local:
        tier, parts = profile.domain, ((row.bytes, Switches(row.ranks, (node,))),)
    else:
        tier = profile.rail if row.local == 1 and row.library != DEEPEP else profile.fabric
        inside = replace(node, degree=row.local)
        between = replace(fabric[0], degree=0, bandwidth=row.egress)
        parts = ((row.bytes, Switches(row.ranks, (inside, between))),)
        if row.inside_bytes:
            card = replace(between, bandwidth=row.egress / row.local)
            rail = Switches(row.ranks // row.local, (replace(node, degree=1), card))
            parts = ((row.inside_bytes, Switches(row.local, (inside,))), (row.bytes, rail))
    label = {"nccl": tier.name, DEEPEP: f"{DEEPEP} {tier.name}"}.get(row.library, f"{tier.name} {row.library}")
    return CollectiveCase(row, label, parts, profile, options)


def _torus_group(row: CollectiveRow, chip: Chip) -> Group:
    assert isinstance(chip.network, Torus)
    if row.slices:
        if chip.dcn is None:
            raise Skip(f"no data-centre network known for {chip.title}")
        return Wide(row.slices, chip.dcn, chip.dcn_latency)
    if not re.fullmatch(r"\d+-?(x\d+-?)*", row.axes):
        raise Skip("rings of the torus not stated")
    rings = tuple(Ring(int(size.rstrip("-")), not size.endswith("-")) for size in row.axes.split("x"))
    return Rings(rings, chip.network.link, chip.network.hop_latency)
