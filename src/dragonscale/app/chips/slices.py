"""What a slice is: chips, hosts, the rings or tiers that join them, and what all of it adds up to."""

import math

import msgspec

from dragonscale.app.record import Record
from dragonscale.physics.hardware import Slice, Torus, Tree, axis_diameter, eccentricity
from dragonscale.physics.hardware.fat_tree import FatTree, fat_tree, node_tier, switch_for
from dragonscale.physics.hardware.slices import AXIS_NAMES
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet


class AxisRow(msgspec.Struct):
    """One axis of a torus: whether it closes, what a chip sends and receives along it at once, the
    hops to the farthest chip, and what crosses the middle one way."""

    axis: str
    size: int
    wraps: bool
    chip_bytes_per_s: float
    farthest_hops: int
    bisection_bytes_per_s: float


class TierRow(msgspec.Struct):
    """One tier of switches: groups of so many children, what one child and one chip get, what crosses between halves of
    a group one way, and how many switches that takes (None where the catalogue has no switch that fits)."""

    tier: str
    groups: int
    children: int
    child_bytes_per_s: float
    chip_bytes_per_s: float
    bisection_bytes_per_s: float
    switches: int | None
    cables: int | None = None
    """Cables between the tier's switches and what hangs under them, in the whole slice."""


class SliceReport(Record):
    """A slice: its chips and hosts, its axes or tiers, and its totals."""

    slice: str
    chip: str
    chips: int
    pods: int
    hosts: int
    host_chips: int
    host_shape: list[int]
    vms: int
    cores: int | None
    axes: list[AxisRow]
    tiers: list[TierRow]
    full_bisection: bool | None
    bf16_flops_per_s: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    pcie_bytes_per_s: float | None
    dcn_bytes_per_s: float | None
    bisection_bytes_per_s: float
    price_usd_per_h: float | None
    power_w: float | None
    farthest_hops: int | None = None
    """Links between the two chips of a torus that are farthest apart."""

    def headline(self) -> str:
        return f"{self.slice}: {self.chips:,} chips, {render(self.bf16_flops_per_s, 'FLOP/s')} in bf16"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.chips.sheet import slice_sheet

        return slice_sheet(self)


def slice_report(piece: Slice) -> SliceReport:
    """The facts of one slice. Bisection is of the weakest axis, or of the top tier that is used;
    across pods it is what half of them send over the data-centre network."""
    chip, count = piece.chip, piece.chips
    axes, (tiers, tree) = _axes(piece), _tiers(piece)
    weakest = min([row.bisection_bytes_per_s for row in axes], default=0.0)
    if tiers:
        weakest = tiers[-1].bisection_bytes_per_s
    dcn = chip.dcn * count if chip.dcn and isinstance(chip.network, Torus) else None
    if piece.pods > 1 and dcn is not None:
        weakest = dcn / 2
    return SliceReport(
        slice=str(piece),
        chip=chip.title,
        chips=count,
        pods=piece.pods,
        hosts=piece.hosts,
        host_chips=chip.host_chips,
        host_shape=list(chip.host_shape),
        vms=piece.vms,
        cores=piece.cores if chip.kind == "tpu" and "cores" in chip.structure else None,
        axes=axes,
        tiers=tiers,
        full_bisection=tree.full_bisection if tree else None,
        bf16_flops_per_s=piece.flops,
        hbm_bytes=piece.hbm,
        hbm_bytes_per_s=count * chip.bandwidth("hbm"),
        pcie_bytes_per_s=chip.pcie * count if chip.pcie else None,
        dcn_bytes_per_s=dcn,
        bisection_bytes_per_s=weakest,
        price_usd_per_h=chip.price * count if chip.price else None,
        power_w=chip.power * count if chip.power else None,
        farthest_hops=eccentricity(piece) if isinstance(chip.network, Torus) else None,
    )


def _axes(piece: Slice) -> list[AxisRow]:
    network = piece.chip.network
    if not isinstance(network, Torus):
        return []
    rows: list[AxisRow] = []
    for name, size, wraps in zip(AXIS_NAMES, piece.shape, piece.wrap, strict=False):
        if size == 1:
            continue
        # A cut through the middle crosses each of the other axes' chips once, and the way round as well on a ring.
        cut = math.prod(piece.shape) // size * (2 if wraps else 1) * network.link
        along = network.link * (2 if wraps or size > 2 else 1)
        rows.append(AxisRow(name, size, wraps, along, int(axis_diameter(size, wraps)), cut))
    return rows


def _tiers(piece: Slice) -> tuple[list[TierRow], FatTree | None]:
    """The tiers that a slice under switches uses, with their switches where the catalogue knows them."""
    chip, network = piece.chip, piece.chip.network
    if not isinstance(network, Tree):
        return [], None
    node, switch = network.levels[0], switch_for(chip)
    if switch is not None:
        tree = fat_tree(chip, switch, piece.chips) if piece.chips > node.degree else None
        rows = []
        for tier in tree.tiers if tree else (node_tier(chip),):
            cables = int(tier.groups * tier.children * tier.child_links)
            rates = float(tier.child_bandwidth), float(tier.per_chip), float(tier.bisection(both_ways=False))
            rows.append(TierRow(tier.name, int(tier.groups), int(tier.children), *rates, int(tier.total), cables))
        # Above one scalable unit every tier is a single group; a top tier with one child joins nothing.
        return [row for row in rows if row.children > 1], tree
    rows, below = [], 1
    for level in network.levels:
        if below >= piece.chips:
            break
        children = math.ceil(min(piece.chips, below * (level.degree or piece.chips)) / below)
        groups, rate = math.ceil(piece.chips / (below * children)), level.bandwidth
        rows.append(TierRow(level.name, groups, children, rate, rate / below, children * rate / 2, None))
        below *= children
    return rows, None
