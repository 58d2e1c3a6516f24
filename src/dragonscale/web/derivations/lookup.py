"""Facts of chips, slices and models: where a number was read, what other sources say, and what follows from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.errors import unknown
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.derivations.model_facts import model_facts, model_formulas
from dragonscale.web.derivations.pieces import Piece, chip_source, chip_sources, facts, formulas, row, step
from dragonscale.web.page_request import PageRequest

_DERIVED: dict[str, tuple[str, str, Callable[[Chip], str], Callable[[Chip], float], str, tuple[str, ...]]] = {
    "critical_intensity": (
        "Critical intensity",
        "C/W_hbm",
        lambda chip: f"{chip.peak('bf16'):.6g}/{chip.bandwidth('hbm'):.6g}",
        lambda chip: chip.peak("bf16") / chip.bandwidth("hbm"),
        "FLOP/byte",
        ("matrix.bf16", "memory.hbm.bandwidth"),
    ),
    "usd_per_exaflop": (
        "Dollars for 10^18 FLOPs",
        "price/3600/C*1e18",
        lambda chip: f"{chip.price or 0:.6g}/3600/{chip.peak('bf16'):.6g}*1e18",
        lambda chip: (chip.price or 0.0) / 3600 / chip.peak("bf16") * 1e18,
        "USD",
        ("price", "matrix.bf16"),
    ),
    "flops_per_watt": (
        "FLOP/s of a watt",
        "C/P",
        lambda chip: f"{chip.peak('bf16'):.6g}/{chip.power or 0:.6g}",
        lambda chip: chip.peak("bf16") / (chip.power or float("inf")),
        "FLOP/s",
        ("matrix.bf16", "power"),
    ),
}
"""What follows from facts of a chip: title, formula, numbers, value, unit, the facts."""


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any]) -> "LookedUp":
    """Facts of the chip or the model that the fields name."""
    return LookedUp(asked, of, fields)


@dataclass(frozen=True)
class LookedUp:
    """A chip, a slice or a model."""

    asked: PageRequest
    of: str
    fields: Mapping[str, Any]

    def facts(self, number: str) -> Piece:
        kind, _, path = number.partition(":")
        path, _, name = path.partition("@")
        if kind == "chip":
            return self._chip(path, name, number)
        if kind == "slice":
            return self._slice(path, number)
        if kind == "model":
            return model_facts(self, path, name, number)
        raise unknown("kind of fact called", kind, ("chip", "slice", "model"))

    def formula(self, number: str) -> Piece:
        kind, _, path = number.partition(":")
        path, _, name = path.partition("@")
        if kind == "chip" and path in _DERIVED:
            title, formula, numbers, value, unit, _ = _DERIVED[path]
            chip = self.chip(name)
            return formulas([FormulaLine(title, formula, numbers(chip), _text(value(chip), unit), value(chip), unit)])
        if kind == "slice":
            return self._slice_formula(path)
        if kind == "model":
            return model_formulas(self, path, name)
        return formulas([])

    def chip(self, name: str = "") -> Chip:
        found = name or str(self.fields.get("name", "") or "")
        chip = load_chip(found.partition(":")[0].partition("*")[0])
        source = str(self.fields.get("source", "") or "")
        return chip.reading(source) if source else chip

    def _chip(self, path: str, name: str, number: str) -> Piece:
        chip = self.chip(name)
        if path in _DERIVED:
            title, _, _, value, unit, paths = _DERIVED[path]
            rows = [
                row(one, amount(chip.facts[one].value, chip.facts[one].dimension, f"chip:{one}@{chip.name}"))
                for one in paths
                if one in chip.facts
            ]
            shown = amount(value(chip), unit, number, _text(value(chip), unit))
            return facts(
                title,
                f"Of the {chip.title}, from its facts.",
                shown,
                steps=[step("From", rows)],
                sources=chip_sources(chip, paths),
                docs=("chips", ""),
            )
        if path.startswith("part:"):
            return self._part(chip, path.partition(":")[2], number)
        if path == "matrix.bf16" and path not in chip.facts:
            path = "matrix.fp16"  # of chips that have no bf16
        if path not in chip.facts:
            raise unknown(f"fact of {chip.name} called", path, chip.facts)
        fact = chip.facts[path]
        found = chip_source(chip, path)
        per = f" per {fact.per}" if fact.per and fact.per != "chip" else ""
        way = f", {fact.direction}" if fact.direction else ""
        note = f" {fact.note[:1].upper()}{fact.note[1:]}." if fact.note else ""
        rows = [
            row(f"{other.source}", amount(other.value, other.dimension), other.note)
            for other in fact.also
            if isinstance(other.value, float)
        ]
        others = [step("What other sources say", rows)] if rows else []
        shown = (
            amount(fact.value, fact.dimension, number)
            if isinstance(fact.value, float)
            else amount(None, "count", text=str(fact.value))
        )
        more = [{"text": chip.sources.get(other.source, other.source), "url": ""} for other in fact.also]
        return facts(
            path,
            f"{path} of the {chip.title}{per}{way}.{note}",
            shown,
            steps=others,
            sources=[*([found] if found else []), *more],
            docs=("chips", ""),
            more=False,
        )

    def _part(self, chip: Chip, name: str, number: str) -> Piece:
        from dragonscale.app.chips_report import chip_report

        one = next((one for one in chip_report(chip).parts if one.part == name), None)
        if one is None:
            raise unknown(f"part of {chip.name} called", name, [two.part for two in chip_report(chip).parts])
        rows = [row("how many", count(one.count)), row("FLOP/s by structure", amount(one.flops_per_s, "FLOP/s"))]
        structure = [path for path in chip.facts if path.startswith("structure.")]
        return facts(
            name,
            f"Of the {chip.title}: counted from its structure and clock.",
            count(one.count, number),
            steps=[step("It has", rows)],
            sources=chip_sources(chip, structure),
            docs=("chips", ""),
            more=False,
        )

    def _slice_record(self) -> Any:
        name = self.asked.text("slice") or str(self.fields.get("name", "") or "")
        return self.asked.ask("chips", {"name": name}, brief=False)

    def _slice(self, path: str, number: str) -> Piece:
        report = self._slice_record()
        chip = load_chip(report.slice.partition(":")[0].partition("*")[0])  # its `chip` is a title
        kind, _, name = path.partition(":")
        rows: list[Piece] = []
        if kind in ("axis", "tier"):
            every = {getattr(one, kind): one for one in (report.axes if kind == "axis" else report.tiers)}
            if name not in every:
                raise unknown(f"{kind} of {report.slice} called", name, every)
            values = {key: getattr(every[name], key) for key in every[name].__struct_fields__ if key != kind}
            rows = [
                row(key.replace("_", " "), _shown(key, value))
                for key, value in values.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            ]
            shown = _shown("chip_bytes_per_s", values["chip_bytes_per_s"]) | {"why": number}
            sentence = f"What each chip has of the {kind} {name} of {report.slice}."
        else:
            value = getattr(report, path, None)
            if value is None:
                raise unknown(f"number of {report.slice} called", path, report.__struct_fields__)
            shown = _shown(path, value) | {"why": number}
            rows = [row("chips", count(report.chips)), row("of one chip", _shown(path, value / report.chips))]
            sentence = f"Of all {report.chips:,} chips of {report.slice}."
        paths = [
            "matrix.bf16",
            "memory.hbm.capacity",
            "memory.hbm.bandwidth",
            "ici.link",
            "levels.node.bandwidth",
            "levels.leaf.bandwidth",
            "price",
            "power",
        ]
        return facts(
            f"{report.slice}: {path.replace('_', ' ')}",
            sentence,
            shown,
            steps=[step("Put together from", rows)],
            sources=chip_sources(chip, paths),
            docs=("chips", "slices"),
        )

    def _slice_formula(self, path: str) -> Piece:
        report = self._slice_record()
        value = getattr(report, path, None) if ":" not in path else None
        if value is None or path in ("chips", "hosts", "bisection_bytes_per_s"):
            return formulas([])
        line = FormulaLine(
            path, "n_chips*x", f"{report.chips}*{value / report.chips:.6g}", _shown(path, value)["text"], value, ""
        )
        return formulas([line], notes=["x: the same of one chip."])


def _shown(key: str, value: float) -> Amount:
    units = (
        ("flops_per_s", "FLOP/s"),
        ("bytes_per_s", "bytes/s"),
        ("bytes", "bytes"),
        ("usd_per_h", "USD/h"),
        ("power_w", "W"),
    )
    unit = next((unit for ending, unit in units if key.endswith(ending)), "count")
    return count(value) if unit == "count" else amount(value, unit)


def _text(value: float, unit: str) -> str:
    return (
        f"{value:,.4g} FLOP/byte" if unit == "FLOP/byte" else f"${value:,.3g}" if unit == "USD" else render(value, unit)
    )
