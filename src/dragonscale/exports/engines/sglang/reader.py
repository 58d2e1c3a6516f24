"""Reading SGLang: `python -m sglang.launch_server …`, `sglang serve MODEL …`, in a script or pasted, with the YAML that
`--config` names, or such a YAML alone; two commands of which one prefills and one decodes are two pools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.limits import beyond_context, drafted_note, half_of_pair, launch_read, with_graphs
from dragonscale.exports.engines.schemes import formats_read, plain_name, scheme_of
from dragonscale.exports.engines.sglang.words import CACHES, DTYPES, online_words
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import Given, Imported, left_over, needs, serving_file, slice_given, with_slice
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import fraction, truth
from dragonscale.exports.values import whole as plain_whole
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_slice
from dragonscale.serving.checkpoint import stored_in
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import WIDE
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("sglang")

CALLED = TERMS.tables["methods"]
HARMLESS = frozenset(TERMS.lists["harmless"])


def recognises(source: Source) -> bool:
    if _commands(source):
        return True
    table = source.table
    return (
        table is not None
        and any(name in table for name in ("model-path", "model_path"))
        and _table().mostly([f"--{str(name).replace('_', '-')}" for name in table])
    )


def _table() -> KeyTable:
    return load_keys("sglang")


def _commands(source: Source) -> list[list[str]]:
    """The words after each command that starts a server."""
    found: list[list[str]] = []
    for command in source.commands:
        words = command.words
        for at, word in enumerate(words):
            if word in ("sglang.launch_server", "sglang.srt.launch_server") or (
                word == "sglang" and words[at + 1 : at + 2] == ["serve"]
            ):
                found.append(words[at + 1 + (word == "sglang") :])
                break
    return found


def _flags_of(table: Mapping[str, Any], keys: KeyTable) -> list[str]:
    """A YAML of `--config` as the flags that SGLang makes of it."""
    words: list[str] = []
    for name, value in table.items():
        flag = f"--{str(name).replace('_', '-')}"
        key = keys.known(flag)
        if key is None:
            words.append(f"{flag}=")  # listed as unknown
        elif isinstance(value, bool) or key.type == "flag":
            words += [flag] if truth(value, str(name)) else []
        else:
            words += [flag, *map(str, value if isinstance(value, list) else [value])]
    return words


def spelt_out(keys: KeyTable, words: list[str]) -> list[str]:
    """Words with flags in full: Python's parser takes any beginning that only one flag has (`--tp 8`).

    >>> spelt_out(load_keys("sglang"), ["--tp", "8", "--mem-fraction=0.8", "--enable-dp-attention", "--e", "1"])
    ['--tp-size', '8', '--mem-fraction-static=0.8', '--enable-dp-attention', '--e', '1']
    """
    found: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name if not name.startswith("--") or keys.known(name) else name.replace("_", "-")
        if name.startswith("--") and keys.known(name) is None:
            longer = {
                first for first, key in keys.keys.items() if any(one.startswith(name) for one in (first, *key.also))
            }
            name = longer.pop() if len(longer) == 1 else f"{name}-size" if keys.known(f"{name}-size") else name
        found.append(f"{name}{equals}{value}")
    return found


def _said(source: Source) -> list[ReadFlags]:
    """The flags of each server; a YAML that `--config` names is read before them."""
    keys = _table()
    if not _commands(source):
        return [read_flags(keys, _flags_of(source.table or {}, keys))]
    found: list[ReadFlags] = []
    for words in _commands(source):
        read = read_flags(keys, spelt_out(keys, words))
        if named := read.take("--config"):
            beside = source.beside(str(named))
            if beside is None or beside.table is None:
                raise TERMS.wrong("config_beside", file=shorten(str(named)))
            own = read_flags(keys, _flags_of(beside.table, keys))
            read.unknown += [one for one in own.unknown if one not in read.unknown]
            read.values = {**own.values, **read.values}
        found.append(read)
    return found


def read(source: Source, given: Given) -> Imported:
    """The plan of a server, or of two pools of them."""
    servers = _said(source)
    roles = [str(one.take("--disaggregation-mode", "null")) for one in servers]
    main = next((one for one, role in zip(servers, roles, strict=True) if role != "prefill"), servers[0])
    pool = next((one for one, role in zip(servers, roles, strict=True) if role == "prefill" and one is not main), None)
    word = str(main.take("--model-path", "") or (main.words[0] if main.words else ""))
    name = given.model or model_named(
        word, str(main.values.get("--served-model-name", "")), str(source.kept.get("model", ""))
    )
    if not name or name.startswith("$"):
        raise needs("a model", "it by --model", source)
    model = load_model(name)
    exchanged = str(main.take("--moe-a2a-backend", "none")) != "none"
    plan, replicas = _degrees(main, model, exchanged)
    engine = str(source.kept.get("engine", "")).partition(",")[0] or (
        "sglang-ep" if exchanged and plan.is_wide else "sglang"
    )
    piece = _of_one(slice_given(source, given, plan.chips), plan.chips, replicas)
    plan = replace(plan, **_formats(main, engine, piece.chip if piece else None, model, word))
    said: dict[str, Any] = {"launch": launch_read(source, given, engine, plan, name, **_limits(main, plan))}
    notes: list[str] = []
    if drafts := drafts_read(main, source, notes):
        said["speculation"] = drafts
    if pool is not None:
        said["prefill"] = _pool(pool, source, engine, model, piece, copies_of(servers, roles, "prefill"))
        replicas = int(source.kept.get("replicas", 0) or copies_of(servers, roles, "decode"))
    if replicas > 1:
        said["replicas"] = replicas
    if pool is None and (half := half_of_pair(roles[servers.index(main)], source)):
        notes += half
        said |= {"traffic": {"output": 1}} if "prefill" in roles else {}
    refuses = "SGLang refuses that unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 is set"
    notes += beyond_context("--context-length", main.values.get("--context-length"), model, refuses)
    eager = bool(main.take("--disable-cuda-graph", False))
    file = with_graphs(serving_file(source, given, plan, name, engine, **said), eager)
    ignored, unplanned = left_over(main.values, HARMLESS)
    unknown = tuple(one for one in main.unknown if one != "--model-type")
    found = Imported("sglang", _table().version, file, tuple(notes), ignored, unplanned, unknown)
    return with_slice(found, piece) if given.slice or piece is not None else found


def model_named(word: str, clients: str, kept: str) -> str:
    """The model of a checkpoint by its name, by that which clients use, or by the header of an export."""
    names = (word, clients, word.rstrip("/").rpartition("/")[2])
    found = next((plain_name(one) for one in names if is_preset(plain_name(one))), "")
    if kept and (not found or preset_named(kept.partition("?")[0]) == found or hub_id(kept) in (word, clients)):
        return kept
    return found or plain_name(word)


def _of_one(piece: Slice | None, chips: int, replicas: int) -> Slice | None:
    """The slice of one replica, where the one that is given is that of a server with several."""
    if piece is not None and replicas > 1 and piece.chips == chips * replicas:
        return parse_slice(f"{str(piece).partition(':')[0]}:{chips}")
    return piece


def whole(read: ReadFlags, name: str, default: int = 1, least: int = 1) -> int:
    """A flag's whole number."""
    return plain_whole(read.take(name, default), name, least, 999_999_999)


def _degrees(read: ReadFlags, model: Transformer, exchanged: bool) -> tuple[ServingPlan, int]:
    """The degrees of a server, and its replicas of the whole model (`--dp-size` without attention data parallelism)."""
    world, pipe, ways = whole(read, "--tp-size"), whole(read, "--pp-size"), whole(read, "--dcp-size")
    data, replicas = whole(read, "--attn-dp-size"), whole(read, "--dp-size")
    if read.take("--enable-dp-attention", False):
        data, replicas = (max(data, replicas), 1)
    dealt = whole(read, "--ep-size")
    dealt = world if exchanged else dealt
    if world % data:
        raise TERMS.wrong("attention_ranks", data=data, world=world)
    if world % dealt:
        raise TERMS.wrong("dealt_over_ranks", dealt=dealt, world=world)
    mixed = bool(divisible(model).experts)
    spread = "sequence" if ways > 1 else "copy"
    return ServingPlan(world // data, data, dealt if mixed else 1, pipe=pipe, spread=spread), replicas


def _narrow(word: str) -> bool:
    """Whether a checkpoint's name says a narrow format; `-BF16` at its end is not one."""
    return scheme_of(word).upper() not in ("", "BF16", "FP16")


def _formats(read: ReadFlags, engine: str, chip: Chip | None, model: Transformer, word: str) -> dict[str, str]:
    """Formats by the checkpoint's name, `--dtype`, `--quantization` and `--kv-cache-dtype`."""
    method = str(read.take("--quantization", "")).lower()
    words = online_words(chip or load_chip("h100"))
    online = method if method in words.values() and stored_in(model) in WIDE and not _narrow(word) else ""
    if not online and method in CALLED and not _narrow(word) and stored_in(model) in WIDE:
        word = f"{word}-{CALLED[method]}"
    found = formats_read(engine, chip, model, word, online, words, False)
    said = str(read.take("--dtype", "auto"))
    wide = {"half": "fp16", "float": "", "float32": "", **{full: short for short, full in DTYPES.items()}}.get(said, "")
    if wide:
        found = {name: wide if value in DTYPES else value for name, value in found.items()}
    cache = str(read.take("--kv-cache-dtype", "auto"))
    kinds = {full: short for short, full in CACHES.items()} | {
        "fp8_e5m2": "fp8",
        "bf16": "bf16",
        "bfloat16": "bf16",
        "fp4_mx_block16": "nvfp4",
    }
    if cache != "auto":
        if cache not in kinds:
            raise InputError(f"--kv-cache-dtype is {shorten(cache)}; the planner has auto, {', '.join(kinds)}.")
        found["kv"] = kinds[cache]
    return found


def _limits(read: ReadFlags, plan: ServingPlan) -> dict[str, float | None]:
    """The limits of one replica of the attention."""
    seqs = whole(read, "--max-running-requests", 0, 0)
    chunk, most = whole(read, "--chunked-prefill-size", 0, -1), whole(read, "--max-prefill-tokens", 0, 0)
    share = read.take("--mem-fraction-static")
    budget = chunk // plan.data if chunk > 0 else (most or 16384) if chunk == -1 else 0
    return {
        "max_seqs": max(seqs // plan.data, 1) if seqs else None,
        "token_budget": budget or None,
        "memory_fraction": None if share is None else fraction(share, "--mem-fraction-static"),
    }


def drafts_read(read: ReadFlags, source: Source, notes: list[str]) -> dict[str, Any]:
    """What is drafted; how often drafts are accepted is nothing that an engine is told."""
    algorithm = str(read.take("--speculative-algorithm", "")).upper()
    steps, tokens = whole(read, "--speculative-num-steps", 0, 0), whole(read, "--speculative-num-draft-tokens", 0, 0)
    width, path = whole(read, "--speculative-eagle-topk", 1), str(read.take("--speculative-draft-model-path", ""))
    if not algorithm:
        return {}
    count = steps or max(tokens - 1, 0) or 3
    draft = preset_named(path) if algorithm == "STANDALONE" else ""
    if width > 1:
        notes.append(f"Drafts are a tree of {tokens} tokens; the planner counts the {count} steps of one branch.")
    kept = source.kept.get("speculation", {})
    if not kept.get("acceptance"):
        notes.append(drafted_note(count, draft))
        return {}
    same = preset_named(str(kept.get("draft", ""))) == draft
    return {**kept, "drafts": count, "draft": kept.get("draft", "") if same else draft}


def copies_of(servers: Sequence[ReadFlags], roles: Sequence[str], role: str) -> int:
    """Servers of a role: a command for a host other than the first is part of one."""
    first = [
        one.values.get("--node-rank", "0") in ("0", "") or "$" in str(one.values.get("--node-rank")) for one in servers
    ]
    return sum(own == role and leads for own, leads in zip(roles, first, strict=True)) or 1


def _pool(
    read: ReadFlags, source: Source, engine: str, model: Transformer, piece: Slice | None, copies: int
) -> dict[str, Any]:
    """The servers that prefill."""
    word = str(read.take("--model-path", ""))
    exchanged = str(read.take("--moe-a2a-backend", "none")) != "none"
    plan, _ = _degrees(read, model, exchanged)
    plan = replace(plan, **_formats(read, engine, piece.chip if piece else None, model, word))
    kept = source.kept.get("prefill", {})
    chip = str(piece).partition(":")[0] if piece is not None else ""
    same = kept.get("slice") if str(kept.get("plan", "")) == str(plan) else ""
    where = same or (f"{chip}:{plan.chips}" if chip else "")
    return {"plan": str(plan), "slice": where, "replicas": kept.get("replicas", copies)}
