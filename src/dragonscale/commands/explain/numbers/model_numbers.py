"""Counts of a model: parameters, FLOPs, caches, by part, as readings of its einsums."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.blocks.amounts import amount
from dragonscale.commands.explain.formulas import Explanation
from dragonscale.commands.explain.numbers.number_table import Numbers
from dragonscale.commands.explain.numbers.records import NumberFormulas, Part
from dragonscale.commands.models import ModelReport
from dragonscale.errors import unknown
from dragonscale.models.over_length import RULE, overtaken_at
from dragonscale.models.transformer import Transformer, attention_heads
from dragonscale.physics.hardware import dtype_bytes

READING_FIELDS = ("seq", "full", "kv_dtype", "assume", "family")
"""Fields of a question that change how a model is counted."""
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
    """A model and its report. `full`: attention is counted without its causal half. `linked` where it is the model that
    the question names, so that its parts lead on. `explain` gives its formulas; None where it has no name."""

    model: Transformer
    report: ModelReport
    full: bool
    linked: bool
    explain: Callable[[], Explanation | None]
    path: str = ""
    view: ClassVar[str] = "model"
    what: ClassVar[str] = "number of a model called"

    def names(self) -> dict[str, Any]:
        report, (heads, kv_heads) = self.report, attention_heads(self.model)
        meet = functools.partial(overtaken_at, self.model, not self.full)
        counted = SimpleNamespace(
            active=report.six_n_flops_per_token / 6,
            heads=heads or 0,
            kv_heads=kv_heads or 0,
            context=self.model.context or 0,
            overtaken_at=meet,
            overtaken=lambda: meet() or 0,
            rule=RULE * self.model.d_model,
            parameter_rows=self._by_part(report.parameters_by_part, "count", "parameters"),
            active_rows=self._by_part(report.active_parameters_by_part, "count"),
            flops_rows=self._by_part(report.forward_flops_per_token_by_part, "FLOP", "flops"),
        )
        return {"of": self, "report": report, "model": self.model, "counted": counted}

    def _by_part(self, counts: Mapping[str, float], unit: str, kind: str = "") -> list[Part]:
        """A number of each part of the model; `kind` is how the ids of their own derivations begin."""
        parts: list[Part] = []
        for name, number in counts.items():
            # a part of another model than the question's has no derivation to lead on to
            why = f"model:{kind}:{name}" if self.linked and kind else ""
            if number:
                parts.append(Part(name, amount(number, unit, why)))
        return parts

    def key(self, number: str) -> str:
        path = number.partition(":")[2].partition("@")[0]
        kind, colon, _ = path.partition(":")
        if colon and kind != "weight_bytes":
            return f"part:{path}"
        return {"flops": "forward_flops_per_token"}.get(path, path)

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {"weight_bytes": self._weights, "part": self._part}

    def formula(self, number: str) -> NumberFormulas:
        path = number.partition(":")[2].partition("@")[0]
        return Numbers.formula(replace(self, path=path), number)

    def explained(self) -> NumberFormulas:
        """The formulas of `dscale explain model` that a number is in, or all of them."""
        explanation = self.explain()
        if explanation is None:
            return NumberFormulas(notes=["Formulas are made of models with a name; this one was dropped on the page."])
        kind, _, part = self.path.partition(":")
        word = "FLOPs" if "flops" in kind else "parameters"
        lines = [line for line in explanation.lines if word in line.name and (not part or f": {part} " in line.name)]
        return NumberFormulas(lines or explanation.lines, notes=explanation.notes)

    def _weights(self, dtype: str) -> SimpleNamespace:
        width = dtype_bytes(dtype)
        return SimpleNamespace(dtype=dtype, each=width, bytes=self.report.parameters * width)

    def _part(self, path: str) -> SimpleNamespace:
        """One part of a table, and its share of what the table adds up to."""
        kind, _, part = path.partition(":")
        field, unit = _PARTS.get(kind, ("", "bytes"))
        table = getattr(self.report, field, {})
        if part not in table:
            raise unknown(f"part of {kind} called", part, table)
        rows = []
        # only tables of disjoint parts have a sum
        if kind in ("parameters", "flops") and any(table.values()):
            whole = sum(table.values())
            share = table[part] / whole
            rows = [Part("in all", amount(whole, unit)), Part("share", amount(share, "share", "", f"{share:.1%}"))]
        title = f"{kind.replace('_', ' ')}: {part}"
        # counts of parameters are long: 8.03B
        unit = unit.replace("count", "size")
        return SimpleNamespace(title=title, part=part, value=table[part], unit=unit, rows=rows)
