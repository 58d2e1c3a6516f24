"""`dscale models [NAME]`: parameters, FLOPs, KV bytes and activations, by part."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import amount, bar, emit_json, note, record_table, say, table


def run(
    name: Annotated[
        str | None,
        Parameter(help="A preset, org/name of the Hub, a config.json, a folder, a .gguf, a .safetensors or a .toml."),
    ] = None,
    /,
    *,
    seq: Annotated[str, Parameter(help="Sequence length for FLOPs and caches.")] = "8192",
    kv_dtype: Annotated[str, Parameter(help="Dtype of the cache.")] = "bf16",
    full: Annotated[
        bool, Parameter(negative="", help="Count the whole attention square, not its causal half.")
    ] = False,
    assume: Annotated[
        list[str] | None,
        Parameter(help="A field of the config to take as key=value, or key=ignore to leave one out.", negative=""),
    ] = None,
    family: Annotated[str, Parameter(name="--as", help="Read the config as this model type.")] = "",
    program: Annotated[bool, Parameter(negative="", help="Print the model as named einsums.")] = False,
    json: Json = False,
) -> int:
    """What does a model weigh: parameters, FLOPs, cache, activations, by part?"""
    from dragonscale.hardware import dtype_bytes
    from dragonscale.models import load_model
    from dragonscale.models.assumed import read_assumptions
    from dragonscale.reports.models import model_report, models_report
    from dragonscale.units import parse_length

    dtype_bytes(kv_dtype)
    length, said = parse_length(seq, "--seq")
    if said:
        note(said)
    if name is None:
        rows = models_report()
        emit_json(rows) if json else say(_listing(rows))
        return 0
    model = load_model(name, read_assumptions(assume or []), family)
    report = model_report(model, length, kv_dtype, causal=not full)
    for text in report.notes:
        note(text)
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
    return (
        record_table(rows, columns) + "\n\n`dscale models NAME` counts by part; so does a path or org/name of the Hub."
    )


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
    if report.stored_bytes:
        held = ", ".join(f"{amount(size, 'bytes')} in {kind}" for kind, size in report.stored_bytes.items())
        lines.append(f"the files hold {amount(sum(report.stored_bytes.values()), 'bytes')}: {held}")
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
