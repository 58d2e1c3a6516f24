"""Facts of chips and slices: where a number was read, what other sources say, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.amounts import amount, count, quantity
from dragonscale.commands.chips_report import SliceReport, chip_report
from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.commands.explain.numbers.number_table import Numbers
from dragonscale.commands.explain.numbers.records import DerivationStep, NumberFacts, NumberFormulas, Part
from dragonscale.errors import unknown
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.provenance import Citation, fact_source, fact_sources

_SLICE_FACTS = (
    "matrix.bf16",
    "memory.hbm.capacity",
    "memory.hbm.bandwidth",
    "ici.link",
    "levels.node.bandwidth",
    "levels.leaf.bandwidth",
    "price",
    "power",
)
"""Facts of a chip that those of a slice are made of."""


def chip_of_slice(text: str) -> Chip:
    """The chip of a slice or a chip as it is written."""
    return load_chip(text.partition(":")[0].partition("*")[0])


@dataclass(frozen=True)
class ChipNumbers(Numbers):
    """Facts of a chip, its parts, and what follows from facts."""

    chip: Chip
    paths: tuple[str, ...] = ()
    view: ClassVar[str] = "chip"
    what: ClassVar[str] = "fact of a chip called"
    DERIVED: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "critical_intensity": ("matrix.bf16", "memory.hbm.bandwidth"),
        "usd_per_exaflop": ("price", "matrix.bf16"),
        "flops_per_watt": ("matrix.bf16", "power"),
    }
    """What follows from facts, and from which."""

    def names(self) -> dict[str, Any]:
        peak, bandwidth = self.chip.peak("bf16"), self.chip.bandwidth("hbm")
        derived = SimpleNamespace(
            peak=peak,
            bandwidth=bandwidth,
            critical_intensity=peak / bandwidth,
            # dollars per second over FLOP/s, for 10^18 of them
            usd_per_exaflop=(self.chip.price or 0.0) / 3600 / peak * 1e18,
            flops_per_watt=peak / (self.chip.power or float("inf")),
        )
        return {"of": self, "chip": self.chip, "made": derived}

    def key(self, number: str) -> str:
        return number.partition(":")[2].partition("@")[0]

    def facts(self, number: str) -> NumberFacts:
        key = self.key(number)
        if key in self.DERIVED:
            return Numbers.facts(ChipNumbers(self.chip, self.DERIVED[key]), number)
        if key.startswith("part:"):
            return self._part(key.removeprefix("part:"), number)
        return self._fact(key, number)

    def formula(self, number: str) -> NumberFormulas:
        if self.key(number) not in self.DERIVED:  # a fact was read in its source, and no formula gives it
            return NumberFormulas()
        return super().formula(number)

    def rows(self) -> list[Part]:
        chip, parts = self.chip, []
        for path in self.paths:
            if path in chip.facts:
                fact = chip.facts[path]
                parts.append(Part(path, amount(fact.value, fact.dimension, f"chip:{path}@{chip.name}")))
        return parts

    def _fact(self, path: str, number: str) -> NumberFacts:
        """A number of the chip's file with its source, and what other sources say."""
        chip = self.chip
        if path == "matrix.bf16" and path not in chip.facts:
            path = "matrix.fp16"  # of chips that have no bf16
        if path not in chip.facts:
            raise unknown(f"fact of {chip.name} called", path, chip.facts)
        fact, source = chip.facts[path], fact_source(chip, path)
        sentence = f"{path} of the {chip.title}"
        if fact.per and fact.per != "chip":
            sentence += f" per {fact.per}"
        if fact.direction:
            sentence += f", {fact.direction}"
        if fact.note:
            sentence += f". {fact.note[:1].upper()}{fact.note[1:]}"
        # other sources of the fact, those that give no number among them, with their readings
        sources = [] if source is None else [source]
        rows: list[Part] = []
        steps: list[DerivationStep] = []
        for reading in fact.also:
            sources.append(Citation(chip.sources.get(reading.source, reading.source)))
            if isinstance(reading.value, float):
                rows.append(Part(reading.source, amount(reading.value, reading.dimension), reading.note))
        if rows:
            steps.append(DerivationStep("What other sources say", rows))
        shown = amount(None, "count", text=str(fact.value))
        if isinstance(fact.value, float):
            shown = amount(fact.value, fact.dimension, number)
        return NumberFacts(
            path,
            f"{sentence}.",
            shown,
            steps=steps,
            sources=list(dict.fromkeys(sources)),
            docs=("chips", ""),
            more=False,
        )

    def _part(self, name: str, number: str) -> NumberFacts:
        """A part of the chip (its cores, its matrix units): how many, and what they compute."""
        chip, parts = self.chip, {part.part: part for part in chip_report(self.chip).parts}
        if name not in parts:
            raise unknown(f"part of {chip.name} called", name, parts)
        part = parts[name]
        rows = [Part("how many", count(part.count)), Part("FLOP/s by structure", amount(part.flops_per_s, "FLOP/s"))]
        structure = [path for path in chip.facts if path.startswith("structure.")]
        return NumberFacts(
            name,
            f"Of the {chip.title}: counted from its structure and clock.",
            count(part.count, number),
            steps=[DerivationStep("It has", rows)],
            sources=list(dict.fromkeys(fact_sources(chip, structure))),
            docs=("chips", ""),
            more=False,
        )


@dataclass(frozen=True)
class SliceNumbers(Numbers):
    """What a slice adds up to, and what a chip has of one of its axes or tiers."""

    report: SliceReport

    def facts(self, number: str) -> NumberFacts:
        report, path = self.report, _path(number)
        kind, _, name = path.partition(":")
        if kind in ("axis", "tier"):
            sentence = f"What each chip has of the {kind} {name} of {report.slice}."
            fields = self._network(kind, name)
            shown = quantity("chip_bytes_per_s", fields["chip_bytes_per_s"], number)
            rows = [Part(key.replace("_", " "), quantity(key, value)) for key, value in fields.items()]
        else:
            sentence = f"Of all {report.chips:,} chips of {report.slice}."
            value = getattr(report, path, None)
            if value is None:
                raise unknown(f"number of {report.slice} called", path, report.__struct_fields__)
            shown = quantity(path, value, number)
            rows = [Part("chips", count(report.chips)), Part("of one chip", quantity(path, value / report.chips))]
        chip = chip_of_slice(report.slice)  # the report's `chip` is a title
        return NumberFacts(
            f"{report.slice}: {path.replace('_', ' ')}",
            sentence,
            shown,
            steps=[DerivationStep("Put together from", rows)],
            sources=list(dict.fromkeys(fact_sources(chip, _SLICE_FACTS))),
            docs=("chips", "slices"),
        )

    def _network(self, kind: str, name: str) -> dict[str, float]:
        """The numbers of an axis of the torus or a tier of switches, by field."""
        rows = self.report.axes if kind == "axis" else self.report.tiers
        network = {getattr(row, kind): row for row in rows}
        if name not in network:
            raise unknown(f"{kind} of {self.report.slice} called", name, network)
        values = msgspec.structs.asdict(network[name])
        # texts and yes or no are no numbers; the type itself is compared because a bool is an int
        return {key: value for key, value in values.items() if key != kind and type(value) in (int, float)}

    def formula(self, number: str) -> NumberFormulas:
        report, path = self.report, _path(number)
        # `axis:x` is no field of the report; the bisection does not grow in step with the chips
        value = getattr(report, path, None)
        if value is None or path in ("chips", "hosts", "bisection_bytes_per_s"):
            return NumberFormulas()
        put_in, text = f"{report.chips}*{value / report.chips:.6g}", quantity(path, value)["text"]
        line = FormulaLine(path, "n_chips*x", put_in, text, value, "")
        return NumberFormulas([line], notes=["x: the same of one chip."])


def _path(number: str) -> str:
    """`slice:axis:x@v5p:4x4x4` without what it is a number of: `axis:x`."""
    return number.partition(":")[2].partition("@")[0]
