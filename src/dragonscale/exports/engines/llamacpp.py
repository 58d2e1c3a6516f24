"""llama.cpp: `llama-server` on the GPUs of one host, written and read.

Its formats are those of a GGUF file, by whose name (`-hf user/name:type`, or a file) a model is read. Several GPUs
share a model by layers (`--split-mode layer`, a pipeline) or by weights and heads (`--split-mode tensor`, still
experimental); there is no data or expert parallelism, and no second host. It batches requests as others do, but into
slots: `--parallel` of them, each with its share of `--ctx-size`, kept from the start (where their number is left to it,
or with `--kv-unified`, one request may have all of it); an iteration has at most `--batch-size` tokens, which run in
parts of `--ubatch-size`.

>>> read_gguf("unsloth/gpt-oss-20b-GGUF:F16"), read_gguf("/models/Meta-Llama-3-70B-Q4_K_M-00001-of-00002.gguf")
(('gpt-oss-20b', 'F16'), ('llama3-70b', 'Q4_K_M'))
>>> [kept_in(quant) for quant in ("Q4_K_M", "Q8_0", "BF16", "UD-Q6_K", "MXFP4_MOE", "TQ1_0")]
['q4_k_m', 'q8_0', 'bf16', 'q6_k', 'mxfp4_moe', '']
"""

import re
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.engines.checkpoints import engine_import
from dragonscale.exports.imported import Given, Imported, Source, slice_given
from dragonscale.exports.keys import ReadFlags, flag_words, load_keys, read_flags, whole
from dragonscale.exports.model_names import preset_named, served_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import PlanDifference, WrittenFiles
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.stored_formats import GGUF_FILES, GROUPS, read_format
from dragonscale.serving.engine.checkpoint import multiplied_in
from dragonscale.serving.engine.engine_settings import EngineOffload
from dragonscale.serving.engine.legality import caches
from dragonscale.serving.engine.plan import ServingPlan

TYPES = {"bf16": "BF16", "fp16": "F16", "int8": "Q8_0", "int4": "Q4_K_M", "mxfp4": "MXFP4_MOE"}
TYPES |= {name: name.upper() for name in GGUF_FILES}
"""What `llama-quantize` calls a format; of the kinds of four bits the one that `-hf` takes unless it is told otherwise.
"""
_QUANT = re.compile(
    r"[-._](?:UD-|i1-)?(F32|F16|FP16|BF16|MXFP4_MOE|MXFP4|NVFP4|I?Q\d_(?:K_?)?(?:XXS|XS|S|M|L|XL|NL|0|1)?|I?Q\d_K|TQ\d_0|MLX\d)$",
    re.IGNORECASE,
)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def kept_in(quant: str) -> str:
    """The planner's format of a GGUF type; empty where it has none."""
    name = read_format(quant)
    if name == "mxfp4":
        return "mxfp4_moe"
    return name if name in (*GGUF_FILES, *GROUPS, "bf16", "fp16") else ""


def read_gguf(name: str) -> tuple[str, str]:
    """The model and the type that a repository (`user/name-GGUF:Q4_K_M`) or a file stands for; an empty type is not
    said."""
    path, _, quant = name.partition(":") if "/" in name and not name.startswith("/") else (name, "", "")
    last = _SHARD.sub("", re.sub(r"\.gguf$", "", path.rstrip("/").rpartition("/")[2], flags=re.IGNORECASE))
    last = re.sub(r"[-_]gguf$", "", last, flags=re.IGNORECASE)
    found = _QUANT.search(last)
    if found:
        last, quant = last[: found.start()], quant or found[1]
    quant = re.sub(r"^(UD|i1)-", "", quant, flags=re.IGNORECASE).upper()
    tried = (last, last.partition("_")[2], re.sub(r"-(it|qat|chat|hf)+$", "", last), re.sub(r"-qat$", "", last))
    known = next((one for one in tried if one and is_preset(one)), "")
    return preset_named(known) if known else last, quant


def multiplied(chip: Chip, model: Transformer, weights: str, engine: str) -> str:
    """What llama.cpp multiplies weights of a format in, as an engine of the planner has it."""
    if weights in ("bf16", "fp16"):
        return weights
    pair = multiplied_in(engine, chip, model, weights)
    return "fp16" if pair is None else pair[1]


ENGINE = "llama.cpp"
TERMS = load_terms("llamacpp")

SLOTS, UBATCH = 4, 512
"""Slots and tokens of an iteration that it takes where nothing is said."""
AUTO_SLOTS = ("-1", "auto")
PROGRAMS = ("llama-server", "llama-cli")
OLLAMA, MLX = ("ollama run",), ("mlx_lm.generate", "mlx_lm.chat", "mlx_lm.server", "mlx_lm.benchmark")
_CACHES = TERMS.tables["caches_read"]
MOST_GPUS, LONGEST_SPLIT = 128, 4096
_PRESETS = re.compile(r"--(gpt-oss-\w+)-default")


def recognises(source: Source) -> bool:
    return bool(source.started(*PROGRAMS, *OLLAMA, *MLX))


def _started(source: Source) -> tuple[str, list[str]]:
    """The engine that a command starts, and its words as `llama-server` has them: Ollama's and mlx-lm's commands say a
    model and its format, which is all that is read of them."""
    if source.started(*PROGRAMS):
        return ENGINE, _with_values(source.started(*PROGRAMS)[0])
    if source.started(*OLLAMA):
        words = [word for word in source.started(*OLLAMA)[0] if not word.startswith("-")]
        return "ollama", ["--model", _ollama_file("".join(words[:1]))]
    words = source.started(*MLX)[0]
    named = next((words[at + 1] for at, word in enumerate(words[:-1]) if word in ("--model", "-m")), "")
    return "mlx", ["--model", re.sub(r"-(\d)bit\b.*$", r"-MLX\1", named)]


def _ollama_file(name: str) -> str:
    """A name of Ollama's library as a GGUF file; what its default tags are in is Q4_K_M.

    >>> _ollama_file("llama3.1:8b"), _ollama_file("qwen3:30b-a3b-q8_0"), _ollama_file("gpt-oss:20b")
    ('llama3.1-8b-Q4_K_M', 'qwen3-30b-a3b-q8_0', 'gpt-oss-20b-MXFP4')
    """
    file = re.sub(r":latest$", "", name).replace(":", "-")
    if not file or _QUANT.search(file):
        return file
    return f"{file}-MXFP4" if "gpt-oss" in file else f"{file}-Q4_K_M"


def read(source: Source, given: Given) -> Imported:
    """The plan of a `llama-server`, `llama-cli`, `ollama run` or `mlx_lm.generate` command."""
    engine, words = _started(source)
    flags = read_flags(load_keys("llamacpp"), words)
    model, quant = _model(flags, source, given)
    cache = str(flags.take("--cache-type-k", "f16"))
    plan = _plan(flags, source, given, model, quant, cache, engine)
    flags.take("--batch-size")  # a logical batch: what runs at once is --ubatch-size
    unified = _is_unified(flags)
    slots = _number(flags, "--parallel", SLOTS)
    given_context = str(flags.take("--ctx-size", "0"))
    context = 0 if given_context == "0" else whole(given_context, "--ctx-size", most=99_999_999)
    limits: dict[str, float | None] = {}
    if engine == ENGINE:
        limits = {"max_seqs": slots, "token_budget": _number(flags, "--ubatch-size", UBATCH)}
    drafts, notes = drafts_read(flags), _read_notes(quant)
    offload = offload_read(flags, load_model(model))
    settings = [f"offload.{name}={count}" for name, count in offload.items() if count]
    if settings:
        count = max(offload.values())
        notes = (*notes, TERMS.say("host_layers", count=count, rate=EngineOffload().bytes_per_s / 1e9))
    how = (source, given, plan, model, ",".join([engine, *settings]), flags, limits)
    # a context of 0 is the model's, cut to what fits
    return engine_import("llamacpp", *how, drafts=drafts, notes=notes, length=context if unified else context // slots)


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
        raise source.needs("a model", "it by --model")
    return name, quant


def _plan(
    flags: ReadFlags, source: Source, given: Given, model: str, quant: str, cache: str, engine: str
) -> ServingPlan:
    mode, parts = flags.take("--split-mode", "layer"), str(flags.values.get("--tensor-split", ""))
    if mode not in ("none", "layer", "row", "tensor"):
        raise InputError(f"--split-mode is {shorten(mode)}; llama.cpp takes none, layer, row or tensor.")
    counted = _shares(parts)
    piece = slice_given(source, given, 1 if mode == "none" else counted or 1)
    chips = 1 if mode == "none" else counted or (piece.chips if piece else 1)
    loaded = load_model(model)
    weights = kept_in(quant) or _near(quant)
    compute = multiplied(piece.chip, loaded, weights, engine) if piece else "fp16"
    flags.take("--cache-type-v")
    if cache not in _CACHES:
        raise InputError(f"--cache-type-k is {shorten(cache)}; llama.cpp takes {', '.join(_CACHES)}.")
    split = mode in ("row", "tensor")
    tensor, pipe = (chips, 1) if split else (1, chips)
    formats = {"weights": weights, "compute": compute, "kv": _CACHES[cache]}
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
    if bits is None:
        return "bf16"
    return {"1": "iq1_m", "2": "q2_k", "3": "q3_k_m", "4": "q4_k_m", "5": "q5_k_m", "6": "q6_k"}.get(bits[1], "q8_0")


def _read_notes(quant: str) -> tuple[str, ...]:
    found = []
    if quant and not kept_in(quant):
        found.append(f"{quant} is read as {_near(quant)}, the nearest format that the planner has.")
    return tuple(found)


def offload_read(flags: ReadFlags, model: Transformer) -> dict[str, int]:
    """Layers, and layers of experts, that a launch leaves in the host's memory."""
    layers = sum(section.repeat for section in model.program().sections if section.name not in ("embed", "head"))
    offload: dict[str, int] = {}
    on_gpu = str(flags.take("--n-gpu-layers", "all"))
    if on_gpu.isdecimal() and int(on_gpu) < layers:
        offload["layers"] = layers - int(on_gpu)
    in_host = str(flags.take("--n-cpu-moe", "") or "")
    if in_host.isdecimal():
        offload["expert_layers"] = min(int(in_host), layers)
    tensors = str(flags.take("--override-tensor", "") or "")
    if flags.take("--cpu-moe", None) is not None or re.search(r"exps[^=]*=CPU", tensors):
        offload["expert_layers"] = layers
    return offload


def _is_unified(flags: ReadFlags) -> bool:
    """Whether slots share one cache: by default where their number is left to llama.cpp (pull requests 16736 and 17997
    of ggml-org/llama.cpp, of the end of 2025)."""
    if "--kv-unified" in flags.values:
        return bool(flags.take("--kv-unified"))
    return str(flags.values.get("--parallel", "auto")) in AUTO_SLOTS


def _number(flags: ReadFlags, name: str, default: int) -> int:
    text = str(flags.take(name, default))
    if text in AUTO_SLOTS:
        return default
    return whole(text, name, most=9_999_999)


def drafts_read(flags: ReadFlags) -> dict[str, Any]:
    kind = str(flags.take("--spec-type", ""))
    model = flags.take("--spec-draft-model") or flags.take("--spec-draft-hf") or ""
    count = _number(flags, "--spec-draft-n-max", 3)
    if kind in ("", "none") and not model:
        return {}
    draft = read_gguf(str(model))[0] if model and kind in ("", "draft-simple") else ""
    return {"drafts": count, "draft": draft}


CACHES = TERMS.tables["caches"]
MAX_UBATCH = 2048
"""Tokens that it is given to compute at once, at most: buffers of every GPU grow with them."""


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica."""
    _refuse(run)
    plan = _as_run(run)
    words = ("llama-server", *flag_words(load_keys("llamacpp"), _flags(run, plan)))
    run = replace(run, role="")  # it has no pools
    return run.served(plan, words, WrittenFiles(differences=_differences(run, plan), notes=_notes(run)), port=8000)


def file_name(model: str, weights: str) -> str:
    """The GGUF file of a model in a format."""
    return f"{served_id(model).rpartition('/')[2]}-{TYPES[weights]}.gguf"


def _flags(run: ServingRun, plan: ServingPlan) -> dict[str, Any]:
    drafts, draft = _drafts(run)
    mode = "none" if plan.chips == 1 else "tensor" if plan.tensor > 1 else "layer"
    own = {"file": file_name(run.file.model, plan.weights), "mode": mode, "shares": ",".join(["1"] * plan.chips)}
    sizes = {"tokens": run.seqs * (run.mean_length or 0), "at_once": min(run.budget, MAX_UBATCH)}
    return TERMS.group("server", run=run, plan=plan, drafts=drafts, draft=draft, **own, **sizes)


def _drafts(run: ServingRun) -> tuple[str, str]:
    """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head; and
    the file of what drafts."""
    drafts = run.file.speculation
    if not drafts.drafts:
        return "", ""
    if drafts.draft:
        return "draft-simple", file_name(drafts.draft, "bf16")
    if run.fields.get("num_nextn_predict_layers"):
        return "draft-mtp", ""
    return "draft-eagle3", f"{served_id(run.file.model).rpartition('/')[2]}-EAGLE3.gguf"


def _as_run(run: ServingRun) -> ServingPlan:
    """The plan as it runs."""
    plan = run.file.plan
    engine = run.file.engine.partition(",")[0] or ENGINE
    weights, kv = plan.weights, plan.kv
    if engine != "generic":
        weights = kept_in(TYPES[weights])
        kv = "q8_0" if kv == "int8" else kv
    compute = multiplied(run.slice.chip, run.model, weights, engine)
    if kv not in CACHES:
        kv = "int8"  # of eight bits too
    return replace(plan, weights=weights, compute=compute, attention="", kv=kv, wire="bf16", spread="copy")


def _differences(run: ServingRun, plan: ServingPlan) -> tuple[PlanDifference, ...]:
    found: list[PlanDifference] = []
    for name, why in TERMS.tables["other_settings"].items():
        asked, runs = getattr(run.file.plan, name), getattr(plan, name)
        if asked != runs:
            runs = runs or "the format of the rest"
            found.append(TERMS.difference("setting", name=name, asked=asked, runs=runs, why=why))
    found.append(TERMS.difference("slots", run=run))
    if run.budget > MAX_UBATCH:
        found.append(TERMS.difference("parts", most=run.budget, UBATCH=MAX_UBATCH))
    if plan.pipe > 1:
        found.append(TERMS.difference("stages_in_turn", plan=plan))
    if share := run.file.launch.memory_fraction:
        found.append(TERMS.difference("share", share=share))
    return tuple(found)


def _notes(run: ServingRun) -> tuple[str, ...]:
    name = file_name(run.file.model, run.file.plan.weights)
    return ((TERMS.say("gguf_file", name=name)),)


def _refuse(run: ServingRun) -> None:
    """What it cannot run at all, with the nearest that it can."""
    plan, chip, kind = run.plan, run.slice.chip, str(run.fields.get("model_type", "")).lower()
    axis = next((axis for axis in ("data", "expert", "context", "width") if getattr(plan, axis) > 1), "data")
    values: dict[str, Any] = {"chip": chip, "kind": kind, "axis": axis, "degree": getattr(plan, axis)}
    values |= {"types": ", ".join(TYPES), "caches": ", ".join(CACHES), "otherwise": f"tensor=1,pipe={plan.tensor}"}
    values |= {
        "on_gpus": chip.kind == "gpu",
        "by_layers": kind.startswith(TERMS.lists["layers_alone"]),
        "wide_cache": plan.kv in ("bf16", "fp16"),
        "gguf": plan.weights in TYPES,
        "cache": plan.kv in CACHES or "q8_0" in caches(ENGINE, chip),
        "near": "int8" if plan.weights in ("fp8", "mxfp8") else "int4",
    }
    TERMS.refuse(run, **values)
