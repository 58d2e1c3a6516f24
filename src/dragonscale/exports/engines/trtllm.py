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
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines import checkpoints
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import ReadFlags, flag_words, load_keys, read_flags, table_at, truth, whole
from dragonscale.exports.model_names import hub_id, preset_named, served_id
from dragonscale.exports.runs import ServingRun, header, hosts_of
from dragonscale.exports.shell import documents
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, WrittenFiles, config_file, yaml_text
from dragonscale.models import load_model
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.serving.engine.checkpoint import own_formats, stored_in
from dragonscale.serving.engine.legality import architecture
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import divisible

TERMS = load_terms("trtllm")

OWN = frozenset(TERMS.lists["marks"])
MOST_COUNT = 999_999
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
    front, back = (table_at(args.pop(name, None)) for name in ("context_servers", "generation_servers"))
    main = ReadFlags(_renamed({**args, **back}), [], unknown, MOST_COUNT)
    word, kept = word or str(main.values.get("model", "")), source.kept_word("model")
    if not (given.model or word or kept):
        raise source.needs("a model", "it by --model")
    wide = str(table_at(main.values, "moe_config").get("backend", "")).upper() == "WIDEEP"
    engine, cache = "trtllm-ep" if wide else "trtllm", table_at(main.values, "kv_cache_config")
    length, drafts, plan = main.values.get("max_seq_len"), _read_drafts(main.values), _degrees(main)
    piece = slice_given(source, given, plan.chips)
    judged, name = source.kept_word("engine").partition(",")[0] or engine, given.model or _model(word, kept)
    model = load_model(name)
    formats = checkpoints.formats_read(judged, piece.chip if piece else None, model, word, "", {}, wide_attention=False)
    # NVIDIA's own repositories in fp8 and NVFP4 ask for an fp8 cache
    theirs = word.lower().startswith("nvidia/") and checkpoints.scheme_of(word) in ("FP8", "NVFP4")
    formats["kv"] = "fp8" if theirs else ""
    plan, said = _with_formats(plan, main, model, formats), dict[str, Any]()
    if front:
        pool = ReadFlags(_renamed({**args, **front}), most=MOST_COUNT)
        prefill = _with_formats(_degrees(pool), pool, model, formats)
        where = {"slice": f"{piece.chip.name}:{prefill.chips}"} if piece else {}
        copies = whole(front.get("num_instances", 1), "num_instances")
        said["prefill"] = {**where, "plan": str(prefill), "replicas": copies}
        said["replicas"] = whole(back.get("num_instances", 1), "num_instances")
    beyond = "what it answers beyond that is not to be relied on"
    said["later"] = checkpoints.beyond_context("max_seq_len", length, model, beyond)
    counts = {"max_seqs": main.whole("max_batch_size", 0), "token_budget": main.whole("max_num_tokens", 0)}
    limits: dict[str, float | None] = {own: count or None for own, count in counts.items()}
    limits["memory_fraction"] = ReadFlags(dict(cache)).share("free_gpu_memory_fraction")
    inner = [f"kv_cache_config.{own}" for own in cache if own not in ("dtype", "free_gpu_memory_fraction")]
    left = [own for own in main.values if own not in (*TERMS.lists["read"], *unknown)]
    rest = ReadFlags(dict.fromkeys([*left, *inner]), [], unknown)
    how = (source, given, plan, name, engine, rest, limits)
    return checkpoints.engine_import("trtllm", *how, drafts=drafts, role=_role(main.values), length=length, **said)


def _model(word: str, kept: str) -> str:
    """The model of a checkpoint by its name; the header's where that is the same, and says more."""
    names = [one for one in (word, word.rstrip("/").rpartition("/")[2]) if one]
    last = names[-1].removeprefix("models--").replace("--", "/") if names else ""
    found = next(
        (checkpoints.plain_name(one) for one in (*names, last) if one and is_preset(checkpoints.plain_name(one))), ""
    )
    own = hub_id(kept).rpartition("/")[2] if kept else ""
    same = own and names and f"{names[-1]}-".startswith(f"{own}-")
    if kept and (not found or same or preset_named(read_asked(kept).text) == found):
        return kept
    return found or checkpoints.plain_name(word)


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
        found["kv_cache_config"] = {"free_gpu_memory_fraction": share, **table_at(found.get("kv_cache_config"))}
    return found


def _role(args: Mapping[str, Any]) -> str:
    """The pool that a server says it belongs to, or that its settings are for: one that hands caches over and schedules
    nothing ahead prefills."""
    if said := str(args.get("server_role", "")).lower():
        return {"context": "prefill", "generation": "decode"}.get(said, "")
    if not args.get("cache_transceiver_config"):
        return ""
    plain = truth(args.get("disable_overlap_scheduler", False), "disable_overlap_scheduler")
    return "prefill" if plain else "decode"


def _degrees(args: ReadFlags) -> ServingPlan:
    """The degrees of a server."""
    world, pipe = args.whole("tensor_parallel_size"), args.whole("pipeline_parallel_size")
    slices = args.whole("moe_tensor_parallel_size") if args.values.get("moe_tensor_parallel_size") else 0
    dealt = args.whole("moe_expert_parallel_size", world // slices if slices else 1)
    if world % dealt or (slices and dealt * slices != world):
        raise TERMS.wrong("dealt_over_ranks", dealt=dealt, world=world)
    tensor, data = (1, world) if args.truth("enable_attention_dp") else (world, 1)
    return ServingPlan(tensor, data, dealt, pipe=pipe)


def _with_formats(plan: ServingPlan, args: ReadFlags, model: Transformer, formats: Mapping[str, str]) -> ServingPlan:
    """A plan in the formats of a checkpoint and of a server's arguments; `kv` is empty where the cache has 16 bits."""
    said, cache = str(args.take("dtype", "auto")), str(table_at(args.values, "kv_cache_config").get("dtype", "auto"))
    half, known = said in ("float16", "half"), TERMS.tables["caches_read"]
    wide = {"bf16": "fp16"} if half else {"fp16": "bf16"} if said == "bfloat16" else {}
    weights, compute = (wide.get(formats[name], formats[name]) for name in ("weights", "compute"))
    if cache not in ("auto", *known):
        raise InputError(f"kv_cache_config.dtype is {shorten(cache)}; TensorRT-LLM takes auto, fp8 or nvfp4.")
    kv = known.get(cache) or formats["kv"] or ("fp16" if half or compute == "fp16" else "bf16")
    own = {"weights": weights, "compute": compute, "attention": formats["attention"], "kv": kv}
    return replace(plan, expert=plan.expert if divisible(model).experts else 1, **own)


def _read_drafts(args: Mapping[str, Any]) -> dict[str, Any]:
    """What is drafted, and by whom."""
    table = table_at(args, "speculative_config")
    count = table.get("num_nextn_predict_layers") or table.get("max_draft_len") or 0
    if not table or not count:
        return {}
    kind = str(table.get("decoding_type", ""))
    model = str(table.get("speculative_model") or table.get("speculative_model_dir") or "")
    draft = preset_named(model) if kind.lower() in ("drafttarget", "draft_target") and model else ""
    return {"drafts": whole(count, "the drafts of speculative_config", most=10_000), "draft": draft}


PORTS = {"prefill": 8001, "decode": 8002, "": 8000}
PAGE = 32
"""Tokens of a block of its cache."""


def _settings(run: ServingRun, checkpoint: checkpoints.ServedCheckpoint) -> dict[str, Any]:
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
    values |= {
        "blackwell": architecture(run.slice.chip) == "blackwell",
        "wide": run.engine.name.endswith("-ep"),
        "drafts": _drafts(run),
    }
    return values | {
        "chunked": prompt > run.budget or run.engine.scheduling.scheduler == "chunked",
        "cache": plan.kv if plan.kv in ("fp8", "nvfp4") else "auto",
        "graphs": None if run.prefills else {"enable_padding": True, "max_batch_size": run.seqs},
        "longest": -(-max(prompt, run.budget) // PAGE) * PAGE,
        "slots": -(-(run.experts + run.engine.experts.redundant) // ways) * ways,
    }


def _drafts(run: ServingRun) -> dict[str, Any]:
    """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head."""
    drafts = run.file.speculation
    if not drafts.drafts or run.prefills:
        return {}
    if run.fields.get("num_nextn_predict_layers") and not drafts.draft:
        return {"decoding_type": "MTP", "num_nextn_predict_layers": drafts.drafts}
    head = f"{served_id(run.file.model).rpartition('/')[2]}-EAGLE3"
    kind, model = ("DraftTarget", served_id(drafts.draft)) if drafts.draft else ("Eagle", head)
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
    checkpoint = checkpoints.checkpoint_for(run.engine.name, run.slice.chip, run.model, run.file.model, asked, {})
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
    said = f"context={plan.context}" if plan.context > 1 else "spread=sequence"
    version = load_keys("trtllm").version
    values = {"stored": stored, "split": split or plan.context > 1, "ranks": plan.data * plan.tensor}
    TERMS.refuse(run, plan=plan, said=said, version=version, **values)
