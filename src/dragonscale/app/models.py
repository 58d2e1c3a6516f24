"""`dscale models`: what a model weighs in ten lines, then its parts; or the presets."""

import shlex

from dragonscale.app.charts.pictures import draw_models
from dragonscale.app.given import unnamed
from dragonscale.app.models_report import ModelReport, ModelsReport, model_report, models_report
from dragonscale.app.questions.facts import ModelsQuestion
from dragonscale.app.questions.flag import written
from dragonscale.app.record import Face, bind
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.sheets.sheet import (
    Block,
    Column,
    Facts,
    Grid,
    NextStep,
    Prose,
    Sheet,
    Title,
    Verbatim,
    amount,
    facts,
    records,
    table,
)


def ask(question: ModelsQuestion, listener: Listener) -> ModelReport | ModelsReport:
    """One model by part, or every preset."""
    dtype_bytes(question.kv_dtype)
    length = question.seq.tokens(listener)
    if question.model == "":
        if question.assume or question.family or question.program:
            raise InputError("--assume, --as and --program are about one model; name it, such as llama3-8b.")
        return models_report().came_from(question, listener.notes)
    model = load_model(with_assumed(question.model, question.assume, question.family))
    report = model_report(model, length, question.kv_dtype, causal=not question.full)
    for text in report.notes:
        listener.note(text)
    return report.came_from(question, listener.notes)


def ask_model(question: ModelsQuestion, listener: Listener) -> ModelReport:
    """One model, which must be named."""
    report = ask(question, listener)
    if not isinstance(report, ModelReport):
        raise InputError("Name a model, such as 'llama3-8b'; `ds.model_names()` lists the presets.")
    return report


def models_sheet(report: ModelsReport, _detail: bool) -> Sheet:
    """A line for each preset."""
    columns = {
        "model": "name",
        "parameters": ("parameters", "count"),
        "active": ("active_parameters", "count"),
        "layers": "n_layers",
        "d_model": "d_model",
        "KV/token": ("kv_bytes_per_token", "bytes"),
    }
    how = {"d_model": {"keep": 3}, "layers": {"keep": 4}}
    why = "By part, as of a path or org/name of the Hugging Face Hub:"
    return Sheet((records(report.models, columns, how=how), NextStep("dscale models NAME", why)))


RECOMPUTED = {"block": "full (block)"}
"""Policies of recompute by the words of the field, where those are others."""


def model_sheet(report: ModelReport, detail: bool) -> Sheet:
    """One model: the summary, then its parts; or its named einsums and nothing else, where those were asked for."""
    if report.asked is not None and report.asked.program:
        return Sheet((Verbatim(report.program),))
    shape = f"{report.n_layers} layers, d_model {report.d_model:,}, vocabulary {report.vocab:,}"
    blocks: list[Block] = [Title(report.name, shape), summary(report), parts_table(report), Prose(report.advice)]
    blocks += [Verbatim(report.program)] if detail else []
    asked = report.asked
    if asked is not None and not unnamed(asked.model) and not (asked.assume or asked.family):
        name = shlex.quote(written(asked.model))
        blocks.append(NextStep(f"dscale estimate {name}", "Next, what it takes to train and serve:"))
    return Sheet(tuple(blocks))


def summary(report: ModelReport) -> Facts:
    """Parameters, bytes, FLOPs, cache and activations."""
    held = sum(report.stored_bytes.values())
    files = f"{amount(held, 'bytes')}: {_by_name(report.stored_bytes)}" if held else ""
    what = "causal" if report.causal else "full"
    keys = ("forward", "training", "six_n", "six_n_with_embedding")
    forward, training, six_n, six_n_embedded = (
        amount(getattr(report, f"{key}_flops_per_token"), "FLOP") for key in keys
    )
    extra = ", ".join(f"{part} {size:,}" for part, size in report.extra_parameters.items())
    reserved = amount(report.cache_bytes_reserved, "bytes")
    return facts(
        ("parameters", f"{report.parameters:,}, {report.active_parameters:,} used per token", "key"),
        ("also held", f"{extra} parameters in the checkpoint") if extra else None,
        ("weights", _by_name(report.weight_bytes)),
        ("files", files),
        (
            "KV cache",
            f"{amount(report.kv_bytes_per_token, 'bytes')} per token in {report.kv_dtype}, "
            f"{amount(report.cache_bytes_per_sequence, 'bytes')} per sequence of {report.sequence:,} (an engine "
            f"reserves {reserved})",
        ),
        (
            "FLOPs",
            f"per token at {report.sequence:,} tokens ({what} attention): forward {forward}, training {training}",
        ),
        (
            "6N",
            f"{six_n} per token with N = {report.active_parameters:,} (no embedding lookup), "
            f"{six_n_embedded} with the embedding counted",
        ),
        (
            "activations",
            "kept per token of training, by recompute: "
            + ", ".join(
                f"{RECOMPUTED.get(policy, policy)} {amount(size, 'bytes')}"
                for policy, size in report.activation_bytes_per_token.items()
            ),
        ),
    )


def _by_name(sizes: dict[str, float] | dict[str, int]) -> str:
    return ", ".join(f"{amount(size, 'bytes')} in {name}" for name, size in sizes.items())


def parts_table(report: ModelReport) -> Grid:
    """Parameters and forward FLOPs by part, the largest first; attention's dot products have no parameters."""
    flops = report.forward_flops_per_token_by_part
    rows = []
    for part, size in sorted(report.parameters_by_part.items(), key=lambda item: -item[1]):
        share = size / report.parameters
        rows.append((part, size, f"{share:.1%}", share, amount(flops.get(part, 0.0), "FLOP")))
    if flops.get("scores"):
        rows.append(("attention (QK, PV)", 0, "", 0.0, amount(flops["scores"], "FLOP")))
    columns = [
        "part",
        Column("parameters", right=True),
        Column("share", right=True),
        Column("", bar=True, keep=2),
        Column("forward/token", right=True),
    ]
    return table(columns, rows)


bind(ModelReport, Face(model_sheet, draw_models))
bind(ModelsReport, Face(models_sheet, draw_models))
