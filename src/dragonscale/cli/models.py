"""`dscale models [NAME]`: parameters, FLOPs, KV bytes and activations, by part."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import amount, bar, emit_json, record_table, say, table


def run(
    name: Annotated[str | None, Parameter(help="A preset, a Hugging Face config.json, or a TOML file.")] = None,
    /,
    *,
    seq: Annotated[str, Parameter(help="Sequence length for FLOPs and caches.")] = "8192",
    kv_dtype: Annotated[str, Parameter(help="Dtype of the cache.")] = "bf16",
    full: Annotated[
        bool, Parameter(negative="", help="Count the whole attention square, not its causal half.")
    ] = False,
    program: Annotated[bool, Parameter(negative="", help="Print the model as named einsums.")] = False,
    json: Json = False,
) -> int:
    """What does a model weigh: parameters, FLOPs, cache, activations, by part?"""
    from dragonscale.errors import InputError
    from dragonscale.hardware import dtype_bytes
    from dragonscale.models import load_model
    from dragonscale.reports.models import model_report, models_report
    from dragonscale.units import parse_count

    if name is None:
        rows = models_report()
        emit_json(rows) if json else say(_listing(rows))
        return 0
    dtype_bytes(kv_dtype)
    length = parse_count(seq, "--seq")
    if length < 1:
        raise InputError("--seq is 0; a sequence has at least one token.")
    report = model_report(load_model(name), length, kv_dtype, causal=not full)
    emit_json(report) if json else say(report.program if program else _details(report))
    return 0


def _listing(rows: list) -> str:
    columns = {
        "model": "name",
        "parameters": ("parameters", "count"),
        "active": ("active_parameters", "count"),
        "layers": "n_layers",
        "d_model": "d_model",
        "KV/token": ("kv_bytes_per_token", "bytes"),
    }
    return record_table(rows, columns) + "\n\n`dscale models NAME` counts by part; a config.json path works too."


def _details(report) -> str:
    lines = [
        f"{report.name}: {report.parameters:,} parameters, {report.active_parameters:,} used per token "
        f"({report.n_layers} layers, d_model {report.d_model:,}, vocabulary {report.vocab:,})",
        "",
    ]
    rows, flops = [], report.forward_flops_per_token_by_part
    for part, size in sorted(report.parameters_by_part.items(), key=lambda item: -item[1]):
        share = size / report.parameters
        rows.append([part, f"{size:,}", f"{share:.1%}", bar(share, 16), amount(flops.get(part, 0.0), "FLOP")])
    if flops.get("scores"):
        rows.append(["scores", "0", "", "", amount(flops["scores"], "FLOP")])
    lines += [table(["part", "parameters", "share", "", "forward/token"], rows, right=[1, 2, 4]), ""]
    for part, size in report.extra_parameters.items():
        lines.append(f"the checkpoint also holds {part}: {size:,} parameters")
    what = "causal" if report.causal else "full"
    keys = ("forward", "training", "six_n", "six_n_with_embedding")
    forward, training, *six_n = (amount(getattr(report, f"{key}_flops_per_token"), "FLOP") for key in keys)
    weights = ", ".join(f"{amount(size, 'bytes')} in {dtype}" for dtype, size in report.weight_bytes.items())
    lines += [
        f"weights: {weights}",
        f"FLOPs per token at {report.sequence:,} tokens ({what} attention): forward {forward}, training {training}",
        f"6N per token: {six_n[0]} with N = {report.active_parameters:,} used per token (no embedding lookup), "
        f"{six_n[1]} with the embedding counted",
        f"cache ({report.kv_dtype}): {amount(report.kv_bytes_per_token, 'bytes')} per token, {amount(report.cache_bytes_per_sequence, 'bytes')} per sequence; "
        f"an engine reserves {amount(report.cache_bytes_reserved, 'bytes')}",
        "activations kept per token of training: "
        + ", ".join(f"{policy} {amount(size, 'bytes')}" for policy, size in report.activation_bytes_per_token.items()),
        "",
        report.advice,
    ]
    return "\n".join(lines)
