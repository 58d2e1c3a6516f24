"""Charts of `dscale chips`: the roofs of one chip's formats or of several chips, and bars of what chips have."""

from collections.abc import Iterable, Sequence

from dragonscale.blocks import charts
from dragonscale.blocks.charts import Bar, Chart, Roof
from dragonscale.blocks.charts.amounts import amount
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.chips_report import ChipReport, ChipsReport

# Roofs that one picture can tell apart; of more the newest are drawn.
MAX_ROOFS = 8
# Bars that a picture may have with all of the catalogue's chips; of more only the chips that are rented are drawn.
MAX_BARS = 60
# Bytes a second inside a node of the slowest GPU among the roofs of many chips: cards that PCIe alone joins (128 GB/s
# both ways at most) are left out.
MIN_LINK = 1e11
# Rates within this factor of each other are drawn as one roof.
SAME_ROOF = 1.2
_CHIP_BARS = {
    "flops": ("bf16 peak", "bf16_flops_per_s", "FLOP/s", "compute"),
    "hbm": ("memory", "hbm_bytes", "bytes", "hbm"),
    "bandwidth": ("memory bandwidth", "hbm_bytes_per_s", "bytes/s", "hbm"),
}


def draw_chips(report: ChipReport | ChipsReport, kind: str) -> Chart:
    """The roofs of one chip's formats or of several chips, or bars of what they have."""
    chips = [report] if isinstance(report, ChipReport) else report.chips
    if len(chips) > MAX_BARS:
        # of all chips those that are rented
        chips = [chip for chip in chips if chip.price_usd_per_h is not None or not chip.personal]
    if not chips:
        raise nothing_to_draw("no chip is named")
    if kind == "roofs" and len(chips) == 1:
        return _formats_chart(chips[0])
    if kind == "roofs":
        return _roofs_chart(chips)
    title, field, dimension, role = _CHIP_BARS[kind]
    rows = [Bar(chip.title, getattr(chip, field), role) for chip in chips]
    if len(chips) == 1:
        return charts.bars(rows, f"{title} of {chips[0].title}", "", dimension)
    return charts.bars(rows, f"{title} of {len(chips)} chips", "TPUs first, then by date of release", dimension)


def roofs_by_peak(peaks: Iterable[tuple[str, float]], bandwidth: float) -> list[Roof]:
    """A roof for each rate, the highest first: formats of the same rate are one roof."""
    names: dict[float, list[str]] = {}
    for name, peak in peaks:
        names.setdefault(peak, []).append(name)
    highest = sorted(names.items(), key=lambda roof: -roof[0])[:MAX_ROOFS]
    return [Roof(", ".join(alike), peak, bandwidth) for peak, alike in highest]


def _formats_chart(chip: ChipReport) -> Chart:
    """Every format of one chip over its HBM."""
    peaks: list[tuple[str, float]] = []
    for fact in chip.facts:
        if fact.unit == "FLOP/s" and isinstance(fact.value, float):
            # `matrix.fp8.sparse` reads "fp8 sparse"
            peaks.append((fact.path.removeprefix("matrix.").replace(".", " "), fact.value))
    over = f"over HBM at {amount(chip.hbm_bytes_per_s, 'bytes/s')}, datasheet rates"
    roofs = roofs_by_peak(peaks, chip.hbm_bytes_per_s)
    return charts.roofline_chart(roofs, [], f"{chip.title}: roofs by format", over)


def _roofs_chart(chips: Sequence[ChipReport]) -> Chart:
    """bf16 over HBM of several chips, those that could not be told apart as one roof; of many, those that are rented
    and scale beyond PCIe."""
    if len(chips) > MAX_ROOFS:
        chips = [chip for chip in chips if chip.price_usd_per_h and _scales(chip)]
    # chips whose roofs could not be told apart, each group by its fastest chip
    groups: list[list[ChipReport]] = []
    for chip in sorted(chips, key=lambda chip: (-chip.bf16_flops_per_s, -chip.hbm_bytes_per_s)):
        for group in groups:
            if _same_roof(group[0], chip):
                group.append(chip)
                break
        else:
            groups.append([chip])
    newest = sorted(groups, key=lambda group: max(chip.released for chip in group))[-MAX_ROOFS:]
    roofs: list[Roof] = []
    for group in groups:
        if group in newest:
            name = ", ".join(chip.name for chip in group[:3])
            if len(group) > 3:
                name += f" and {len(group) - 3} more"
            rates = f"{_span(group, 'bf16_flops_per_s', 'FLOP/s')}, {_span(group, 'hbm_bytes_per_s', 'bytes/s')}"
            roofs.append(Roof(name, group[0].bf16_flops_per_s, group[0].hbm_bytes_per_s, rates))
    subtitle = "datasheet rates; a line is that of its first chip"
    if len(groups) > MAX_ROOFS:
        subtitle += f"; the {MAX_ROOFS} newest lines"
    return charts.roofline_chart(roofs, [], "Roofs of chips, bf16 over HBM", subtitle)


def _span(group: Sequence[ChipReport], field: str, unit: str) -> str:
    """A rate of chips drawn as one: the least and the most of them."""
    rates = [getattr(chip, field) for chip in group]
    low, high = amount(min(rates), unit), amount(max(rates), unit)
    if low == high:
        return low
    # "1.1 to 1.2PFLOP/s": the unit is written once where both have the same
    return f"{low.removesuffix(high.lstrip('0123456789.,')).rstrip()} to {high}"


def _scales(chip: ChipReport) -> bool:
    """Whether links of its own join a chip to its neighbours."""
    if chip.kind == "tpu":
        return True
    for fact in chip.facts:
        if fact.path.startswith("levels."):
            # tiers are listed from the node outwards: the first one is the link inside it
            return isinstance(fact.value, float) and fact.value > MIN_LINK
    return False


def _same_roof(first: ChipReport, other: ChipReport) -> bool:
    """Whether the roofs of two chips could not be told apart on a logarithmic chart."""
    peaks, bandwidths = first.bf16_flops_per_s / other.bf16_flops_per_s, first.hbm_bytes_per_s / other.hbm_bytes_per_s
    return 1 / SAME_ROOF < peaks < SAME_ROOF and 1 / SAME_ROOF < bandwidths < SAME_ROOF
