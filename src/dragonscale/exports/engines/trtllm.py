"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`.

Its `tensor_parallel_size` counts all ranks of a stage: with `enable_attention_dp` each of them is a replica of the
attention, so a plan with `data` has no `tensor` beside it, and batch and token limits are those of a rank. Experts are
dealt over `moe_expert_parallel_size` of those ranks and sliced over the rest. Prompts are not cut unless chunked
prefill is on, graphs are captured for decoding alone, and only requests that fit to their end are taken. On several
hosts MPI starts a process for each GPU (`trtllm-llmapi-launch`). Pools that prefill and decode are servers of their
own, behind `trtllm-serve disaggregated`.

Read is a command with the YAML that it names (beside it, or written by the script itself), that YAML alone, or the file
of `trtllm-serve disaggregated` with both kinds of servers in it. The YAML wins over flags, as it does there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.limits import beyond_context, engine_import
from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for, formats_read, plain_name, scheme_of
from dragonscale.exports.header import header
from dragonscale.exports.imported import Given, Imported, Source, needs, slice_given
from dragonscale.exports.keys import ReadFlags, flag_words, fraction, load_keys, read_flags, truth, whole
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.shell import documents
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, WrittenFiles, config_file
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.physics.hardware import Chip
from dragonscale.serving.checkpoint import own_formats, stored_in
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import architecture
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
    commands = source.started("trtllm-serve")
    if not commands:
        table = dict(source.table or {})
        return "", table, [name for name in table if not _known(name)]
    flags = read_flags(load_keys("trtllm"), commands[0])
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


PORTS = {"prefill": 8001, "decode": 8002, "": 8000}
PAGE = 32
"""Tokens of a block of its cache."""


def _settings(run: ServingRun, checkpoint: ServedCheckpoint) -> dict[str, Any]:
    """What the arguments of a server are about; one that prefills has no use for graphs of decoding."""
    plan, ways, prompt = run.file.plan, run.file.plan.expert, run.file.traffic.prompt
    ranks, reserve = plan.data * plan.tensor, run.engine.scheduling.reserve
    # where prompts alone run, as many requests at once as their tokens fit an iteration
    at_once = max(run.seqs, run.budget // max(prompt, 1)) if run.prefills else run.seqs
    values: dict[str, Any] = {
        "plan": plan,
        "checkpoint": checkpoint,
        "ranks": ranks,
        "slices": ranks // ways,
        "spread": plan.data > 1,
    }
    values |= {"host_chips": hosts_of(run.slice)[1], "at_once": at_once, "whole": reserve == "whole"}
    values |= {"backend": _backend(run), "wide": run.engine.name.endswith("-ep"), "drafts": _drafts(run)}
    return values | {
        "chunked": prompt > run.budget or run.engine.scheduling.scheduler == "chunked",
        "cache": plan.kv if plan.kv in ("fp8", "nvfp4") else "auto",
        "graphs": None if run.prefills else {"enable_padding": True, "max_batch_size": run.seqs},
        "longest": -(-max(prompt, run.budget) // PAGE) * PAGE,
        "slots": -(-(run.experts + run.engine.experts.redundant) // ways) * ways,
    }


def _backend(run: ServingRun) -> str:
    """The kernels of the experts: WIDEEP sends tokens by AllToAll; on Blackwell fp8 by blocks is DeepGEMM's, and four
    bits are TRTLLM's for low latency and CUTLASS's with attention data parallelism; MXFP4 on Hopper is Triton's
    (examples/configs/curated and the deployment guides)."""
    plan, blackwell = run.file.plan, architecture(run.slice.chip) == "blackwell"
    if run.engine.name.endswith("-ep"):
        return "WIDEEP"
    if plan.weights == "mxfp4":
        return "TRTLLM" if blackwell else "TRITON"
    if blackwell and plan.compute == "fp8_block":
        return "DEEPGEMM"
    return "TRTLLM" if blackwell and plan.weights == "nvfp4" and plan.data == 1 else "CUTLASS"


def _drafts(run: ServingRun) -> dict[str, Any]:
    """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head."""
    drafts = run.file.speculation
    if not drafts.drafts or run.prefills:
        return {}
    if run.fields.get("num_nextn_predict_layers") and not drafts.draft:
        return {"decoding_type": "MTP", "num_nextn_predict_layers": drafts.drafts}
    head = f"{hub_id(run.file.model).rpartition('/')[2]}-EAGLE3"
    kind, model = ("DraftTarget", hub_id(drafts.draft)) if drafts.draft else ("Eagle", head)
    return {"decoding_type": kind, "max_draft_len": drafts.drafts, "speculative_model": model}


def write(run: ServingRun) -> WrittenFiles:
    """The YAML and the command of a replica, or those of two pools and of what stands before them."""
    if run.prefill is None:
        return _server(run, "trtllm.yaml")
    own, table = _server(run, "decode.yaml"), load_keys("trtllm")
    front: dict[str, Any] = {"hostname": "0.0.0.0", "port": PORTS[""]}
    for name, role, pool in (("context_servers", "prefill", run.prefill), ("generation_servers", "decode", run)):
        copies = pool.file.replicas or 1
        front[name] = {"num_instances": copies, "urls": [f"{role}-{place}:{PORTS[role]}" for place in range(copies)]}
    table.check_all(front, "disaggregated.")
    file = "disaggregated.yaml"
    words = ("trtllm-serve", "disaggregated", *flag_words(table, {"--config_file": config_file(file)}))
    program = LaunchProgram("front", words, 1, 0, port=PORTS[""])
    both = own.with_pool(_server(run.prefill, "prefill.yaml"), (program,), (TERMS.say("server_names"),))
    text = header(run, f"TensorRT-LLM {table.version}", own.differences) + yaml_text(front)
    return replace(both, files={**both.files, file: text}, addressed=(file,))


def _server(run: ServingRun, file: str) -> WrittenFiles:
    asked, table = run.file.plan, load_keys("trtllm")
    _refuse(run, asked)
    # its formats are those of the checkpoint: nothing is quantised when one is loaded
    checkpoint = checkpoint_for(run.engine.name, run.slice.chip, run.model, run.file.model, asked, {})
    plan, differences = checkpoint.plan, list(checkpoint.differences)
    if asked.spread != "copy" and asked.tensor > 1:
        differences.append(TERMS.difference("spread", plan=asked))
        plan = replace(plan, spread="copy")
    if run.file.traffic.prompt > run.budget and run.engine.scheduling.scheduler != "chunked":
        differences.append(TERMS.difference("chunks", prompt=run.file.traffic.prompt, most=run.budget))
    args = TERMS.group("server", run=run, **_settings(run, checkpoint))
    table.check_all(args)
    text = header(run, f"TensorRT-LLM {table.version}", differences) + yaml_text(args)
    flags = flag_words(table, {"--host": "0.0.0.0", "--port": PORTS[run.role], "--config": config_file(file)})
    words = (*(["trtllm-llmapi-launch"] if run.hosts > 1 else []), "trtllm-serve", checkpoint.word, *flags)
    tokens = run.engine.host.stream_interval
    told = {"stream_interval": tokens > 1 and run.decodes, "eagle": _drafts(run).get("decoding_type") == "Eagle"}
    notes = (*checkpoint.notes, *TERMS.notes(told, tokens=tokens))
    written = WrittenFiles({file: text}, differences=tuple(differences), notes=notes)
    return run.served(plan, words, written, per="rank" if run.hosts > 1 else "host", port=PORTS[run.role])


def _refuse(run: ServingRun, plan: ServingPlan) -> None:
    """What it cannot run at all."""
    stored = own_formats(run.engine.name, run.slice.chip, run.model) is None and stored_in(run.model) == plan.weights
    split = plan.spread == "sequence" and plan.tensor > min(divisible(run.model).kv_heads, default=1)
    checks = {
        "data_with_tensor": plan.data > 1 and plan.tensor > 1,
        "drafts_in_pipeline": run.file.speculation.drafts and plan.pipe > 1 and run.decodes,
        "no_kernels": stored,
        "split_cache": plan.context > 1 or split,
    }
    said = f"context={plan.context}" if plan.context > 1 else "spread=sequence"
    version = load_keys("trtllm").version
    TERMS.refuse(checks, plan=plan, run=run, ranks=plan.data * plan.tensor, said=said, version=version)
