"""What is known of each chip, and from where.

What a slice is: chips, hosts, the rings or tiers that join them, and what all of it adds up to.
"""

import math
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.chips_wiring import achievable, host_text, node_switches, switch_text, wires_text
from dragonscale.commands.record import Record, shared
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip, Slice, Torus, Tree, axis_diameter, chip_names, eccentricity, load_chip
from dragonscale.physics.hardware.failures import failure_rate, failure_rates
from dragonscale.physics.hardware.fat_tree import FatTree, fat_tree, node_tier, switch_for
from dragonscale.physics.hardware.parts import PARTS, alus, cores, matrix_units, structural_peak
from dragonscale.physics.hardware.price_book import Offer, price_book
from dragonscale.physics.hardware.prices import price_text
from dragonscale.physics.hardware.slices import AXIS_NAMES
from dragonscale.physics.units import render

CHIP_CHARTS = ("roofs", "flops", "hbm", "bandwidth")


class OtherReading(msgspec.Struct):
    value: float | list[float]
    source: str
    note: str = ""


class ChipFact(msgspec.Struct):
    """One number with its unit, what it is per, its direction, and where it comes from."""

    path: str
    value: float | list[float]
    unit: str
    per: str
    direction: str
    source: str
    note: str
    also: list[OtherReading]


class PartRow(msgspec.Struct):
    """So many of one part on the chip, and the peak rate that they and the clock give, where they give one."""

    part: str
    count: int
    flops_per_s: float | None = None


class PodTotals(msgspec.Struct):
    """The largest torus of a chip, summed up."""

    slice: str
    chips: int
    hosts: int
    bf16_flops_per_s: float
    hbm_bytes: float


class ChipReport(Record):
    """One chip: the numbers that matter most, and every number with its source."""

    ROWS: ClassVar[str] = "facts"
    CHARTS: ClassVar[tuple[str, ...]] = CHIP_CHARTS

    name: str
    title: str
    kind: str
    released: str
    bf16_flops_per_s: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    critical_intensity_flops_per_byte: float
    network: str
    largest: str
    price_usd_per_h: float | None
    list_price_usd_per_h: float | None
    price: str
    parts: list[PartRow]
    facts: list[ChipFact]
    sources: dict[str, str]
    pod: PodTotals | None = None
    capacities: list[str] = []
    """The sizes of memory that it is sold with, the usual one last, where there are several."""
    personal: bool = False
    """Whether people own it rather than rent it."""
    book: list[Offer] = []
    """What an hour costs by kind, provider and date; of kind `buy`, what a chip costs."""
    announced: bool = False
    wires: str = ""
    wiring: list[str] = []
    host: str = ""
    achievable: str = ""
    """Links counted one way and both, the switches of a node, a host, and what a large matmul reaches, in words."""
    assumed: str = ""
    """What the file of a chip of one's own leaves out, and what was taken instead."""

    def headline(self) -> str:
        return (
            f"{self.title}: {render(self.bf16_flops_per_s, 'FLOP/s')} in bf16, {render(self.hbm_bytes, 'bytes')} of HBM"
        )


class ChipsReport(Record):
    """Every built-in chip: TPUs first, each family in order of release; `--json` prints the rows alone."""

    ROWS: ClassVar[str] = "chips"
    CHARTS: ClassVar[tuple[str, ...]] = CHIP_CHARTS

    chips: list[ChipReport]

    def headline(self) -> str:
        return f"{len(self.chips)} chips"

    def to_dict(self) -> Any:
        return msgspec.to_builtins(self.chips)


def _plain(value: Any) -> float | list[float]:
    if isinstance(value, tuple):
        return list(map(float, value))
    return float(value)


def network_text(chip: Chip) -> tuple[str, str]:
    """The network in a few words, and the largest thing it joins."""
    network = chip.network
    if isinstance(network, Torus):
        shape = "x".join(map(str, network.pod))
        return f"{network.axes}D torus, {network.link / 1e9:g} GB/s per link one way", f"pod of {shape}"
    first, names = network.levels[0], " → ".join(level.name for level in network.levels)
    text = f"{first.degree} per {first.name}, {first.bandwidth / 1e9:g} GB/s each one way"
    if first.peers:
        text += f", {first.bandwidth / first.peers / 1e9:.3g} of it to each neighbour"
    return text + (f", {first.bridge / 1e9:g} GB/s between two by a bridge" if first.bridge else ""), names


def _parts(chip: Chip) -> list[PartRow]:
    """Cores, ALUs and matrix units, as far as the file counts them."""
    named = PARTS.get(chip.kind, {})
    counted = {"core": (cores, ""), "ALU": (alus, "vector"), "matrix unit": (matrix_units, "matrix")}
    rows: list[PartRow] = []
    for role, (count, unit) in counted.items():
        try:
            rate = None
            if unit:
                rate = structural_peak(chip, unit)
            rows.append(PartRow(named.get(role, role), count(chip), rate))
        except InputError:
            continue  # the file does not count this part
    return rows


def _pod(chip: Chip) -> PodTotals | None:
    if not isinstance(chip.network, Torus) or not chip.network.pod:
        return None
    pod = Slice(chip, tuple(chip.network.pod))
    return PodTotals(str(pod), pod.chips, pod.hosts, pod.flops, pod.hbm)


def _price(chip: Chip) -> str:
    """An hour of the chip in words, with what the file remarks on it."""
    fact = chip.facts.get("price")
    return price_text(chip) + (f" ({fact.note})" if fact is not None and fact.note else "")


def chip_report(chip: Chip) -> ChipReport:
    """One chip."""
    network, largest = network_text(chip)
    facts: list[ChipFact] = []
    for path, fact in chip.facts.items():
        # other sources that give the same number
        others = [OtherReading(_plain(other.value), other.source, other.note) for other in fact.also]
        origin = fact.dimension, fact.per, fact.direction, fact.source, fact.note
        facts.append(ChipFact(path, _plain(fact.value), *origin, others))
    fields = shared(
        ChipReport, chip, capacities=list(chip.capacities), facts=facts, network=network, price=_price(chip)
    )
    return ChipReport(
        **fields,
        bf16_flops_per_s=chip.peak("bf16"),
        hbm_bytes=chip.hbm.capacity,
        hbm_bytes_per_s=chip.bandwidth("hbm"),
        critical_intensity_flops_per_byte=chip.intensity("bf16"),
        largest=largest,
        price_usd_per_h=chip.price,
        list_price_usd_per_h=chip.list_price,
        parts=_parts(chip),
        pod=_pod(chip),
        book=price_book(chip),
        wires=wires_text(chip),
        wiring=node_switches(chip),
        host=host_text(chip),
        achievable=achievable(chip),
    )


def chips_report(source: str = "") -> ChipsReport:
    """Every built-in chip: TPUs first, each family in order of release; `--json` prints the rows alone. With a source,
    those that it gives numbers of, read by it."""
    chips = sorted(map(load_chip, chip_names()), key=lambda chip: (chip.kind != "tpu", chip.released, chip.name))
    if source:
        read = [chip.reading(source) for chip in chips if source in chip.sources]
    else:
        read = chips
    if not read:
        raise unknown("source of chips called", source, {name for chip in chips for name in chip.sources})
    return ChipsReport(list(map(chip_report, read)))


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
    group_bytes_per_s: float = 0.0
    """What all children of a group send into it at once, one way."""
    node_bytes_per_s: float = 0.0
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

    wiring: list[str] = []
    """The switches of each tier, their ports and what they carry."""
    mtbf_s: float = 0.0
    """Time between failures of a job on all of its chips."""
    mtbf_source: str = ""
    """Whose rate of failures that is."""

    def headline(self) -> str:
        return f"{self.slice}: {self.chips:,} chips, {render(self.bf16_flops_per_s, 'FLOP/s')} in bf16"


def slice_report(slice_: Slice) -> SliceReport:
    """The facts of one slice. Bisection is of the weakest axis, or of the top tier that is used;
    across pods it is what half of them send over the data-centre network."""
    chip, count = slice_.chip, slice_.chips
    axes, (tiers, tree) = _axes(slice_), _tiers(slice_)
    # of a torus the axis that carries least across its middle
    weakest = min([row.bisection_bytes_per_s for row in axes], default=0.0)
    if tiers:
        weakest = tiers[-1].bisection_bytes_per_s
    if chip.dcn and isinstance(chip.network, Torus):
        dcn = chip.dcn * count
    else:
        dcn = None
    # half of the chips send, the other half receive
    if slice_.pods > 1 and dcn is not None:
        weakest = dcn / 2
    if chip.kind == "tpu" and "cores" in chip.structure:
        cores = slice_.cores
    else:
        cores = None
    return SliceReport(
        **shared(SliceReport, slice_, chip, chip=chip.title, cores=cores, host_shape=list(chip.host_shape)),
        slice=str(slice_),
        axes=axes,
        tiers=tiers,
        full_bisection=tree.full_bisection if tree else None,
        bf16_flops_per_s=slice_.flops,
        hbm_bytes=slice_.hbm,
        hbm_bytes_per_s=count * chip.bandwidth("hbm"),
        pcie_bytes_per_s=chip.pcie * count if chip.pcie else None,
        dcn_bytes_per_s=dcn,
        bisection_bytes_per_s=weakest,
        price_usd_per_h=chip.price * count if chip.price else None,
        power_w=chip.power * count if chip.power else None,
        farthest_hops=eccentricity(slice_) if isinstance(chip.network, Torus) else None,
        wiring=[*node_switches(chip), *(switch_text(switch_for(chip), "above the nodes") if tree else ())],
        mtbf_s=1 / failure_rate(slice_),
        mtbf_source=failure_rates(slice_.chip).source,
    )


def _axes(slice_: Slice) -> list[AxisRow]:
    network = slice_.chip.network
    if not isinstance(network, Torus):
        return []
    rows: list[AxisRow] = []
    for name, size, wraps in zip(AXIS_NAMES, slice_.shape, slice_.wrap, strict=False):
        if size == 1:
            continue
        # A cut through the middle crosses each of the other axes' chips once, and the way round as well on a ring.
        cut = math.prod(slice_.shape) // size * (2 if wraps else 1) * network.link
        along = network.link * (2 if wraps or size > 2 else 1)
        rows.append(AxisRow(name, size, wraps, along, int(axis_diameter(size, wraps)), cut))
    return rows


def _tiers(slice_: Slice) -> tuple[list[TierRow], FatTree | None]:
    """The tiers that a slice under switches uses, with their switches where the catalogue knows them."""
    chip, network = slice_.chip, slice_.chip.network
    if not isinstance(network, Tree):
        return [], None
    # a plain fat tree has two tiers above the nodes, the upper one as wide as all of the lower together
    node, *above = network.levels
    plain = len(above) == 2 and above[1].bandwidth == above[0].degree * above[0].bandwidth
    switch = switch_for(chip) if plain else None
    if switch is not None:
        tree = None
        if slice_.chips > node.degree:
            tree = fat_tree(chip, switch, slice_.chips)
        rows = []
        for tier in tree.tiers if tree else (node_tier(chip),):
            cables = int(tier.groups * tier.children * tier.child_links)
            rates = float(tier.child_bandwidth), float(tier.per_chip), float(tier.bisection(both_ways=False))
            more = float(tier.bandwidth), float(tier.per_chip * node.degree), cables
            rows.append(TierRow(tier.name, int(tier.groups), int(tier.children), *rates, int(tier.total), *more))
        # Above one scalable unit every tier is a single group; a top tier with one child joins nothing.
        return [row for row in rows if row.children > 1], tree
    # `below`: chips under one child of the level
    rows, below = [], 1
    for level in network.levels:
        if below >= slice_.chips:
            break
        # the top level joins whatever is left
        children = math.ceil(min(slice_.chips, below * (level.degree or slice_.chips)) / below)
        groups, rate = math.ceil(slice_.chips / (below * children)), level.bandwidth
        rows.append(
            TierRow(
                level.name,
                groups,
                children,
                rate,
                rate / below,
                children * rate / 2,
                None,
                children * rate,
                rate / below * node.degree,
            )
        )
        below *= children
    return rows, None


class TemplateReport(Record):
    """A chip file to start from."""

    text: str

    def headline(self) -> str:
        return "a chip file"
