"""The view `models`: every preset in a table, one model by part and over the length of its sequences; a line about the
model that a form's field names, and a config that was dropped, made small.

A dropped `config.json` stands in the page's address, so that a link to it works for others too. Most of a config is
about tokens, training and file names and changes nothing that is counted: those fields are left out where the model
stays the same.
"""

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from dragonscale.blocks.amounts import amount, count, quantities, share
from dragonscale.commands import models as reports
from dragonscale.commands.models import RECOMPUTED, ModelReport
from dragonscale.errors import InputError
from dragonscale.models import count_parameters, load_model, over_length
from dragonscale.models.catalogue import is_preset, preset_lines
from dragonscale.models.huggingface import load_config
from dragonscale.models.huggingface.fields import is_inert
from dragonscale.models.names import safe_name
from dragonscale.models.over_length import RULE
from dragonscale.models.transformer import Transformer, attention_heads
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, fields, figures_of, line, log_axis, mark, notes_of, pairs, rule
from dragonscale.web.words import dropped_model, looks_like_file, question_of

COLUMNS: dict[str, str] = TABLES["models"]["columns"]
ROLES: dict[str, str] = TABLES["models"]["roles"]
FORMATS = ("fp32", "bf16", "fp8", "int8", "int4")
SPARE = ("fsdp", "pipe", "recompute", "gathered", "optimizer", "gradients")


def table_panel(_: PageRequest) -> Card:
    """A row for each preset."""
    return {"columns": [{"name": name, "title": title} for name, title in COLUMNS.items()], "rows": _rows()}


@functools.cache
def _rows() -> list[Card]:
    families = {name: family for name, family, _ in preset_lines()}
    rows: list[Card] = []
    for preset in reports.models_report().models:
        model = load_model(preset.name)
        heads, kv_heads = attention_heads(model)
        why = f"model:{{}}@{preset.name}".format
        cells = {
            "parameters": amount(preset.parameters, "count", why("parameters")),
            "active": amount(preset.active_parameters, "count", why("active_parameters")),
            **quantities(preset, {"layers": "n_layers", "d_model": "d_model", "kv": "kv_bytes_per_token"}, why),
            "heads": count(heads, why("heads")),
            "kv_heads": count(kv_heads, why("kv_heads")),
            "context": count(model.context, why("context")),
        }
        moe = preset.active_parameters < 0.8 * preset.parameters
        rows.append({"name": preset.name, "family": families.get(preset.name, ""), "moe": moe, "cells": cells})
    return rows


def _one(request: PageRequest) -> ModelReport:
    """The model that was asked for; without a name the command lists them all."""
    report = request.record
    if not isinstance(report, ModelReport):
        raise InputError("The question names no model; give one, such as llama3-8b, as `model`.")
    return report


def model_panel(request: PageRequest) -> Card:
    """One model: its numbers, its parts, its weights in every format."""
    report = _one(request)
    shape = f"{report.n_layers} layers, d_model {report.d_model:,}, vocabulary {report.vocab:,}"
    weights = {name: report.parameters * dtype_bytes(name) for name in FORMATS}
    activations = _sizes("policy", "bytes", report.activation_bytes_per_token, "activation_bytes_per_token")
    return {
        **fields(report, "name advice sequence"),
        "shape": shape,
        "sentence": f"{report.headline()}.",
        "figures": figures_of(report, TABLES["models"]["model"]["figures"], "model"),
        "parameters": _parts(report.parameters_by_part, report.parameters, "count", "model:parameters:"),
        "flops": _parts(report.forward_flops_per_token_by_part, report.forward_flops_per_token, "FLOP", "model:flops:"),
        "weights": _sizes("format", "bytes", weights, "weight_bytes"),
        "stored": _sizes("format", "bytes", report.stored_bytes, "stored_bytes"),
        "extra": _sizes("part", "count", report.extra_parameters, "extra"),
        "activations": [row | {"policy": RECOMPUTED.get(row["policy"], row["policy"])} for row in activations],
        "notes": notes_of(report),
    }


def _sizes(name: str, unit: str, sizes: Mapping[str, float], why: str) -> list[Card]:
    """A row for each size, named after its format or part and its unit."""
    return [{name: key, unit: amount(size, unit, f"model:{why}:{key}")} for key, size in sizes.items()]


def _parts(parts: dict[str, Any], total: float, unit: str, why: str) -> Card:
    """Parts as a bar, the largest first."""
    names, spare, rows = {"scores": "attention (QK, PV)"}, iter(SPARE), list[Card]()
    for name, value in sorted(parts.items(), key=lambda part: -float(part[1])):
        if value:
            role = ROLES.get(name) or next(spare, "overhead")
            whole = amount(value, unit, f"{why}{name}"), share(value / total if total else 0.0, f"{why}{name}")
            rows.append({"name": names.get(name, name), "role": role, "shown": whole[0], "share": whole[1]})
    return {"total": amount(total, unit, why.rstrip(":")), "parts": rows}


def _lengths(model: Transformer, causal: bool) -> tuple[list[float], float | None]:
    meet = over_length.overtaken_at(model, causal)
    longest = max(model.context or 0, 1 << 17, 2 * RULE * model.d_model, min(4 * (meet or 0), 1 << 24))
    return [2.0**7 * (longest / 2.0**7) ** (index / 72) for index in range(73)], meet


def lengths_panel(request: PageRequest) -> Card:
    """The KV cache and the FLOPs of a token over the length of the sequence, with where attention overtakes the
    matmuls."""
    question = question_of("models", request.fields, request.dropped)
    report = _one(request)
    if question.assume or question.family:
        return {"cache": None, "flops": None}
    model, causal = load_model(question.model), not question.full
    lengths, meet = _lengths(model, causal)
    rule = RULE * model.d_model
    return {
        "meets": amount(meet, "count", "model:attention_overtakes", "" if meet is None else f"{meet:,.0f} tokens"),
        "rule": amount(rule, "count", "model:rule_8d", f"{rule:,} tokens"),
        "cache": _cache_chart(model, report, lengths),
        "flops": _flops_chart(model, causal, lengths, meet),
    }


_TOKENS = log_axis("tokens of a sequence", "count")


def _cache_chart(model: Transformer, report: ModelReport, lengths: list[float]) -> Card:
    """The cache of a sequence beside the model's weights."""
    kv = over_length.cache_over(model, lengths, report.kv_dtype)
    reserved = over_length.cache_over(model, lengths, report.kv_dtype, hybrid=False)
    weight_bytes = report.parameters * dtype_bytes("bf16")
    series = [line(f"cache in {report.kv_dtype}", "cache", pairs(lengths, kv))]
    if reserved != kv:
        series.append(line("as an engine without windows keeps it", "overhead", pairs(lengths, reserved), dashed=True))
    series.append(
        line("weights in bf16", "weights", [(lengths[0], weight_bytes), (lengths[-1], weight_bytes)], dashed=True)
    )
    size, context = report.cache_bytes_per_sequence, model.context or 0
    longest = f"context {render(context, 'count', binary=True)}"
    return {
        "x": _TOKENS,
        "y": log_axis("KV cache of a sequence", "bytes"),
        "series": series,
        "rules": [rule(float(context), longest, "muted")] if context else [],
        "marks": [mark(float(report.sequence), size, render(size, "bytes"))],
    }


def _flops_chart(model: Transformer, causal: bool, lengths: list[float], meet: float | None) -> Card:
    """The forward FLOPs of a token: attention's dot products beside the matmuls."""
    parts = over_length.flops_over(model, lengths, causal)
    scores = parts.pop("scores", [0.0] * len(lengths))
    wide = [parts[name] for name in parts if name in ("mlp", "moe", "experts", "shared", "router")]
    mlp = [sum(rows) for rows in zip(*wide, strict=True)]
    matmuls = [sum(rows) for rows in zip(*parts.values(), strict=True)]
    eight = RULE * model.d_model
    rules = [rule(float(eight), f"rule T = 8D: {render(eight, 'count')}", "muted")]
    if meet:
        crossing = f"attention overtakes the matmuls ({'causal' if causal else 'full'}): T = {render(meet, 'count')}"
        rules = [rule(meet, crossing), *rules]
    return {
        "x": _TOKENS,
        "y": log_axis("forward FLOPs of a token", "FLOP"),
        "series": [
            line("attention (QK, PV)", "context", pairs(lengths, scores)),
            line("all matmuls", "compute", pairs(lengths, matmuls)),
            line("MLP", "recompute", pairs(lengths, mlp), dashed=True),
        ],
        "rules": rules,
    }


def program_panel(request: PageRequest) -> Card:
    """The model as named einsums."""
    return fields(_one(request), "program")


LONGEST = 6000
"""Characters of a config that still goes into an address."""
_KEPT = ("torch_dtype", "dtype", "quantization_config", "model_type")


def line_panel(request: PageRequest) -> dict[str, Any]:
    """A model in a line: `70.6B parameters, 80 layers, d_model 8,192`."""
    model = load_model(question_of("models", {"model": request.fields.get("model", "")}, request.dropped).model)
    counts = count_parameters(model)
    used = "" if counts.active >= counts.total * 0.9 else f" ({render(counts.active, 'count')} active)"
    size = render(counts.total, "count")
    return {
        "name": model.name,
        "parameters": amount(counts.total, "count", "model:parameters", size),
        "text": f"{size} parameters{used}, {model.n_layers} layers, d_model {model.d_model:,}",
        "notes": list(model.notes),
    }


def config_panel(request: PageRequest) -> dict[str, Any]:
    """The config under `dropped`: the name that the field gives it, its text made small, and whether an address can
    hold it."""
    if len(request.dropped) != 1:
        raise InputError("One config.json at a time is read; drop it on the page.")
    [(file, text)] = request.dropped.items()
    model = dropped_model(file, text)
    whole: dict[str, Any] = json.loads(text)
    small = _smaller(whole)
    shortest = small if _same(model, small) else whole
    written = json.dumps(shortest, separators=(",", ":"), ensure_ascii=False)
    size = {"in_address": len(written) <= LONGEST, "characters": len(written)}
    return {"name": _name(file, whole), "text": written, **size}


def _name(file: str, whole: Mapping[str, Any]) -> str:
    """What the model is called: as the config says, else as the file, else by its type; never like a file."""
    stated = str(whole.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    stem = re.sub(r"(\.(json|txt))+$", "", file.rsplit("/", 1)[-1], flags=re.IGNORECASE)
    called = stated or f"my-{whole.get('model_type')}"
    if not stated and stem not in ("", "config"):
        called = stem
    name = re.sub(r"[^\w.-]", "-", safe_name(called))[:60]
    name = f"my-{name}" if is_preset(name) else name
    return re.sub(r"[./]", "-", name) if looks_like_file(name) else name


def _smaller(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that change no count, at every depth."""
    shorter = {name: value for name, value in config.items() if name in _KEPT or not is_inert(name, value)}
    deeper = {name for name, value in shorter.items() if isinstance(value, Mapping)} - {"quantization_config"}
    return {name: _smaller(value) if name in deeper else value for name, value in shorter.items()}


def _same(model: Transformer, small: Mapping[str, Any]) -> bool:
    """Whether the smaller config is the same model in all that is counted."""
    try:
        other = load_config(small, model.name)
    except InputError:
        return False
    return str(other.program()) == str(model.program()) and other.weight_dtypes == model.weight_dtypes


PANELS = {
    "table": table_panel,
    "model": model_panel,
    "lengths": lengths_panel,
    "program": program_panel,
    "line": line_panel,
    "config": config_panel,
}
