"""Counts of a model: parameters, FLOPs, caches, by part, as readings of its einsums."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.errors import unknown
from dragonscale.models import load_model
from dragonscale.models.over_length import RULE, overtaken_at
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.web.amounts import amount
from dragonscale.web.derivations.pieces import Piece, formulas, row
from dragonscale.web.derivations.table import Numbers
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.models import heads_of
from dragonscale.web.words import dropped_model

_READ = ("seq", "full", "kv_dtype", "assume", "family")
"""Fields that change how a model is counted."""
_PARTS = {
    "parameters": ("parameters_by_part", "count"),
    "flops": ("forward_flops_per_token_by_part", "FLOP"),
    "stored_bytes": ("stored_bytes", "bytes"),
    "extra": ("extra_parameters", "count"),
    "activation_bytes_per_token": ("activation_bytes_per_token", "bytes"),
}
"""Tables of a report by part, and their units."""


@dataclass(frozen=True)
class ModelNumbers(Numbers):
    """A model and its report; `linked` where it is the one that the question names, so that its parts lead on."""

    asked: PageRequest
    fields: Mapping[str, Any]
    text: str
    linked: bool
    model: Transformer
    report: Any
    path: str = ""
    view: ClassVar[str] = "model"
    what: ClassVar[str] = "number of a model called"

    @classmethod
    def named(cls, asked: PageRequest, fields: Mapping[str, Any], name: str) -> "ModelNumbers":
        text = name or str(fields.get("model", "") or "")
        read = {key: fields[key] for key in _READ if key in fields}
        report = asked.ask("models", {**read, "model": text}, brief=False)
        model = dropped_model(text, asked.dropped[text]) if text in asked.dropped else load_model(text)
        return cls(asked, fields, text, not name, model, report)

    def names(self) -> dict[str, Any]:
        report, (heads, kv_heads) = self.report, heads_of(self.model)
        meet = functools.partial(overtaken_at, self.model, self.fields.get("full") is not True)

        def rows(parts: Mapping[str, float], unit: str, why: str = "") -> list[Piece]:
            linked = f"model:{why}:" if self.linked and why else ""
            known = {name: part for name, part in parts.items() if part}
            return [row(name, amount(part, unit, linked and linked + name)) for name, part in known.items()]

        counted = SimpleNamespace(
            active=report.six_n_flops_per_token / 6,
            heads=heads or 0,
            kv_heads=kv_heads or 0,
            context=self.model.context or 0,
            overtaken_at=meet,
            overtaken=lambda: meet() or 0,
            rule=RULE * self.model.d_model,
            parameter_rows=rows(report.parameters_by_part, "count", "parameters"),
            active_rows=rows(report.active_parameters_by_part, "count"),
            flops_rows=rows(report.forward_flops_per_token_by_part, "FLOP", "flops"),
        )
        return {"of": self, "report": report, "model": self.model, "counted": counted}

    def key(self, number: str) -> str:
        path = number.partition(":")[2].partition("@")[0]
        kind, parted, _ = path.partition(":")
        if parted and kind != "weight_bytes":
            return f"part:{path}"
        return "forward_flops_per_token" if path == "flops" else path

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {"weight_bytes": self._weights, "part": self._part}

    def formula(self, number: str) -> Piece:
        path = number.partition(":")[2].partition("@")[0]
        return Numbers.formula(replace(self, path=path), number)

    def explained(self) -> Piece:
        """The formulas of `dscale explain model` that a number is in."""
        if self.text in self.asked.dropped:
            return formulas([], notes=["Formulas are made of models with a name; this one was dropped on the page."])
        seq = {"seq": self.fields["seq"]} if self.fields.get("seq") else {}
        found = self.asked.ask("explain model", {"model": self.text, **seq}, brief=False)
        kind, _, part = self.path.partition(":")
        word = "FLOPs" if "flops" in kind else "parameters"
        lines = [line for line in found.lines if word in line.name and (not part or f": {part} " in line.name)]
        return formulas(lines or found.lines, notes=found.notes)

    def _weights(self, dtype: str) -> SimpleNamespace:
        each = dtype_bytes(dtype)
        return SimpleNamespace(dtype=dtype, each=each, bytes=self.report.parameters * each)

    def _part(self, path: str) -> SimpleNamespace:
        """One part of a table, and its share of what the table adds up to."""
        kind, _, part = path.partition(":")
        field, unit = _PARTS.get(kind, ("", "bytes"))
        table = getattr(self.report, field, {})
        if part not in table:
            raise unknown(f"part of {kind} called", part, table)
        whole = sum(table.values()) if kind in ("parameters", "flops") else 0
        share = table[part] / whole if whole else 0.0
        rows = [row("in all", amount(whole, unit)), row("share", amount(share, "share", "", f"{share:.1%}"))]
        unit = "size" if unit == "count" else unit
        title = f"{kind.replace('_', ' ')}: {part}"
        return SimpleNamespace(title=title, part=part, value=table[part], unit=unit, rows=rows if whole else [])
