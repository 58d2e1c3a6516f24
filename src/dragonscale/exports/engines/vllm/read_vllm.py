"""The plan that a `vllm serve` command says: pasted, in a script, in a `docker run`, or as the YAML of its `--config`.

Of several commands the one that decodes is the plan's, and one that prefills its pool. Options that change nothing that
is planned (ports, logging, parsers of tool calls) are listed as ignored; those that would change something as
unplanned.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.errors import shorten
from dragonscale.exports.engines.limits import beyond_context, drafted_note, engine_import, pool_read
from dragonscale.exports.engines.schemes import formats_read, plain_name
from dragonscale.exports.engines.vllm.flags import ATTENTION_LAYERS, decode_budget, mixed_budget, online_words
from dragonscale.exports.engines.vllm.vllm_words import (
    is_config,
    is_tpu,
    read_words,
    serve_commands,
    table_words,
    tokens,
    whole,
)
from dragonscale.exports.flags import ReadFlags
from dragonscale.exports.imported import Given, Imported, needs, slice_given
from dragonscale.exports.model_names import preset_named
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import fraction
from dragonscale.exports.values import whole as plain_whole
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import architecture
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("vllm")

CACHES = TERMS.tables["caches_read"]
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
ONLINE = TERMS.tables["online_read"]
MOST_DRAFTS = 10_000
EP_BACKENDS = ("deepep", "mori", "nixl_ep", "flashinfer", "moonep", "pplx")


def recognises(source: Source) -> bool:
    return (bool(serve_commands(source)) or is_config(source)) and not is_tpu(source)


def read(source: Source, given: Given) -> Imported:
    """The plan of a command."""
    found = [read_words(command.words, source) for command in serve_commands(source)]
    if not found:
        if source.table is None:  # a pod of llm-d's or Dynamo's that starts something else
            raise needs("what vLLM is started with", "the manifest with its `vllm serve`", source)
        found = [read_words(table_words(source.table), source)]
    decodes = next((one for one in found if _role(one) != "kv_producer"), found[0])
    prefills = next((one for one in found if _role(one) == "kv_producer" and one is not decodes), None)
    return _imported(source, given, decodes, prefills)


def _role(read: ReadFlags) -> str:
    said = read.values.get("--kv-transfer-config")
    return str(said.get("kv_role", "")) if isinstance(said, Mapping) else ""


def model_read(read: ReadFlags, source: Source, given: Given) -> tuple[str, str]:
    """The model, and the checkpoint as the command names it."""
    words = [word for word in read.words if not word.startswith("$")]
    named = str(words[0] if words else read.values.pop("--model", ""))
    read.values.pop("--model", None)
    served = read.values.get("--served-model-name")
    known = plain_name(named)
    if (known == named or named.startswith("./")) and isinstance(served, list) and served:
        known = preset_named(served[0]) if is_preset(served[0]) else known
    kept = str(source.kept.get("model", ""))
    changed = read.values.pop("--hf-overrides", None)
    if isinstance(changed, Mapping) and known != named:
        known += "?" + "&".join(f"{key}={value}" for key, value in changed.items())
    if kept and (kept == named or plain_name(kept.partition("?")[0]) == known.partition("?")[0]):
        known = kept if "?" not in known else known
    model = given.model or known
    if not model or model.startswith("$"):
        raise needs("the model", "--model", source)
    return model, named


def _imported(source: Source, given: Given, read: ReadFlags, prefills: ReadFlags | None) -> Imported:
    name, checkpoint = model_read(read, source, given)
    model = load_model(name)
    plan, replicas = plan_read(read, model, source, given, checkpoint)
    piece, kept = slice_given(source, given, plan.chips), str(source.kept.get("engine", ""))
    engine = kept if kept.startswith("vllm") else "vllm-ep" if plan.is_wide and _is_ep(read) else "vllm"
    limits = limits_read(read)
    drafts, notes = drafts_read(read, source)
    if _is_decode_budget(read, limits, drafts):
        limits["token_budget"] = None
    prefill = None if prefills is None else _pool_read(prefills, source, given, model, piece)
    if piece is None and not source.kept:
        notes.append(f"The plan is for {plan.chips} chips; say which by --on.")
    if length := read.values.get("--max-model-len"):
        if re.fullmatch(r"[0-9.]+[kmgKMG]", str(length)):
            length = tokens(ReadFlags({"--max-model-len": length}), "--max-model-len")
        notes.append(f"A request has at most {length} tokens.")
        notes += beyond_context("--max-model-len", length, model, TERMS.say("too_long"))
    eager = bool(read.values.pop("--enforce-eager", False))
    role = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(_role(read), "")
    said: dict[str, Any] = {"drafts": drafts, "prefill": prefill, "replicas": replicas if replicas > 1 else 0}
    said |= {"notes": notes, "later": [TERMS.say("eager")] if eager else [], "role": role, "eager": eager}
    how = (source, given, plan, name, engine, read, TERMS.lists["harmless"], limits)
    return engine_import("vllm", *how, **said, piece=piece)


def _is_decode_budget(read: ReadFlags, limits: Mapping[str, float | None], drafted: Mapping[str, Any]) -> bool:
    """Whether a token budget is that of low-latency kernels, which goes with the sequences."""
    seqs, backend = limits["max_seqs"], str(read.values.get("--all2all-backend", ""))
    if seqs is None or not backend.endswith("low_latency") or _role(read) == "kv_producer":
        return False
    budget = decode_budget if _role(read) == "kv_consumer" else mixed_budget
    return limits["token_budget"] == budget(int(seqs), int(drafted.get("drafts", 0)))


def _is_ep(read: ReadFlags) -> bool:
    backend = str(read.values.get("--all2all-backend", ""))
    return backend.startswith(EP_BACKENDS) or bool(read.values.get("--enable-eplb"))


def plan_read(
    read: ReadFlags, model: Transformer, source: Source, given: Given, checkpoint: str, engine: str = "vllm"
) -> tuple[ServingPlan, int]:
    """Degrees and formats; and replicas, which is what data parallelism of a model without experts is."""
    tensor, pipe = whole(read, "--tensor-parallel-size"), whole(read, "--pipeline-parallel-size")
    data, experts = whole(read, "--data-parallel-size"), bool(divisible(model).experts)
    dealt = bool(read.values.pop("--enable-expert-parallel", False)) and experts
    spread = "sequence" if whole(read, "--decode-context-parallel-size") > 1 else "copy"
    replicas, data = (1, data) if experts else (data, 1)
    plan = ServingPlan(tensor, data, data * tensor if dealt else 1, pipe=pipe, spread=spread)
    return replace(plan, **formats(read, model, source, given, checkpoint, engine, plan.chips)), replicas


def formats(
    read: ReadFlags, model: Transformer, source: Source, given: Given, checkpoint: str, engine: str, chips: int
) -> dict[str, str]:
    """Formats by the checkpoint's name, `--dtype`, `--quantization` and `--kv-cache-dtype`."""
    piece = slice_given(source, given, chips)
    chip = piece.chip if piece is not None else None
    words = online_words(architecture(chip) if chip is not None else "hopper")
    online = ONLINE.get(str(read.values.pop("--quantization", "")), "")
    said = read.values.pop("--quantization-config", None)
    wide = isinstance(said, Mapping) and ATTENTION_LAYERS in str(said.get("ignore", ""))
    found = formats_read(engine, chip, model, checkpoint, online if online in words.values() else "", words, wide)
    dtype = DTYPES.get(str(read.values.pop("--dtype", "auto")), "")
    return {**cast(found, dtype), **cache(read, found, dtype)}


def cast(found: Mapping[str, str], dtype: str) -> dict[str, str]:
    """Formats with their 16-bit ones as `--dtype` says."""
    return {name: dtype if dtype and value in DTYPES.values() else value for name, value in found.items()}


def cache(read: ReadFlags, found: Mapping[str, str], dtype: str) -> dict[str, str]:
    word = str(read.values.pop("--kv-cache-dtype", "auto"))
    if word == "auto":
        return {"kv": cast(found, dtype)["kv"]}
    if word not in CACHES:
        raise TERMS.wrong("cache_format", word=shorten(word), caches=", ".join(dict.fromkeys(CACHES.values())))
    return {"kv": CACHES[word]}


def limits_read(read: ReadFlags) -> dict[str, float | None]:
    """The limits that a command says."""
    share = read.values.pop("--gpu-memory-utilization", None)
    return {
        "max_seqs": whole(read, "--max-num-seqs", 0) or None,
        "token_budget": tokens(read, "--max-num-batched-tokens") or None,
        "memory_fraction": None if share is None else fraction(share, "--gpu-memory-utilization"),
    }


def drafts_read(read: ReadFlags, source: Source) -> tuple[dict[str, Any], list[str]]:
    """What is drafted; how often drafts are accepted is nothing that an engine is told."""
    said = read.values.pop("--speculative-config", None) or {
        key: read.values.pop(flag) for flag, key in TERMS.tables["drafts"].items() if flag in read.values
    }
    if not isinstance(said, Mapping) or not said:
        return {}, []
    count = plain_whole(said.get("num_speculative_tokens") or 1, "num_speculative_tokens", most=MOST_DRAFTS)
    method = str(said.get("method", ""))
    heads = method in ("mtp", "eagle", "eagle3", "medusa", "ngram", "suffix") or method.endswith("_mtp")
    draft = "" if heads else plain_name(str(said.get("model", "")))
    kept = source.kept.get("speculation", {})
    if not kept.get("acceptance"):
        return {}, [drafted_note(count, draft)]
    same = plain_name(kept.get("draft", "")) == draft
    return {**kept, "drafts": count, "draft": kept.get("draft", "") if same else draft}, []


def _pool_read(
    read: ReadFlags, source: Source, given: Given, model: Transformer, piece: Slice | None
) -> dict[str, Any]:
    """The pool that prefills."""
    named = next((word for word in read.words if not word.startswith("$")), "")
    plan, _ = plan_read(read, model, source, given, named)
    return pool_read(source, plan, str(piece).partition(":")[0] if piece is not None else "")
