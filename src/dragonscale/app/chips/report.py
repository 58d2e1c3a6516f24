"""What is known of each chip, and from where."""

from typing import Any, ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip, Slice, Torus, chip_names, load_chip
from dragonscale.physics.hardware.parts import PARTS, alus, cores, matrix_units, structural_peak
from dragonscale.physics.hardware.prices import price_text
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet

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

    def headline(self) -> str:
        return (
            f"{self.title}: {render(self.bf16_flops_per_s, 'FLOP/s')} in bf16, {render(self.hbm_bytes, 'bytes')} of HBM"
        )

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.chips.sheet import chip_sheet

        return chip_sheet(self)

    def draw(self, kind: str) -> Any:
        from dragonscale.app.charts.chips import draw

        return draw(kind, None, self)


class ChipsReport(Record):
    """Every built-in chip: TPUs first, each family in order of release; `--json` prints the rows alone."""

    ROWS: ClassVar[str] = "chips"
    CHARTS: ClassVar[tuple[str, ...]] = CHIP_CHARTS

    chips: list[ChipReport]

    def headline(self) -> str:
        return f"{len(self.chips)} chips"

    def to_dict(self) -> Any:
        return msgspec.to_builtins(self.chips)

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.chips.sheet import chips_sheet

        return chips_sheet(self)

    def draw(self, kind: str) -> Any:
        from dragonscale.app.charts.chips import draw

        return draw(kind, None, self)


def _plain(value: object) -> float | list[float]:
    return [float(item) for item in value] if isinstance(value, tuple) else float(value)  # pyright: ignore[reportArgumentType]


def network_text(chip: Chip) -> tuple[str, str]:
    """The network in a few words, and the largest thing it joins."""
    network = chip.network
    if isinstance(network, Torus):
        shape = "x".join(map(str, network.pod))
        return f"{network.axes}D torus, {network.link / 1e9:g} GB/s per link one way", f"pod of {shape}"
    first, names = network.levels[0], " → ".join(level.name for level in network.levels)
    return f"{first.degree} per {first.name}, {first.bandwidth / 1e9:g} GB/s each one way", names


def _parts(chip: Chip) -> list[PartRow]:
    """Cores, ALUs and matrix units, as far as the file counts them."""
    named = PARTS.get(chip.kind, {})
    counted = {"core": (cores, ""), "ALU": (alus, "vector"), "matrix unit": (matrix_units, "matrix")}
    rows: list[PartRow] = []
    for role, (count, unit) in counted.items():
        try:
            rate = structural_peak(chip, unit) if unit else None
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
        others = [OtherReading(_plain(other.value), other.source, other.note) for other in fact.also]
        words = fact.dimension, fact.per, fact.direction, fact.source, fact.note
        facts.append(ChipFact(path, _plain(fact.value), *words, others))
    return ChipReport(
        name=chip.name,
        title=chip.title,
        kind=chip.kind,
        released=chip.released,
        bf16_flops_per_s=chip.peak("bf16"),
        hbm_bytes=chip.hbm.capacity,
        hbm_bytes_per_s=chip.bandwidth("hbm"),
        critical_intensity_flops_per_byte=chip.intensity("bf16"),
        network=network,
        largest=largest,
        price_usd_per_h=chip.price,
        list_price_usd_per_h=chip.list_price,
        price=_price(chip),
        parts=_parts(chip),
        facts=facts,
        sources=chip.sources,
        pod=_pod(chip),
    )


def chips_report() -> ChipsReport:
    """Every built-in chip: TPUs first, each family in order of release; `--json` prints the rows alone."""
    chips = sorted(map(load_chip, chip_names()), key=lambda chip: (chip.kind != "tpu", chip.released, chip.name))
    return ChipsReport([chip_report(chip) for chip in chips])
