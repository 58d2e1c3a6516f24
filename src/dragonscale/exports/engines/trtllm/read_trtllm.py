"""Reading TensorRT-LLM: a `trtllm-serve` command with the YAML that it names (beside it, or written by the script
itself), that YAML alone, or the file of `trtllm-serve disaggregated` with both kinds of servers in it. The YAML wins
over flags, as it does there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.limits import beyond_context, engine_import
from dragonscale.exports.engines.schemes import formats_read, plain_name, scheme_of
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import Given, Imported, needs, slice_given
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.shell import documents
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import fraction, truth, whole
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.physics.hardware import Chip
from dragonscale.serving.legal import divisible
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("trtllm")

OWN = frozenset(TERMS.lists["marks"])
_SPELT = TERMS.tables["spellings"]


def recognises(source: Source) -> bool:
    if source.command("trtllm-serve") is not None:
        return True
    table = source.table
    return table is not None and bool(OWN & set(table)) and any(_known(name) for name in table)


def _known(name: str) -> bool:
    keys = load_keys("trtllm")
    return any(keys.known(one) for one in (name, f"--{name}", f"disaggregated.{name}"))


def read(source: Source, given: Given) -> Imported:
    """The plan of a server, or of two pools of them."""
    word, args, unknown = _said(source)
    pools = {name: args.pop(name, None) for name in ("context_servers", "generation_servers")}
    both = {**args, **_table(pools["generation_servers"])} if pools["generation_servers"] else args
    word, kept = word or str(both.get("model", "")), str(source.kept.get("model", ""))
    if not (given.model or word or kept):
        raise needs("a model", "it by --model", source)
    server = Server(_renamed(both), unknown)
    engine = (
        "trtllm-ep" if str(_table(server.args.get("moe_config")).get("backend", "")).upper() == "WIDEEP" else "trtllm"
    )
    piece = slice_given(source, given, server.ranks)
    judged = str(source.kept.get("engine", "")).partition(",")[0] or engine
    formats = _formats(judged, piece.chip if piece else None, word, given.model or _model(word, kept))
    plan, said = server.plan(formats), dict[str, Any]()
    if pools["context_servers"]:
        chip = piece.chip.name if piece else ""
        said["prefill"] = _prefill(args, _table(pools["context_servers"]), formats, chip, unknown)
        said["replicas"] = whole(_table(pools["generation_servers"]).get("num_instances", 1), "num_instances")
    beyond, length = "what it answers beyond that is not to be relied on", server.args.get("max_seq_len")
    said["later"] = beyond_context("max_seq_len", length, load_model(formats.model), beyond)
    left = ReadFlags(dict.fromkeys(server.rest()), [], unknown)
    how = (source, given, plan, formats.model, engine, left, TERMS.lists["harmless"], server.limits())
    return engine_import("trtllm", *how, drafts=server.drafts(), role=server.role, **said)


@dataclass(frozen=True)
class NamedFormats:
    """The model of a checkpoint and the formats that its name stands for; `kv` is empty where the
    cache is in 16 bits."""

    model: str
    weights: str
    compute: str
    attention: str = ""
    kv: str = ""


def _formats(engine: str, chip: Chip | None, word: str, model: str) -> NamedFormats:
    """The formats of a checkpoint by its name. NVIDIA's own repositories in fp8 and NVFP4 ask for an fp8 cache."""
    found = formats_read(engine, chip, load_model(model), word, "", {}, wide_attention=False)
    theirs = word.lower().startswith("nvidia/") and scheme_of(word) in ("FP8", "NVFP4")
    return NamedFormats(model, found["weights"], found["compute"], found["attention"], "fp8" if theirs else "")


def _model(word: str, kept: str) -> str:
    """The model of a checkpoint by its name; the header's where that is the same, and says more."""
    names = [one for one in (word, word.rstrip("/").rpartition("/")[2]) if one]
    last = names[-1].removeprefix("models--").replace("--", "/") if names else ""
    found = next((plain_name(one) for one in (*names, last) if one and is_preset(plain_name(one))), "")
    own = hub_id(kept).rpartition("/")[2] if kept else ""
    same = own and names and f"{names[-1]}-".startswith(f"{own}-")
    if kept and (not found or same or preset_named(kept.partition("?")[0]) == found):
        return kept
    return found or plain_name(word)


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _said(source: Source) -> tuple[str, dict[str, Any], list[str]]:
    """The checkpoint, the arguments of flags and YAML together, and names that it does not have."""
    command = source.command("trtllm-serve")
    if command is None:
        table = dict(source.table or {})
        return "", table, [name for name in table if not _known(name)]
    start = next(place for place, one in enumerate(command.words) if one.endswith("trtllm-serve"))
    flags = read_flags(load_keys("trtllm"), command.words[start + 1 :])
    words = [one for one in flags.words if one not in ("serve", "disaggregated")]
    args = {name.lstrip("-").replace("-", "_"): value for name, value in flags.values.items()}
    named = str(args.pop("config", "") or args.pop("config_file", ""))
    table = _config(source, named) if named else {}
    unknown = [*flags.unknown, *(name for name in table if not _known(name))]
    return words[0] if words else "", {**_renamed(args), **_renamed(table)}, unknown


def _config(source: Source, name: str) -> dict[str, Any]:
    """The YAML that a command names: a file beside it, or what the script itself writes by `cat <<EOF`."""
    beside = source.beside(name) or source.beside(PurePosixPath(name).name)
    if beside is not None and beside.table is not None:
        return dict(beside.table)
    written = documents(source.text)
    own = [body for place, body in written if PurePosixPath(name).name in place] or [body for _, body in written]
    table = Source(own[0]).table if own else None
    if table is None:
        raise TERMS.wrong("config_beside", file=shorten(name))
    return dict(table)


def _renamed(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their long names; the share of the memory where the YAML keeps it."""
    said = {name: value for name, value in args.items() if value is not None or name == "cuda_graph_config"}
    found = {_SPELT.get(name, name): value for name, value in said.items()}
    if "free_gpu_memory_fraction" in found:
        share = found.pop("free_gpu_memory_fraction")
        found["kv_cache_config"] = {"free_gpu_memory_fraction": share, **_table(found.get("kv_cache_config"))}
    return found


def _prefill(
    shared: Mapping[str, Any], own: Mapping[str, Any], formats: NamedFormats, chip: str, unknown: list[str]
) -> dict[str, Any]:
    """The pool that prefills, as a plan file holds it."""
    plan = Server(_renamed({**shared, **own}), unknown).plan(formats)
    where = {"slice": f"{chip}:{plan.chips}"} if chip else {}
    return {**where, "plan": str(plan), "replicas": whole(own.get("num_instances", 1), "num_instances")}


class Server:
    """The arguments of a server; what has been understood is struck from them."""

    def __init__(self, args: dict[str, Any], unknown: list[str]) -> None:
        self.args = args
        self.unknown = unknown
        self.tables = {name: _table(args.get(name)) for name in ("kv_cache_config", "speculative_config")}
        self.ranks = self._number("tensor_parallel_size") * self._number("pipeline_parallel_size")

    def _number(self, name: str, default: int = 1) -> int:
        return whole(self.args.get(name, default), name, most=999_999)

    @property
    def role(self) -> str:
        """The pool that a server says it belongs to, or that its settings are for: one that hands caches over and
        schedules nothing ahead prefills."""
        said = str(self.args.get("server_role", "")).lower()
        if said:
            return {"context": "prefill", "generation": "decode"}.get(said, "")
        if not self.args.get("cache_transceiver_config"):
            return ""
        plain = truth(self.args.get("disable_overlap_scheduler", False), "disable_overlap_scheduler")
        return "prefill" if plain else "decode"

    def plan(self, formats: NamedFormats) -> ServingPlan:
        """Degrees and formats."""
        world, pipe = self._number("tensor_parallel_size"), self._number("pipeline_parallel_size")
        spread = truth(self.args.get("enable_attention_dp", False), "enable_attention_dp")
        sliced = self.args.get("moe_tensor_parallel_size")
        usual = world // self._number("moe_tensor_parallel_size") if sliced else 1
        dealt = self._number("moe_expert_parallel_size", usual)
        if world % dealt or (sliced and dealt * self._number("moe_tensor_parallel_size") != world):
            raise TERMS.wrong("dealt_over_ranks", dealt=dealt, world=world)
        mixed = bool(divisible(load_model(formats.model)).experts)
        said = str(self.args.get("dtype", "auto"))
        half = said in ("float16", "half")
        wide = {"bf16": "fp16"} if half else {"fp16": "bf16"} if said == "bfloat16" else {}
        tensor, data = (1, world) if spread else (world, 1)
        weights, compute = (wide.get(dtype, dtype) for dtype in (formats.weights, formats.compute))
        own: dict[str, Any] = {"weights": weights, "compute": compute, "attention": formats.attention}
        return ServingPlan(tensor, data, dealt if mixed else 1, pipe=pipe, **own, kv=self._cache(formats, compute))

    def _cache(self, formats: NamedFormats, compute: str) -> str:
        said = str(self.tables["kv_cache_config"].get("dtype", "auto"))
        known = {"fp8": "fp8", "nvfp4": "nvfp4", "bfloat16": "bf16", "float16": "fp16"}
        if said == "auto":
            half = str(self.args.get("dtype", "auto")) in ("float16", "half")
            return formats.kv or ("fp16" if half or compute == "fp16" else "bf16")
        if said not in known:
            raise InputError(f"kv_cache_config.dtype is {shorten(said)}; TensorRT-LLM takes auto, fp8 or nvfp4.")
        return known[said]

    def limits(self) -> dict[str, float | None]:
        """What a plan file calls its launch."""
        share = self.tables["kv_cache_config"].get("free_gpu_memory_fraction")
        keys = {"max_seqs": "max_batch_size", "token_budget": "max_num_tokens"}
        counts = {name: self._number(key) if key in self.args else None for name, key in keys.items()}
        return {**counts, "memory_fraction": None if share is None else fraction(share, "free_gpu_memory_fraction")}

    def drafts(self) -> dict[str, Any]:
        """What is drafted, and by whom."""
        table = self.tables["speculative_config"]
        count = table.get("num_nextn_predict_layers") or table.get("max_draft_len") or 0
        if not table or not count:
            return {}
        kind = str(table.get("decoding_type", ""))
        model = str(table.get("speculative_model") or table.get("speculative_model_dir") or "")
        draft = preset_named(model) if kind.lower() in ("drafttarget", "draft_target") and model else ""
        return {"drafts": whole(count, "the drafts of speculative_config", most=10_000), "draft": draft}

    def rest(self) -> list[str]:
        """Names that were not read."""
        own = ("dtype", "free_gpu_memory_fraction")
        inner = [f"kv_cache_config.{name}" for name in self.tables["kv_cache_config"] if name not in own]
        read = {*TERMS.lists["read"], *self.unknown}
        return [*(name for name in self.args if name not in read), *inner]
