"""Reading llama.cpp: a `llama-server` command, its model by `-hf user/name:type` or by the name of a file."""

import re
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.limits import engine_import
from dragonscale.exports.engines.llamacpp.gguf_names import kept_in, multiplied, read_gguf
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import Given, Imported, needs, slice_given
from dragonscale.exports.keys import load_keys
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import whole
from dragonscale.models import load_model
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("llamacpp")

SLOTS, BATCH = 4, 2048
"""Slots and tokens of an iteration that it takes where nothing is said."""
_CACHES = TERMS.tables["caches_read"]
MOST_GPUS, LONGEST_SPLIT = 128, 4096
_PRESETS = re.compile(r"--(gpt-oss-\w+)-default")


def recognises(source: Source) -> bool:
    return source.command("llama-server") is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a `llama-server` command."""
    command = source.command("llama-server")
    assert command is not None
    table = load_keys("llamacpp")
    start = next(place for place, one in enumerate(command.words) if one.endswith("llama-server"))
    flags = read_flags(table, _with_values(command.words[start + 1 :]))
    model, quant = _model(flags, source, given)
    cache = str(flags.take("--cache-type-k", "f16"))
    plan = _plan(flags, source, given, model, quant, cache)
    limits = {"max_seqs": _number(flags, "--parallel", SLOTS), "token_budget": _number(flags, "--batch-size", BATCH)}
    drafts, notes = _drafts(flags), (*_notes(flags, quant), *_cache_notes(cache))
    how = (source, given, plan, model, "generic", flags, TERMS.lists["harmless"], limits)
    return engine_import("llamacpp", *how, drafts=drafts, notes=notes)


def _with_values(words: list[str]) -> list[str]:
    """Words in which `-fa` has a value: it was a switch until 2025, and its own pages still show it as one."""
    found: list[str] = []
    for place, word in enumerate(words):
        found.append(word)
        value = "".join(words[place + 1 : place + 2])
        if word in ("-fa", "--flash-attn") and value not in ("on", "off", "auto", "1", "0"):
            found.append("on")
    return found


def _model(flags: ReadFlags, source: Source, given: Given) -> tuple[str, str]:
    """The model, and the GGUF type of its weights."""
    repo, file, named = (flags.take(name) or "" for name in ("--hf-repo", "--hf-file", "--model"))
    flags.take("--model-url")
    known = [(name, _PRESETS.fullmatch(name)) for name in flags.values]
    short = next((found[1] for _, found in known if found), "")
    model, quant = read_gguf(file or repo or named or short)
    if repo and file:
        model = read_gguf(repo)[0]
    if repo and not quant:
        quant = "MXFP4" if "gpt-oss" in model else "Q4_K_M"
    name = given.model or model or str(source.kept.get("model", ""))
    if not name:
        raise needs("a model", "it by --model", source)
    return name, quant


def _plan(flags: ReadFlags, source: Source, given: Given, model: str, quant: str, cache: str) -> ServingPlan:
    mode, parts = flags.take("--split-mode", "layer"), str(flags.values.get("--tensor-split", ""))
    if mode not in ("none", "layer", "row", "tensor"):
        raise InputError(f"--split-mode is {shorten(mode)}; llama.cpp takes none, layer, row or tensor.")
    counted = _shares(parts)
    piece = slice_given(source, given, 1 if mode == "none" else counted or 1)
    chips = 1 if mode == "none" else counted or (piece.chips if piece else 1)
    loaded = load_model(model)
    weights = kept_in(quant) or _near(quant)
    chip = piece.chip if piece else None
    compute, attention = multiplied(chip, loaded, weights) if chip is not None else ("bf16", "")
    flags.take("--cache-type-v")
    if cache not in _CACHES:
        raise InputError(f"--cache-type-k is {shorten(cache)}; llama.cpp takes {', '.join(_CACHES)}.")
    split = mode in ("row", "tensor")
    tensor, pipe = (chips, 1) if split else (1, chips)
    formats = {"weights": weights, "compute": compute, "attention": attention, "kv": _CACHES[cache]}
    return ServingPlan(tensor, pipe=pipe, **formats)


def _shares(text: str) -> int:
    """GPUs with a share of the model by `--tensor-split 3,1`."""
    shares = [one.strip() for one in re.split(r"[,/]", text[:LONGEST_SPLIT]) if one.strip()]
    if len(text) >= LONGEST_SPLIT or len(shares) > MOST_GPUS:
        raise InputError(f"--tensor-split is {shorten(text)}; it has a share for each of at most {MOST_GPUS} GPUs.")
    if not all(re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}", one) for one in shares):
        raise InputError(f"--tensor-split is {shorten(text)}; it is numbers such as 3,1, a share for each GPU.")
    return sum(float(one) > 0 for one in shares)


def _near(quant: str) -> str:
    """The planner's format nearest to a GGUF type that it does not have."""
    bits = re.search(r"Q(\d)", quant)
    return "int4" if bits and int(bits[1]) < 6 else "int8" if bits else "bf16"


def _notes(flags: ReadFlags, quant: str) -> tuple[str, ...]:
    found = []
    if quant and not kept_in(quant):
        found.append(f"{quant} is read as {_near(quant)}, the nearest format that the planner has.")
    layers = str(flags.take("--n-gpu-layers", "all"))
    if layers.isdecimal() and int(layers) < 99:
        found.append(TERMS.say("host_layers", layers=layers))
    return tuple(found)


def _cache_notes(cache: str) -> tuple[str, ...]:
    if cache in ("f16", "bf16", "q8_0"):
        return ()
    return (f"A cache in {cache} is read as {_CACHES[cache]}, the nearest format that the planner has.",)


def _number(flags: ReadFlags, name: str, default: int) -> int:
    text = str(flags.take(name, default))
    if text in ("-1", "auto"):
        return default
    return whole(text, name, most=9_999_999)


def _drafts(flags: ReadFlags) -> dict[str, Any]:
    kind = str(flags.take("--spec-type", ""))
    model = flags.take("--spec-draft-model") or flags.take("--spec-draft-hf") or ""
    count = _number(flags, "--spec-draft-n-max", 3)
    if kind in ("", "none") and not model:
        return {}
    draft = read_gguf(str(model))[0] if model and kind in ("", "draft-simple") else ""
    return {"drafts": count, "draft": draft}
