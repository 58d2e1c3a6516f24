"""The plan that a `vllm serve` command says: pasted, in a script, in a `docker run`, or as the YAML of its `--config`.

Words are read as people write them: JSON in options, dotted keys, sizes such as 8k. Of several commands the one that
decodes is the plan's, and one that prefills its pool. Options that change nothing that is planned (ports, logging,
parsers of tool calls) are listed as ignored; those that would change something as unplanned.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines import checkpoints
from dragonscale.exports.engines.vllm.write_vllm import ATTENTION_LAYERS, decode_budget, mixed_budget, online_words
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import ReadFlags, load_keys, read_flags, truth, whole
from dragonscale.exports.model_names import preset_named
from dragonscale.exports.terms import load_terms
from dragonscale.models import load_model
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice
from dragonscale.serving.engine.legality import architecture
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

MOST_COUNT = 999_999_999


def serve_commands(source: Source) -> list[list[str]]:
    """The words of each command that starts vLLM's server, from the model on."""
    return source.started("vllm serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")


def is_config(source: Source) -> bool:
    """Whether a table is the YAML of `--config`: mostly names of vLLM, a model or a size among them."""
    if not source.table:
        return False
    table = load_keys("vllm")
    names = [f"--{str(name).replace('_', '-')}" for name in source.table]
    others = [name for name in source.table if load_keys("trtllm").known(str(name))]
    if any(table.known(f"--{str(name).replace('_', '-')}") is None for name in others):
        return False  # TensorRT-LLM's YAML, which has many names in common
    return table.mostly(names) and bool({"--model", "--tensor-parallel-size", "--max-num-seqs"} & {*names})


def read_words(words: Sequence[str], source: Source) -> ReadFlags:
    """The flags of a command, those of its `--config` file under its own, JSON read and dotted keys joined."""
    table = load_keys("vllm")
    plain, dotted = _dotted(words)
    read = read_flags(table, plain, MOST_COUNT)
    if name := read.values.get("--config"):
        beside = source.beside(str(name))
        if beside is None or beside.table is None:
            missing = f"what --config {shorten(str(name))} holds"
            raise source.needs(missing, "the folder that has it, or the flags themselves")
        read.under(read_flags(table, table_words(beside.table)))
    for name, key in ((name, table.known(name)) for name in list(read.values)):
        if key is not None and key.type == "json" and isinstance(read.values[name], str):
            read.values[name] = _json(name, read.values[name])
    for name, inner in dotted.items():
        base = read.values.get(name)
        read.values[name] = {**(base if isinstance(base, Mapping) else {}), **inner}
    return read


def _dotted(words: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """`--speculative-config.method ngram` as keys of that option's JSON; the other words as they are."""
    rest: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        dotted = re.fullmatch(r"(--?[a-zA-Z][\w-]*)\.([\w.]+?)\+?(?:=(.*))?", word, re.DOTALL)
        if dotted is None:
            rest.append(word)
            continue
        key = load_keys("vllm").known(dotted[1]) or load_keys("vllm").known(dotted[1].replace("_", "-"))
        text = dotted[3]
        if text is None and at < len(words):
            text, at = words[at], at + 1
        try:
            value = json.loads(text or "")
        except ValueError:
            value = text
        found.setdefault(key.name if key is not None else dotted[1], {})[dotted[2]] = value
    return rest, found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(f"{name} is {shorten(text)}, which is no JSON.") from None


def table_words(table: Mapping[str, Any]) -> list[str]:
    """A config's table as the words that it stands for."""
    words: list[str] = []
    for name, value in table.items():
        flag = f"--{str(name).replace('_', '-')}"
        key = load_keys("vllm").known(flag)
        if isinstance(value, bool) or (key is not None and key.type == "flag"):
            words.append(flag if truth(value, str(name)) else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]
    return words


def tokens(read: ReadFlags, name: str, default: int = 0) -> int:
    """A flag's number of tokens, which vLLM takes as 8k (1000) and 8K (1024) too.

    >>> tokens(ReadFlags({"--max-num-batched-tokens": "2.5k"}), "--max-num-batched-tokens")
    2500
    """
    value = read.values.get(name)
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([kmgKMG])", str(value).strip())
    if found is None:
        return read.whole(name, default)
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[found[2]]
    size = Fraction(found[1]) * scale
    if not 1 <= size <= MOST_COUNT:
        raise InputError(f"{name} is {shorten(str(value))}; it is from 1 to {MOST_COUNT:,} tokens.")
    read.values.pop(name)
    return int(size)


def is_tpu(source: Source) -> bool:
    """Whether a command is meant for TPUs: by its environment, its image, its connector, or what an export keeps."""
    if source.kept_word("engine"):
        return source.kept_word("engine").startswith("vllm-tpu")
    variables, marks = {name for command in source.commands for name in command.env}, load_terms("vllm-tpu").lists
    return bool({*marks["variables"]} & variables) or any(word in source.text for word in marks["marks"])


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
    found = [read_words(words, source) for words in serve_commands(source)]
    if not found:
        if source.table is None:  # a pod of llm-d's or Dynamo's that starts something else
            raise source.needs("what vLLM is started with", "the manifest with its `vllm serve`")
        found = [read_words(table_words(source.table), source)]
    return _imported(source, given, *pools_of(found))


def pools_of(found: Sequence[ReadFlags]) -> tuple[ReadFlags, ReadFlags | None]:
    """The server that decodes (or does both), and one that prefills for it."""
    decodes = next((one for one in found if role_of(one) != "kv_producer"), found[0])
    return decodes, next((one for one in found if role_of(one) == "kv_producer" and one is not decodes), None)


def role_of(read: ReadFlags) -> str:
    said = read.values.get("--kv-transfer-config")
    return str(said.get("kv_role", "")) if isinstance(said, Mapping) else ""


def model_read(read: ReadFlags, source: Source, given: Given) -> tuple[str, str]:
    """The model, and the checkpoint as the command names it."""
    words = [word for word in read.words if not word.startswith("$")]
    named = str(words[0] if words else read.values.pop("--model", ""))
    read.values.pop("--model", None)
    served = read.values.get("--served-model-name")
    known = checkpoints.plain_name(named)
    if (known == named or named.startswith("./")) and isinstance(served, list) and served:
        known = preset_named(served[0]) if is_preset(served[0]) else known
    kept = source.kept_word("model")
    changed = read.values.pop("--hf-overrides", None)
    if isinstance(changed, Mapping) and known != named:
        known += "?" + "&".join(f"{key}={value}" for key, value in changed.items())
    if kept and (kept == named or checkpoints.plain_name(read_asked(kept).text) == known.partition("?")[0]):
        known = kept if "?" not in known else known
    model = given.model or known
    if not model or model.startswith("$"):
        raise source.needs("the model", "--model")
    return model, named


def _imported(source: Source, given: Given, read: ReadFlags, prefills: ReadFlags | None) -> Imported:
    name, checkpoint = model_read(read, source, given)
    model = load_model(name)
    plan, replicas = plan_read(read, model, source, given, checkpoint)
    piece, kept = slice_given(source, given, plan.chips), source.kept_word("engine")
    engine = kept if kept.startswith("vllm") else _engine(read, plan)
    limits = limits_read(read)
    notes: list[str] = []
    drafts = drafts_read(read, source, notes)
    if _is_decode_budget(read, limits, drafts):
        limits["token_budget"] = None
    prefill = None if prefills is None else _pool_read(prefills, source, given, model, piece, engine)
    if piece is None and not source.kept:
        notes.append(f"The plan is for {plan.chips} chips; say which by --on.")
    length = read.values.get("--max-model-len")
    if length:
        if re.fullmatch(r"[0-9.]+[kmgKMG]", str(length)):
            length = tokens(ReadFlags({"--max-model-len": length}), "--max-model-len")
        if checkpoints.length_read(length):
            notes.append(f"A request has at most {length} tokens.")
        notes += checkpoints.beyond_context("--max-model-len", length, model, TERMS.say("too_long"))
    eager = bool(read.values.pop("--enforce-eager", False))
    role = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(role_of(read), "")
    said: dict[str, Any] = {"drafts": drafts, "prefill": prefill, "replicas": replicas if replicas > 1 else 0}
    said |= {"notes": notes, "later": [TERMS.say("eager")] if eager else [], "role": role, "eager": eager}
    how = (source, given, plan, name, engine, read, limits)
    return checkpoints.engine_import("vllm", *how, **said, piece=piece, length=length)


def _is_decode_budget(read: ReadFlags, limits: Mapping[str, float | None], drafted: Mapping[str, Any]) -> bool:
    """Whether a token budget is that of low-latency kernels, which goes with the sequences."""
    seqs, backend = limits["max_seqs"], str(read.values.get("--all2all-backend", ""))
    if seqs is None or not backend.endswith("low_latency") or role_of(read) == "kv_producer":
        return False
    budget = decode_budget if role_of(read) == "kv_consumer" else mixed_budget
    return limits["token_budget"] == budget(int(seqs), int(drafted.get("drafts", 0)))


def _engine(read: ReadFlags, plan: ServingPlan) -> str:
    return "vllm-ep" if plan.is_wide and _is_ep(read) else "vllm"


def _is_ep(read: ReadFlags) -> bool:
    backend = str(read.values.get("--all2all-backend", ""))
    return backend.startswith(EP_BACKENDS) or bool(read.values.get("--enable-eplb"))


def plan_read(
    read: ReadFlags, model: Transformer, source: Source, given: Given, checkpoint: str, engine: str = "vllm"
) -> tuple[ServingPlan, int]:
    """Degrees and formats; and replicas, which is what data parallelism of a model without experts is."""
    tensor, pipe = read.whole("--tensor-parallel-size"), read.whole("--pipeline-parallel-size")
    data, experts = read.whole("--data-parallel-size"), bool(divisible(model).experts)
    dealt = bool(read.values.pop("--enable-expert-parallel", False)) and experts
    spread = "sequence" if read.whole("--decode-context-parallel-size") > 1 else "copy"
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
    found = checkpoints.formats_read(
        engine, chip, model, checkpoint, online if online in words.values() else "", words, wide
    )
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
    return {
        "max_seqs": read.whole("--max-num-seqs", 0) or None,
        "token_budget": tokens(read, "--max-num-batched-tokens") or None,
        "memory_fraction": read.share("--gpu-memory-utilization"),
    }


def drafts_read(read: ReadFlags, source: Source, notes: list[str]) -> dict[str, Any]:
    """What is drafted."""
    said = read.values.pop("--speculative-config", None) or {
        key: read.values.pop(flag) for flag, key in TERMS.tables["drafts"].items() if flag in read.values
    }
    if not isinstance(said, Mapping) or not said:
        return {}
    count = whole(said.get("num_speculative_tokens") or 1, "num_speculative_tokens", most=MOST_DRAFTS)
    method = str(said.get("method", ""))
    heads = method in ("mtp", "eagle", "eagle3", "medusa", "ngram", "suffix") or method.endswith("_mtp")
    draft = "" if heads else checkpoints.plain_name(str(said.get("model", "")))
    return checkpoints.drafts_kept(source, count, draft, notes)


def _pool_read(
    read: ReadFlags, source: Source, given: Given, model: Transformer, piece: Slice | None, decode_engine: str
) -> dict[str, Any]:
    """The pool that prefills."""
    named = next((word for word in read.words if not word.startswith("$")), "")
    plan, _ = plan_read(read, model, source, given, named)
    engine = _engine(read, plan)
    return checkpoints.pool_read(source, plan, piece, engine=engine if engine != decode_engine else "")
