"""Facts of chips and slices: where a number was read, what other sources say, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.commands.chips_report import chip_report
from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.errors import unknown
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.web.amounts import amount, count, quantity
from dragonscale.web.derivations.model_facts import ModelNumbers
from dragonscale.web.derivations.pieces import Piece, chip_source, chip_sources, facts, formulas, row, step
from dragonscale.web.derivations.table import Numbers
from dragonscale.web.page_request import PageRequest

_RATES = ["matrix.bf16", "memory.hbm.capacity", "memory.hbm.bandwidth", "ici.link"]
_TOTALS = [*_RATES, "levels.node.bandwidth", "levels.leaf.bandwidth", "price", "power"]
"""Facts of a chip that those of a slice are made of."""


def numbers_of(
    asked: PageRequest, _: str, fields: Mapping[str, Any], number: str
) -> "ChipNumbers | SliceNumbers | ModelNumbers":
    """A chip, a slice or a model, as a number's id says: `chip:power@h100`, `slice:chips`, `model:parameters`."""
    kind, path = number.partition(":")[::2]
    name, own = path.partition("@")[2], str(fields.get("name", "") or "")
    if kind == "chip":
        chip, source = _chip_of(name or own), str(fields.get("source", "") or "")
        return ChipNumbers(chip.reading(source) if source else chip)
    if kind == "slice":
        return SliceNumbers(asked.ask("chips", {"name": asked.text("slice") or own}, brief=False))
    if kind == "model":
        return ModelNumbers.named(asked, fields, name)
    raise unknown("kind of fact called", kind, ("chip", "slice", "model"))


def _chip_of(text: str) -> Chip:
    """The chip of a slice or a chip as it is written."""
    return load_chip(text.partition(":")[0].partition("*")[0])


@dataclass(frozen=True)
class ChipNumbers(Numbers):
    """Facts of a chip, its parts, and what follows from facts."""

    chip: Chip
    paths: tuple[str, ...] = ()
    view: ClassVar[str] = "chip"
    what: ClassVar[str] = "fact of a chip called"
    MADE_OF: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "critical_intensity": ("matrix.bf16", "memory.hbm.bandwidth"),
        "usd_per_exaflop": ("price", "matrix.bf16"),
        "flops_per_watt": ("matrix.bf16", "power"),
    }
    """What follows from facts, and from which."""

    def names(self) -> dict[str, Any]:
        peak, bandwidth = self.chip.peak("bf16"), self.chip.bandwidth("hbm")
        made = SimpleNamespace(
            peak=peak,
            bandwidth=bandwidth,
            critical_intensity=peak / bandwidth,
            usd_per_exaflop=(self.chip.price or 0.0) / 3600 / peak * 1e18,
            flops_per_watt=peak / (self.chip.power or float("inf")),
        )
        return {"of": self, "chip": self.chip, "made": made}

    def key(self, number: str) -> str:
        return number.partition(":")[2].partition("@")[0]

    def facts(self, number: str) -> Piece:
        key = self.key(number)
        if key in self.MADE_OF:
            return Numbers.facts(ChipNumbers(self.chip, self.MADE_OF[key]), number)
        return self._part(key.removeprefix("part:"), number) if key.startswith("part:") else self._fact(key, number)

    def formula(self, number: str) -> Piece:
        return super().formula(number) if self.key(number) in self.MADE_OF else formulas([])

    def rows(self) -> list[Piece]:
        known = {path: self.chip.facts[path] for path in self.paths if path in self.chip.facts}
        name = self.chip.name
        return [row(path, amount(fact.value, fact.dimension, f"chip:{path}@{name}")) for path, fact in known.items()]

    def _fact(self, path: str, number: str) -> Piece:
        chip = self.chip
        if path == "matrix.bf16" and path not in chip.facts:
            path = "matrix.fp16"  # of chips that have no bf16
        if path not in chip.facts:
            raise unknown(f"fact of {chip.name} called", path, chip.facts)
        fact, found = chip.facts[path], chip_source(chip, path)
        per = f" per {fact.per}" if fact.per and fact.per != "chip" else ""
        way = f", {fact.direction}" if fact.direction else ""
        note = f" {fact.note[:1].upper()}{fact.note[1:]}." if fact.note else ""
        others = [other for other in fact.also if isinstance(other.value, float)]
        rows = [row(f"{other.source}", amount(other.value, other.dimension), other.note) for other in others]
        known = isinstance(fact.value, float)
        more = [{"text": chip.sources.get(other.source, other.source), "url": ""} for other in fact.also]
        return facts(
            path,
            f"{path} of the {chip.title}{per}{way}.{note}",
            amount(fact.value, fact.dimension, number) if known else amount(None, "count", text=str(fact.value)),
            steps=[step("What other sources say", rows)] if rows else [],
            sources=[*([found] if found else []), *more],
            docs=("chips", ""),
            more=False,
        )

    def _part(self, name: str, number: str) -> Piece:
        parts = {one.part: one for one in chip_report(self.chip).parts}
        if name not in parts:
            raise unknown(f"part of {self.chip.name} called", name, parts)
        one = parts[name]
        rows = [row("how many", count(one.count)), row("FLOP/s by structure", amount(one.flops_per_s, "FLOP/s"))]
        return facts(
            name,
            f"Of the {self.chip.title}: counted from its structure and clock.",
            count(one.count, number),
            steps=[step("It has", rows)],
            sources=chip_sources(self.chip, [path for path in self.chip.facts if path.startswith("structure.")]),
            docs=("chips", ""),
            more=False,
        )


@dataclass(frozen=True)
class SliceNumbers(Numbers):
    """What a slice adds up to, and what a chip has of one of its axes or tiers."""

    report: Any

    def facts(self, number: str) -> Piece:
        report, path = self.report, number.partition(":")[2].partition("@")[0]
        kind, _, name = path.partition(":")
        if kind in ("axis", "tier"):
            every = {getattr(one, kind): one for one in (report.axes if kind == "axis" else report.tiers)}
            if name not in every:
                raise unknown(f"{kind} of {report.slice} called", name, every)
            fields = {key: getattr(every[name], key) for key in every[name].__struct_fields__ if key != kind}
            known = {key: one for key, one in fields.items() if type(one) in (int, float)}
            rows = [row(key.replace("_", " "), quantity(key, value)) for key, value in known.items()]
            shown = quantity("chip_bytes_per_s", fields["chip_bytes_per_s"], number)
            sentence = f"What each chip has of the {kind} {name} of {report.slice}."
        else:
            value = getattr(report, path, None)
            if value is None:
                raise unknown(f"number of {report.slice} called", path, report.__struct_fields__)
            shown = quantity(path, value, number)
            rows = [row("chips", count(report.chips)), row("of one chip", quantity(path, value / report.chips))]
            sentence = f"Of all {report.chips:,} chips of {report.slice}."
        chip = _chip_of(report.slice)  # its `chip` is a title
        return facts(
            f"{report.slice}: {path.replace('_', ' ')}",
            sentence,
            shown,
            steps=[step("Put together from", rows)],
            sources=chip_sources(chip, _TOTALS),
            docs=("chips", "slices"),
        )

    def formula(self, number: str) -> Piece:
        report, path = self.report, number.partition(":")[2].partition("@")[0]
        value = getattr(report, path, None) if ":" not in path else None
        if value is None or path in ("chips", "hosts", "bisection_bytes_per_s"):
            return formulas([])
        put_in, text = f"{report.chips}*{value / report.chips:.6g}", quantity(path, value)["text"]
        return formulas([FormulaLine(path, "n_chips*x", put_in, text, value, "")], notes=["x: the same of one chip."])
