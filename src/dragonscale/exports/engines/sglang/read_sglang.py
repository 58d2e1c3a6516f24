"""Reading SGLang: `python -m sglang.launch_server …`, `sglang serve MODEL …`, in a script or pasted, with the YAML that
`--config` names, or such a YAML alone; two commands of which one prefills and one decodes are two pools.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines import checkpoints
from dragonscale.exports.engines.sglang.write_sglang import online_words
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import KeyTable, ReadFlags, load_keys, read_flags, truth
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.terms import load_terms
from dragonscale.models import load_model
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_slice
from dragonscale.serving.engine.checkpoint import stored_in
from dragonscale.serving.engine.legality import WIDE
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

TERMS = load_terms("sglang")

MOST_COUNT = 999_999_999
DTYPES = TERMS.tables["dtypes"]
CALLED = TERMS.tables["methods"]


def recognises(source: Source) -> bool:
    if _commands(source):
        return True
    table = source.table
    if table is None or not {"model-path", "model_path"} & set(table):
        return False
    return _table().mostly([f"--{str(name).replace('_', '-')}" for name in table])


def _table() -> KeyTable:
    return load_keys("sglang")


def _commands(source: Source) -> list[list[str]]:
    """The words after each command that starts a server."""
    return source.started("sglang serve", "sglang.launch_server", "sglang.srt.launch_server")


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
        return [read_flags(keys, _flags_of(source.table or {}, keys), MOST_COUNT)]
    found: list[ReadFlags] = []
    for words in _commands(source):
        read = read_flags(keys, spelt_out(keys, words), MOST_COUNT)
        if named := read.take("--config"):
            beside = source.beside(str(named))
            if beside is None or beside.table is None:
                raise TERMS.wrong("config_beside", file=shorten(str(named)))
            read.under(read_flags(keys, _flags_of(beside.table, keys)))
        found.append(read)
    return found


@dataclass(frozen=True)
class Servers:
    """The flags of each server, and the pool that it is of. The plan's is the first that does not only prefill."""

    flags: list[ReadFlags]
    roles: list[str]

    @staticmethod
    def of(flags: list[ReadFlags]) -> "Servers":
        return Servers(flags, [str(one.take("--disaggregation-mode", "null")) for one in flags])

    @property
    def main(self) -> ReadFlags:
        return next((own for own, role in zip(self.flags, self.roles, strict=True) if role != "prefill"), self.flags[0])

    @property
    def pool(self) -> ReadFlags | None:
        """The first server that prefills for the others."""
        pairs = zip(self.flags, self.roles, strict=True)
        return next((own for own, role in pairs if role == "prefill" and own is not self.main), None)

    @property
    def role(self) -> str:
        return self.roles[self.flags.index(self.main)]

    def copies(self, role: str) -> int:
        """Servers of a role: a command for a host other than the first is part of one."""
        ranks = [str(own.values.get("--node-rank", "0")) for own in self.flags]
        leads = [rank in ("0", "") or "$" in rank for rank in ranks]
        return sum(own == role and lead for own, lead in zip(self.roles, leads, strict=True)) or 1

    def model(self, word: str, source: Source, given: Given) -> str:
        """The model of a checkpoint that the command names by a word."""
        clients, kept = str(self.main.values.get("--served-model-name", "")), source.kept_word("model")
        name = given.model or model_named(word, clients, kept)
        if not name or name.startswith("$"):
            raise source.needs("a model", "it by --model")
        return name


def read(source: Source, given: Given) -> Imported:
    """The plan of a server, or of two pools of them."""
    servers, notes = Servers.of(_said(source)), list[str]()
    main, pool = servers.main, servers.pool
    word = str(main.take("--model-path", "") or (main.words[0] if main.words else ""))
    name = servers.model(word, source, given)
    model, exchanged = load_model(name), _exchanged(main)
    plan, replicas = _degrees(main, model, exchanged)
    engine = source.kept_word("engine").partition(",")[0] or _engine(exchanged, plan)
    piece = _of_one(slice_given(source, given, plan.chips), plan.chips, replicas)
    plan = replace(plan, **_formats(main, engine, piece.chip if piece else None, model, word))
    limits, drafts, prefill = limits_read(main, plan, plan.data), drafts_read(main, source, notes), None
    if pool is not None:
        prefill = _pool(pool, source, engine, model, piece, servers.copies("prefill"))
        replicas = int(source.kept.get("replicas", 0) or servers.copies("decode"))
    main.unknown = [flag for flag in main.unknown if flag != "--model-type"]
    length, eager = main.values.get("--context-length"), bool(main.take("--disable-cuda-graph", False))
    said: dict[str, Any] = {"drafts": drafts, "prefill": prefill, "replicas": replicas if replicas > 1 else 0}
    said |= {
        "later": checkpoints.beyond_context("--context-length", length, model, TERMS.say("too_long")),
        "role": servers.role,
    }
    how = (source, given, plan, name, engine, main, limits)
    return checkpoints.engine_import("sglang", *how, **said, notes=notes, eager=eager, piece=piece, length=length)


def _engine(exchanged: bool, plan: ServingPlan) -> str:
    return "sglang-ep" if exchanged and plan.is_wide else "sglang"


def _exchanged(read: ReadFlags) -> bool:
    return str(read.take("--moe-a2a-backend", "none")) != "none"


def model_named(word: str, clients: str, kept: str) -> str:
    """The model of a checkpoint by its name, by that which clients use, or by the header of an export."""
    names = (word, clients, word.rstrip("/").rpartition("/")[2])
    found = next((checkpoints.plain_name(one) for one in names if is_preset(checkpoints.plain_name(one))), "")
    if kept and (not found or preset_named(read_asked(kept).text) == found or hub_id(kept) in (word, clients)):
        return kept
    return found or checkpoints.plain_name(word)


def _of_one(piece: Slice | None, chips: int, replicas: int) -> Slice | None:
    """The slice of one replica, where the one that is given is that of a server with several."""
    if piece is not None and replicas > 1 and piece.chips == chips * replicas:
        return parse_slice(f"{str(piece).partition(':')[0]}:{chips}")
    return piece


def _degrees(read: ReadFlags, model: Transformer, exchanged: bool) -> tuple[ServingPlan, int]:
    """The degrees of a server, and its replicas of the whole model (`--dp-size` without attention data parallelism)."""
    world, pipe, ways = read.whole("--tp-size"), read.whole("--pp-size"), read.whole("--dcp-size")
    data, replicas = read.whole("--attn-dp-size"), read.whole("--dp-size")
    if read.take("--enable-dp-attention", False):
        data, replicas = (max(data, replicas), 1)
    dealt = read.whole("--ep-size")
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
    return checkpoints.scheme_of(word).upper() not in ("", "BF16", "FP16")


def _formats(read: ReadFlags, engine: str, chip: Chip | None, model: Transformer, word: str) -> dict[str, str]:
    """Formats by the checkpoint's name, `--dtype`, `--quantization` and `--kv-cache-dtype`."""
    method = str(read.take("--quantization", "")).lower()
    words = online_words(chip or load_chip("h100"))
    online = method if method in words.values() and stored_in(model) in WIDE and not _narrow(word) else ""
    if not online and method in CALLED and not _narrow(word) and stored_in(model) in WIDE:
        word = f"{word}-{CALLED[method]}"
    found = checkpoints.formats_read(engine, chip, model, word, online, words, False)
    said = str(read.take("--dtype", "auto"))
    wide = ({full: short for short, full in DTYPES.items()} | {"half": "fp16"}).get(said, "")
    if wide:
        found = {name: wide if value in DTYPES else value for name, value in found.items()}
    cache = str(read.take("--kv-cache-dtype", "auto"))
    kinds = {full: short for short, full in TERMS.tables["caches"].items()} | TERMS.tables["caches_read"]
    if cache != "auto":
        if cache not in kinds:
            raise InputError(f"--kv-cache-dtype is {shorten(cache)}; the planner has auto, {', '.join(kinds)}.")
        found["kv"] = kinds[cache]
    return found


def limits_read(read: ReadFlags, plan: ServingPlan, dealt: int) -> dict[str, float | None]:
    """The limits of one replica of the attention; a chunk of prompts is `dealt` over so many."""
    seqs = read.whole("--max-running-requests", 0, 0)
    chunk, most = read.whole("--chunked-prefill-size", 0, -1), read.whole("--max-prefill-tokens", 0, 0)
    budget = chunk // dealt if chunk > 0 else (most or 16384) if chunk == -1 else 0
    return {
        "max_seqs": max(seqs // plan.data, 1) if seqs else None,
        "token_budget": budget or None,
        "memory_fraction": read.share("--mem-fraction-static"),
    }


def drafts_read(read: ReadFlags, source: Source, notes: list[str]) -> dict[str, Any]:
    """What is drafted."""
    algorithm = str(read.take("--speculative-algorithm", "")).upper()
    steps, tokens = read.whole("--speculative-num-steps", 0, 0), read.whole("--speculative-num-draft-tokens", 0, 0)
    width, path = read.whole("--speculative-eagle-topk", 1), str(read.take("--speculative-draft-model-path", ""))
    if not algorithm:
        return {}
    count = steps or max(tokens - 1, 0) or 3
    draft = preset_named(path) if algorithm == "STANDALONE" else ""
    if width > 1:
        notes.append(f"Drafts are a tree of {tokens} tokens; the planner counts the {count} steps of one branch.")
    return checkpoints.drafts_kept(source, count, draft, notes)


def _pool(
    read: ReadFlags, source: Source, engine: str, model: Transformer, piece: Slice | None, copies: int
) -> dict[str, Any]:
    """The servers that prefill."""
    word = str(read.take("--model-path", ""))
    exchanged = _exchanged(read)
    plan, _ = _degrees(read, model, exchanged)
    plan = replace(plan, **_formats(read, engine, piece.chip if piece else None, model, word))
    prefill_engine = _engine(exchanged, plan)
    return checkpoints.pool_read(source, plan, piece, copies, prefill_engine if prefill_engine != engine else "")
