"""The view `models`: every preset in a table, one model by part and over the length of its sequences."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dragonscale.app.models.lengths import RULE, cache_over, flops_over, overtaken_at
from dragonscale.app.models.records import ModelReport, ModelsReport
from dragonscale.app.models.report import models_report
from dragonscale.app.models.sheet import RECOMPUTED
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.models.catalogue import preset_lines
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count, share
from dragonscale.web.derivations.model_facts import heads_of
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.model_field import config_panel, line_panel
from dragonscale.web.words import question_of

COLUMNS = {
    "parameters": "parameters",
    "active": "active",
    "layers": "layers",
    "d_model": "d_model",
    "heads": "heads",
    "kv_heads": "KV heads",
    "kv": "KV/token",
    "context": "context",
}
ROLES = {
    "mlp": "compute",
    "moe": "compute",
    "attention": "tensor",
    "embed": "hbm",
    "head": "data",
    "norm": "overhead",
    "router": "expert",
    "scores": "context",
    "shared": "recompute",
    "experts": "expert",
}
FORMATS = ("fp32", "bf16", "fp8", "int8", "int4")
SPARE = ("fsdp", "pipe", "recompute", "gathered", "optimizer", "gradients")


def table_panel(_: PageRequest) -> dict[str, Any]:
    """A row for each preset."""
    return {"columns": [{"name": name, "title": title} for name, title in COLUMNS.items()], "rows": _rows()}


@functools.cache
def _rows() -> list[dict[str, Any]]:
    report: ModelsReport = models_report()
    families = {name: family for name, family, _ in preset_lines()}
    rows: list[dict[str, Any]] = []
    for one in report.models:
        model, at = load_model(one.name), f"@{one.name}"
        heads, kv_heads = heads_of(model)
        rows.append(
            {
                "name": one.name,
                "family": families.get(one.name, ""),
                "moe": one.active_parameters < 0.8 * one.parameters,
                "cells": {
                    "parameters": amount(one.parameters, "count", f"model:parameters{at}"),
                    "active": amount(one.active_parameters, "count", f"model:active_parameters{at}"),
                    "layers": count(one.n_layers, f"model:n_layers{at}"),
                    "d_model": count(one.d_model, f"model:d_model{at}"),
                    "heads": _maybe(heads, f"model:heads{at}"),
                    "kv_heads": _maybe(kv_heads, f"model:kv_heads{at}"),
                    "kv": amount(one.kv_bytes_per_token, "bytes", f"model:kv_bytes_per_token{at}"),
                    "context": _maybe(model.context, f"model:context{at}"),
                },
            }
        )
    return rows


def _maybe(value: int | None, why: str) -> Amount:
    return amount(None, "count") if value is None else count(value, why)


def _one(asked: PageRequest) -> ModelReport:
    """The model that was asked for; without a name the command lists them all."""
    report = asked.record
    if not isinstance(report, ModelReport):
        raise InputError("The question names no model; give one, such as llama3-8b, as `model`.")
    return report


def model_panel(asked: PageRequest) -> dict[str, Any]:
    """One model: its numbers, its parts, its weights in every format."""
    report = _one(asked)
    seq = f"at {report.sequence:,} tokens"
    rows = [
        ("parameters", amount(report.parameters, "count", "model:parameters"), f"{report.parameters:,}"),
        (
            "used per token",
            amount(report.active_parameters, "count", "model:active_parameters"),
            "without the embedding lookup",
        ),
        (
            "KV cache of a token",
            amount(report.kv_bytes_per_token, "bytes", "model:kv_bytes_per_token"),
            report.kv_dtype,
        ),
        (
            "KV cache of a sequence",
            amount(report.cache_bytes_per_sequence, "bytes", "model:cache_bytes_per_sequence"),
            seq,
        ),
        ("forward of a token", amount(report.forward_flops_per_token, "FLOP", "model:forward_flops_per_token"), seq),
        ("training of a token", amount(report.training_flops_per_token, "FLOP", "model:training_flops_per_token"), seq),
        (
            "6N",
            amount(report.six_n_flops_per_token, "FLOP", "model:six_n_flops_per_token"),
            "per token, the rule of thumb",
        ),
    ]
    shape = f"{report.n_layers} layers, d_model {report.d_model:,}, vocabulary {report.vocab:,}"
    return {
        "name": report.name,
        "shape": shape,
        "sentence": f"{report.headline()}.",
        "advice": report.advice,
        "sequence": report.sequence,
        "figures": [{"label": label, "number": number, "about": about} for label, number, about in rows],
        "parameters": _parts(report.parameters_by_part, report.parameters, "count", "model:parameters:"),
        "flops": _parts(report.forward_flops_per_token_by_part, report.forward_flops_per_token, "FLOP", "model:flops:"),
        "weights": [
            {
                "format": name,
                "bytes": amount(report.parameters * dtype_bytes(name), "bytes", f"model:weight_bytes:{name}"),
            }
            for name in FORMATS
        ],
        "stored": [
            {"format": name, "bytes": amount(size, "bytes", f"model:stored_bytes:{name}")}
            for name, size in report.stored_bytes.items()
        ],
        "extra": [
            {"part": name, "count": amount(size, "count", f"model:extra:{name}")}
            for name, size in report.extra_parameters.items()
        ],
        "activations": [
            {
                "policy": RECOMPUTED.get(name, name),
                "bytes": amount(size, "bytes", f"model:activation_bytes_per_token:{name}"),
            }
            for name, size in report.activation_bytes_per_token.items()
        ],
        "notes": [*report.notes, *(note for note in report.notes_beside if note not in report.notes)],
    }


def _parts(parts: dict[str, Any], total: float, unit: str, why: str) -> dict[str, Any]:
    """Parts as a bar, the largest first."""
    names = {"scores": "attention (QK, PV)"}
    spare = iter(SPARE)
    rows = sorted(((name, float(value)) for name, value in parts.items() if value), key=lambda part: -part[1])
    return {
        "total": amount(total, unit, why.rstrip(":")),
        "parts": [
            {
                "name": names.get(name, name),
                "role": ROLES.get(name) or next(spare, "overhead"),
                "shown": amount(value, unit, f"{why}{name}"),
                "share": share(value / total if total else 0.0, f"{why}{name}"),
            }
            for name, value in rows
        ],
    }


def _lengths(model: Transformer, causal: bool) -> tuple[list[float], float | None]:
    meet = overtaken_at(model, causal)
    longest = max(model.context or 0, 1 << 17, 2 * RULE * model.d_model, min(4 * (meet or 0), 1 << 24))
    return [2.0**7 * (longest / 2.0**7) ** (place / 72) for place in range(73)], meet


def lengths_panel(asked: PageRequest) -> dict[str, Any]:
    """The KV cache and the FLOPs of a token over the length of the sequence, with where attention overtakes the
    matmuls."""
    question = question_of("models", asked.fields, asked.dropped)
    report = _one(asked)
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


_TOKENS = {"label": "tokens of a sequence", "unit": "count", "log": True}


def _cache_chart(model: Transformer, report: ModelReport, lengths: list[float]) -> dict[str, Any]:
    """The cache of a sequence beside the model's weights."""
    kv = cache_over(model, lengths, report.kv_dtype)
    reserved = cache_over(model, lengths, report.kv_dtype, hybrid=False)
    held = report.parameters * dtype_bytes("bf16")
    series: list[dict[str, Any]] = [
        {"name": f"cache in {report.kv_dtype}", "role": "cache", "points": _points(lengths, kv)}
    ]
    if reserved != kv:
        windowless = {"name": "as an engine without windows keeps it", "role": "overhead", "dashed": True}
        series.append(windowless | {"points": _points(lengths, reserved)})
    ends = [[lengths[0], held], [lengths[-1], held]]
    series.append({"name": "weights in bf16", "role": "weights", "dashed": True, "points": ends})
    rules = []
    if model.context:
        longest = f"context {render(model.context, 'count', binary=True)}"
        rules = [{"at": float(model.context), "text": longest, "role": "muted"}]
    size = report.cache_bytes_per_sequence
    return {
        "x": _TOKENS,
        "y": {"label": "KV cache of a sequence", "unit": "bytes", "log": True},
        "series": series,
        "rules": rules,
        "marks": [{"x": float(report.sequence), "y": size, "text": render(size, "bytes")}],
    }


def _flops_chart(model: Transformer, causal: bool, lengths: list[float], meet: float | None) -> dict[str, Any]:
    """The forward FLOPs of a token: attention's dot products beside the matmuls."""
    parts = flops_over(model, lengths, causal)
    scores = parts.pop("scores", [0.0] * len(lengths))
    wide = [parts[name] for name in parts if name in ("mlp", "moe", "experts", "shared", "router")]
    mlp = [sum(one) for one in zip(*wide, strict=True)]
    matmuls = [sum(one) for one in zip(*parts.values(), strict=True)]
    rule = RULE * model.d_model
    rules = [{"at": float(rule), "text": f"rule T = 8D: {render(rule, 'count')}", "role": "muted"}]
    if meet:
        kind = "causal" if causal else "full"
        crossing = f"attention overtakes the matmuls ({kind}): T = {render(meet, 'count')}"
        rules = [{"at": meet, "text": crossing, "role": "limit"}, *rules]
    return {
        "x": _TOKENS,
        "y": {"label": "forward FLOPs of a token", "unit": "FLOP", "log": True},
        "series": [
            {"name": "attention (QK, PV)", "role": "context", "points": _points(lengths, scores)},
            {"name": "all matmuls", "role": "compute", "points": _points(lengths, matmuls)},
            {"name": "MLP", "role": "recompute", "dashed": True, "points": _points(lengths, mlp)},
        ],
        "rules": rules,
    }


def _points(lengths: Sequence[float], values: Sequence[float]) -> list[list[float]]:
    return [[length, value] for length, value in zip(lengths, values, strict=True) if value > 0]


def program_panel(asked: PageRequest) -> dict[str, Any]:
    """The model as named einsums."""
    report = _one(asked)
    return {"program": report.program}


PANELS: dict[str, Callable[[Any], Any]] = {
    "table": table_panel,
    "model": model_panel,
    "lengths": lengths_panel,
    "program": program_panel,
    "line": line_panel,
    "config": config_panel,
}
