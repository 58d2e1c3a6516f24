"""Reading sgl-jax: `python -m sgl_jax.launch_server …`, in a script or pasted; two commands of which one prefills and
one decodes are pools."""

from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.limits import beyond_context, half_of_pair, launch_read, of_chips
from dragonscale.exports.engines.schemes import formats_read
from dragonscale.exports.engines.sglang.reader import HARMLESS, copies_of, drafts_read, model_named, spelt_out, whole
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import Given, Imported, left_over, needs, serving_file, slice_given, with_slice
from dragonscale.exports.keys import load_keys
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import fraction
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_target
from dragonscale.serving.legal import divisible
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("sgl-jax")

ONLINE = {
    ("int8", "int8"): "int8_w8a8.yaml",
    ("fp8", "fp8"): "fp8_w8a8.yaml",
    ("fp8", "bf16"): "fp8.yaml",
    ("int8", "bf16"): "int8.yaml",
}
"""The YAML that quantises a 16-bit checkpoint on loading, by weights and matmuls (srt/utils/quantization/configs)."""
KINDS = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bf16": "bf16"}
QUIET = HARMLESS | frozenset(TERMS.lists["harmless"])


def recognises(source: Source) -> bool:
    return source.command("sgl_jax.launch_server") is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a server, or of two pools of them."""
    table, servers = load_keys("sgl-jax"), list[ReadFlags]()
    for command in source.commands:
        if "sgl_jax.launch_server" in command.words:
            words = command.words[command.words.index("sgl_jax.launch_server") + 1 :]
            servers.append(read_flags(table, spelt_out(table, words)))
    roles = [str(one.take("--disaggregation-mode", "null")) for one in servers]
    main = next((one for one, role in zip(servers, roles, strict=True) if role != "prefill"), servers[0])
    pool = next((one for one, role in zip(servers, roles, strict=True) if role == "prefill" and one is not main), None)
    word = str(main.take("--model-path", ""))
    name = given.model or model_named(
        word, str(main.values.get("--served-model-name", "")), str(source.kept.get("model", ""))
    )
    if not name or name.startswith("$"):
        raise needs("a model", "it by --model", source)
    model, notes = load_model(name), list[str]()
    chip = _chip(source, given)
    plan = replace(_degrees(main, model, chip), **_formats(main, chip, model, word))
    given = of_chips(given, plan.chips)
    said: dict[str, Any] = {"launch": launch_read(source, given, "sgl-jax", plan, name, **_limits(main, plan))}
    if drafts := drafts_read(main, source, notes):
        said["speculation"] = drafts
    piece = slice_given(source, given, plan.chips)
    if pool is not None:
        said["prefill"] = _pool(pool, source, model, piece, copies_of(servers, roles, "prefill"))
        said["replicas"] = int(source.kept.get("replicas", 0) or copies_of(servers, roles, "decode"))
    if pool is None and (half := half_of_pair(roles[servers.index(main)], source)):
        notes += half
        said |= {"traffic": {"output": 1}} if "prefill" in roles else {}
    length = main.values.get("--context-length")
    notes += beyond_context("--context-length", length, model, "what it answers beyond that is not to be relied on")
    file = serving_file(source, given, plan, name, "sgl-jax", **said)
    ignored, unplanned = left_over(main.values, QUIET)
    return with_slice(
        Imported("sgl-jax", table.version, file, tuple(notes), ignored, unplanned, tuple(main.unknown)), piece
    )


def _chip(source: Source, given: Given) -> Chip:
    """The chip, whose devices `--tp-size` counts; the one of its quick start where none is said."""
    text = given.slice or str(source.kept.get("slice", ""))
    return parse_target(text)[0] if text else load_chip("v6e")


def _degrees(read: ReadFlags, model: Transformer, chip: Chip) -> ServingPlan:
    devices, data, dealt = (
        whole(read, "--tensor-parallel-size"),
        whole(read, "--data-parallel-size"),
        whole(read, "--ep-size"),
    )
    if devices % chip.devices:
        raise TERMS.wrong("devices_of_chips", devices=devices, chip=chip)
    world = devices // chip.devices
    if world % data:
        raise InputError(f"--dp-size is {data}, which does not divide the {world} chips of --tp-size {devices}.")
    if devices % dealt:
        raise TERMS.wrong("dealt_over_devices", dealt=dealt, devices=devices)
    ways = world if dealt == devices else min(dealt, world)
    return ServingPlan(world // data, data, ways if divisible(model).experts else 1)


def _formats(read: ReadFlags, chip: Chip, model: Transformer, word: str) -> dict[str, str]:
    config = str(read.take("--quantization-config-path", "")).rpartition("/")[2]
    if config and config not in ONLINE.values():  # one made for a model: by the format that its name begins with
        config = "int8_w8a8.yaml" if config.startswith("int8") else "fp8_w8a8.yaml" if config.startswith("fp8") else ""
    found = formats_read("sgl-jax", chip, model, word, config, ONLINE, False)
    read.take("--dtype")
    cache = str(read.take("--kv-cache-dtype", "auto"))
    if cache != "auto":
        if cache not in KINDS:
            raise InputError(f"--kv-cache-dtype is {shorten(cache)}; sgl-jax has auto, {', '.join(KINDS)}.")
        found["kv"] = KINDS[cache]
    return found


def _limits(read: ReadFlags, plan: ServingPlan) -> dict[str, float | None]:
    seqs = whole(read, "--max-running-requests", 0, 0)
    chunk, most = whole(read, "--chunked-prefill-size", 0, -1), whole(read, "--max-prefill-tokens", 0, 0)
    share = read.take("--mem-fraction-static")
    budget = chunk if chunk > 0 else (most or 16384) if chunk == -1 else 0
    return {
        "max_seqs": max(seqs // plan.data, 1) if seqs else None,
        "token_budget": budget or None,
        "memory_fraction": None if share is None else fraction(share, "--mem-fraction-static"),
    }


def _pool(read: ReadFlags, source: Source, model: Transformer, piece: Slice | None, copies: int) -> dict[str, Any]:
    """The servers that prefill."""
    chip = piece.chip if piece is not None else load_chip("v6e")
    plan = replace(_degrees(read, model, chip), **_formats(read, chip, model, str(read.take("--model-path", ""))))
    kept = source.kept.get("prefill", {})
    same = kept.get("slice", "") if str(kept.get("plan", "")) == str(plan) else ""
    own = str(piece) if piece is not None and piece.chips == plan.chips else ""
    return {"plan": str(plan), "slice": same or own, "replicas": kept.get("replicas", copies)}
