"""Counts of a model: parameters, FLOPs, caches, by part, as readings of its einsums."""

from typing import TYPE_CHECKING, Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.errors import unknown
from dragonscale.models import load_model
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.derivations.pieces import Piece, facts, formulas, row, step
from dragonscale.web.words import dropped_model

if TYPE_CHECKING:
    from dragonscale.web.derivations.lookup import LookedUp

_MODEL = {
    "parameters": ("Parameters", "All weights of the model, counted from the shapes of its config.", "count"),
    "active_parameters": (
        "Parameters used per token",
        "Weights that one token is multiplied with: of experts, those it goes to.",
        "count",
    ),
    "kv_bytes_per_token": ("KV cache of a token", "What all layers keep of one more token.", "bytes"),
    "cache_bytes_per_sequence": (
        "KV cache of a sequence",
        "What all layers keep of a sequence of this length.",
        "bytes",
    ),
    "forward_flops_per_token": (
        "Forward FLOPs of a token",
        "Two for each weight it is multiplied with, and attention's dot products.",
        "FLOP",
    ),
    "training_flops_per_token": (
        "Training FLOPs of a token",
        "Three times the forward pass: forward, gradients of inputs, gradients of weights.",
        "FLOP",
    ),
    "six_n_flops_per_token": ("6N", "The rule of thumb: six FLOPs for each parameter used.", "FLOP"),
    "n_layers": ("Layers", "Layers of the model.", "count"),
    "d_model": ("Width", "Width of the residual stream.", "count"),
    "heads": ("Query heads", "Query heads of a layer.", "count"),
    "kv_heads": ("KV heads", "Key and value heads of a layer.", "count"),
    "context": ("Context", "The longest sequence that the config names.", "count"),
}
_DOCS = ("models", "counting")


def _named(of: "LookedUp", name: str) -> tuple[Any, Any]:
    """The model and its report."""
    text = name or str(of.fields.get("model", "") or "")
    report = of.asked.ask(
        "models",
        {
            **{key: of.fields[key] for key in ("seq", "full", "kv_dtype", "assume", "family") if key in of.fields},
            "model": text,
        },
        brief=False,
    )
    dropped = of.asked.dropped
    return dropped_model(text, dropped[text]) if text in dropped else load_model(text), report


def model_facts(of: "LookedUp", path: str, name: str, number: str) -> Piece:
    model, report = _named(of, name)
    kind, _, part = path.partition(":")
    read = (
        f"The config of {report.name}, read by the planner's table of model families; every count is a reading of its "
        "einsums."
    )
    where = [{"text": read, "url": ""}]
    if part and kind == "weight_bytes":
        return _weights(report, part, number, where)
    if part:
        return _part(report, kind, part, number, where)
    path = "forward_flops_per_token" if path == "flops" else path
    if path in ("attention_overtakes", "rule_8d"):
        return _lengths(of, model, path, number, where)
    if path not in _MODEL:
        raise unknown("number of a model called", path, _MODEL)
    title, sentence, unit = _MODEL[path]
    shown = _plain(_value(model, report, path), unit, number)
    rows = _by_part(report, path, unit, linked=not name)
    steps = [step("By part", rows, shown)] if rows else []
    return facts(title, f"{sentence[:-1]} ({report.name}).", shown, steps=steps, sources=where, docs=_DOCS)


def _weights(report: Any, dtype: str, number: str, where: list[Piece]) -> Piece:
    """All weights in a format."""
    rows = [
        row("parameters", count(report.parameters, "model:parameters")),
        row("bytes of each", amount(dtype_bytes(dtype), "bytes")),
    ]
    shown = amount(report.parameters * dtype_bytes(dtype), "bytes", number)
    made = [step("Put together from", rows)]
    return facts(f"Weights in {dtype}", "Every parameter in this format.", shown, steps=made, sources=where, docs=_DOCS)


def _part(report: Any, kind: str, part: str, number: str, where: list[Piece]) -> Piece:
    """One part of a table, and its share of what the table adds up to."""
    tables = {
        "parameters": report.parameters_by_part,
        "flops": report.forward_flops_per_token_by_part,
        "stored_bytes": report.stored_bytes,
        "extra": report.extra_parameters,
        "activation_bytes_per_token": report.activation_bytes_per_token,
    }
    parts = tables.get(kind, {})
    value = parts.get(part)
    if value is None:
        raise unknown(f"part of {kind} called", part, parts)
    unit = {"parameters": "count", "extra": "count", "flops": "FLOP"}.get(kind, "bytes")
    steps = []
    whole = sum(parts.values()) if kind in ("parameters", "flops") else 0
    if whole:
        part_of = amount(value / whole, "share", "", f"{value / whole:.1%}")
        steps = [step("Of", [row("in all", _plain(whole, unit)), row("share", part_of)])]
    title, sentence = f"{kind.replace('_', ' ')}: {part}", f"Of the part “{part}” of {report.name}."
    return facts(title, sentence, _plain(value, unit, number), steps=steps, sources=where, docs=_DOCS)


def _by_part(report: Any, path: str, unit: str, linked: bool) -> list[Piece]:
    """The parts of a count; of the model that the question names they lead on."""
    parts = {
        "parameters": report.parameters_by_part,
        "active_parameters": report.active_parameters_by_part,
        "forward_flops_per_token": report.forward_flops_per_token_by_part,
    }.get(path, {})
    ids = {"parameters": "model:parameters:", "forward_flops_per_token": "model:flops:"}
    why = ids.get(path, "") if linked else ""
    return [row(key, _plain(one, unit, f"{why}{key}" if why else "")) for key, one in parts.items() if one]


def _value(model: Any, report: Any, path: str) -> float:
    if path in ("heads", "kv_heads"):
        from dragonscale.web.views.models import _heads

        return float(_heads(model)[path == "kv_heads"] or 0)
    return float((model.context or 0) if path == "context" else getattr(report, path))


def _lengths(of: "LookedUp", model: Any, path: str, number: str, where: list[Piece]) -> Piece:
    from dragonscale.app.models_report import RULE, overtaken_at

    causal = of.fields.get("full") is not True
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
        docs=_DOCS,
    )


def model_formulas(of: "LookedUp", path: str, name: str) -> Piece:
    text = name or str(of.fields.get("model", "") or "")
    seq = {"seq": of.fields["seq"]} if of.fields.get("seq") else {}
    if path == "six_n_flops_per_token":
        _, report = _named(of, name)
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
        model, _ = _named(of, name)
        return formulas(
            [FormulaLine("8D", "8*D", f"8*{model.d_model}", f"{8 * model.d_model:,}", 8.0 * model.d_model, "count")]
        )
    if path in ("n_layers", "d_model", "heads", "kv_heads", "context"):
        return formulas([])
    if text in of.asked.dropped:
        return formulas([], notes=["Formulas are made of models with a name; this one was dropped on the page."])
    found = of.asked.ask("explain model", {"model": text, **seq}, brief=False)
    kind, _, part = path.partition(":")
    word = "FLOPs" if "flops" in kind else "parameters"
    lines = [line for line in found.lines if word in line.name and (not part or f": {part} " in line.name)]
    return formulas(lines or found.lines, notes=found.notes)


def _plain(value: float, unit: str, why: str = "") -> Amount:
    return amount(value, unit, why)
