"""Facts of chips, slices and models: where a number was read, what other sources say, and what follows from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import unknown
from dragonscale.hardware import Chip, dtype_bytes, load_chip
from dragonscale.models import load_model
from dragonscale.reports.explain.formulas import FormulaLine
from dragonscale.units import render
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.asked import Asked
from dragonscale.web.derivations.pieces import Piece, chip_source, chip_sources, facts, formulas, row, step
from dragonscale.web.words import dropped_model

_DERIVED: dict[str, tuple[str, str, Callable[[Chip], str], Callable[[Chip], float], str, tuple[str, ...]]] = {
    "critical_intensity": ("Critical intensity", "C/W_hbm", lambda chip: f"{chip.peak('bf16'):.6g}/{chip.bandwidth('hbm'):.6g}",
                           lambda chip: chip.peak("bf16") / chip.bandwidth("hbm"), "FLOP/byte", ("matrix.bf16", "memory.hbm.bandwidth")),
    "usd_per_exaflop": ("Dollars for 10^18 FLOPs", "price/3600/C*1e18", lambda chip: f"{chip.price or 0:.6g}/3600/{chip.peak('bf16'):.6g}*1e18",
                        lambda chip: (chip.price or 0.0) / 3600 / chip.peak("bf16") * 1e18, "USD", ("price", "matrix.bf16")),
    "flops_per_watt": ("FLOP/s of a watt", "C/P", lambda chip: f"{chip.peak('bf16'):.6g}/{chip.power or 0:.6g}",
                       lambda chip: chip.peak("bf16") / (chip.power or float("inf")), "FLOP/s", ("matrix.bf16", "power")),
}  # fmt: skip
"""What follows from facts of a chip: title, formula, numbers, value, unit, the facts."""
_MODEL = {
    "parameters": ("Parameters", "All weights of the model, counted from the shapes of its config.", "count"),
    "active_parameters": ("Parameters used per token", "Weights that one token is multiplied with: of experts, those it goes to.", "count"),
    "kv_bytes_per_token": ("KV cache of a token", "What all layers keep of one more token.", "bytes"),
    "cache_bytes_per_sequence": ("KV cache of a sequence", "What all layers keep of a sequence of this length.", "bytes"),
    "forward_flops_per_token": ("Forward FLOPs of a token", "Two for each weight it is multiplied with, and attention's dot products.", "FLOP"),
    "training_flops_per_token": ("Training FLOPs of a token", "Three times the forward pass: forward, gradients of inputs, gradients of weights.", "FLOP"),
    "six_n_flops_per_token": ("6N", "The rule of thumb: six FLOPs for each parameter used.", "FLOP"),
    "n_layers": ("Layers", "Layers of the model.", "count"), "d_model": ("Width", "Width of the residual stream.", "count"),
    "heads": ("Query heads", "Query heads of a layer.", "count"), "kv_heads": ("KV heads", "Key and value heads of a layer.", "count"),
    "context": ("Context", "The longest sequence that the config names.", "count"),
}  # fmt: skip


def numbers_of(asked: Asked, of: str, fields: Mapping[str, Any]) -> "LookedUp":
    """Facts of the chip or the model that the fields name."""
    return LookedUp(asked, of, fields)


@dataclass(frozen=True)
class LookedUp:
    """A chip, a slice or a model."""

    asked: Asked
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
            return self._model(path, name, number)
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
            return self._model_formulas(path, name)
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
        from dragonscale.reports.chips.report import chip_report

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
        chip = load_chip(report.chip)
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

    # models

    def _named(self, name: str) -> tuple[Any, Any]:
        """The model and its report."""
        text = name or str(self.fields.get("model", "") or "")
        report = self.asked.ask(
            "models",
            {
                **{
                    key: self.fields[key]
                    for key in ("seq", "full", "kv_dtype", "assume", "family")
                    if key in self.fields
                },
                "model": text,
            },
            brief=False,
        )
        dropped = self.asked.dropped
        return dropped_model(text, dropped[text]) if text in dropped else load_model(text), report

    def _model(self, path: str, name: str, number: str) -> Piece:
        model, report = self._named(name)
        kind, _, part = path.partition(":")
        where = [
            {
                "text": f"The config of {report.name}, read by the planner's table of model families; every count is a reading of its einsums.",
                "url": "",
            }
        ]
        tables = {"parameters": report.parameters_by_part, "flops": report.forward_flops_per_token_by_part, "stored_bytes": report.stored_bytes,
                  "extra": report.extra_parameters, "activation_bytes_per_token": report.activation_bytes_per_token}  # fmt: skip
        if part and kind == "weight_bytes":
            value = report.parameters * dtype_bytes(part)
            rows = [
                row("parameters", count(report.parameters, "model:parameters")),
                row("bytes of each", amount(dtype_bytes(part), "bytes")),
            ]
            return facts(
                f"Weights in {part}",
                "Every parameter in this format.",
                amount(value, "bytes", number),
                steps=[step("Put together from", rows)],
                sources=where,
                docs=("models", "counting"),
            )
        if part:
            value = tables.get(kind, {}).get(part)
            if value is None:
                raise unknown(f"part of {kind} called", part, tables.get(kind, {}))
            unit = {"parameters": "count", "extra": "count", "flops": "FLOP"}.get(kind, "bytes")
            whole = sum(tables[kind].values()) if kind in ("parameters", "flops") else 0
            rows = (
                [
                    row("in all", _plain(whole, unit)),
                    row("share", amount(value / whole, "share", "", f"{value / whole:.1%}")),
                ]
                if whole
                else []
            )
            return facts(
                f"{kind.replace('_', ' ')}: {part}",
                f"Of the part “{part}” of {report.name}.",
                _plain(value, unit, number),
                steps=[step("Of", rows)] if rows else [],
                sources=where,
                docs=("models", "counting"),
            )
        if path in ("attention_overtakes", "rule_8d"):
            return self._lengths(model, path, number, where)
        if path not in _MODEL:
            raise unknown("number of a model called", path, _MODEL)
        title, sentence, unit = _MODEL[path]
        value = self._value(model, report, path)
        parts = {
            "parameters": report.parameters_by_part,
            "active_parameters": report.active_parameters_by_part,
            "forward_flops_per_token": report.forward_flops_per_token_by_part,
        }.get(path, {})
        ids = {"parameters": "model:parameters:", "forward_flops_per_token": "model:flops:"}
        rows = [
            row(key, _plain(one, unit, f"{ids[path]}{key}" if path in ids and not name else ""))
            for key, one in parts.items()
            if one
        ]
        shown = _plain(value, unit, number)
        return facts(
            title,
            f"{sentence[:-1]} ({report.name}).",
            shown,
            steps=[step("By part", rows, shown)] if rows else [],
            sources=where,
            docs=("models", "counting"),
        )

    def _value(self, model: Any, report: Any, path: str) -> float:
        if path in ("heads", "kv_heads"):
            from dragonscale.web.views.models import _heads

            return float(_heads(model)[path == "kv_heads"] or 0)
        return float((model.context or 0) if path == "context" else getattr(report, path))

    def _lengths(self, model: Any, path: str, number: str, where: list[Piece]) -> Piece:
        from dragonscale.reports.models.lengths import RULE, overtaken_at

        causal = self.fields.get("full") is not True
        value = overtaken_at(model, causal) if path == "attention_overtakes" else RULE * model.d_model
        title = "Attention overtakes the matmuls" if path == "attention_overtakes" else "8D"
        sentence = (
            "From so many tokens on the dot products of attention cost more than all matmuls."
            if path == "attention_overtakes"
            else "The book's rule: near eight times the width."
        )
        return facts(
            title,
            sentence,
            amount(value, "count", number, f"{value or 0:,.0f} tokens"),
            sources=where,
            docs=("models", "counting"),
        )

    def _model_formulas(self, path: str, name: str) -> Piece:
        text = name or str(self.fields.get("model", "") or "")
        seq = {"seq": self.fields["seq"]} if self.fields.get("seq") else {}
        if path == "six_n_flops_per_token":
            _, report = self._named(name)
            return formulas(
                [
                    FormulaLine(
                        "6N",
                        "6*N",
                        f"6*{report.six_n_flops_per_token / 6:.0f}",
                        render(report.six_n_flops_per_token, "FLOP", 4),
                        report.six_n_flops_per_token,
                        "FLOP",
                    )
                ]
            )
        if path == "rule_8d":
            model, _ = self._named(name)
            return formulas(
                [FormulaLine("8D", "8*D", f"8*{model.d_model}", f"{8 * model.d_model:,}", 8.0 * model.d_model, "count")]
            )
        if path in ("n_layers", "d_model", "heads", "kv_heads", "context"):
            return formulas([])
        if text in self.asked.dropped:
            return formulas([], notes=["Formulas are made of models with a name; this one was dropped on the page."])
        found = self.asked.ask("explain model", {"model": text, **seq}, brief=False)
        kind, _, part = path.partition(":")
        word = "FLOPs" if "flops" in kind else "parameters"
        lines = [line for line in found.lines if word in line.name and (not part or f": {part} " in line.name)]
        return formulas(lines or found.lines, notes=found.notes)


def _plain(value: float, unit: str, why: str = "") -> Amount:
    return amount(value, unit, why)


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
