"""llama.cpp: `llama-server` on the GPUs of one host.

Its formats are those of a GGUF file. Several GPUs share a model by layers (`--split-mode layer`, a pipeline) or by
weights and heads (`--split-mode tensor`, still experimental); there is no data or expert parallelism, and no second
host. It batches requests as others do, but into slots: `--parallel` of them, each with its share of `--ctx-size`, kept
from the start; an iteration has at most `--batch-size` tokens, which run in parts of `--ubatch-size`. The planner has
no constants of it (its engine here is `generic`), and says so in a difference.
"""

from dataclasses import replace
from typing import Any

from dragonscale.exports.engines.llamacpp.gguf_names import TYPES, multiplied
from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.serving.legality import caches
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("llamacpp")

CACHES = TERMS.tables["caches"]
UBATCH = 2048
"""Tokens that it computes at once, at most (512 where nothing is said): buffers of every GPU grow with them."""


def write(run: ServingRun) -> WrittenFiles:
    """The command of a replica."""
    _refuse(run)
    plan = _as_run(run)
    words = ("llama-server", *flag_words(load_keys("llamacpp"), _flags(run, plan)))
    hosts, chips = hosts_of(run.slice)
    program = LaunchProgram("serve", words, hosts, chips, copies=run.file.replicas or 1, port=8000)
    return WrittenFiles({}, (program,), _differences(run, plan), plan if plan != run.file.plan else None, _notes(run))


def file_name(model: str, weights: str) -> str:
    """The GGUF file of a model in a format."""
    return f"{hub_id(model).rpartition('/')[2]}-{TYPES[weights]}.gguf"


def _flags(run: ServingRun, plan: ServingPlan) -> dict[str, Any]:
    drafts, draft = _drafts(run)
    mode = "none" if plan.chips == 1 else "tensor" if plan.tensor > 1 else "layer"
    own = {"file": file_name(run.file.model, plan.weights), "mode": mode, "shares": ",".join(["1"] * plan.chips)}
    sizes = {"tokens": run.seqs * (run.length or 0), "at_once": min(run.budget, UBATCH)}
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
    return "draft-eagle3", f"{hub_id(run.file.model).rpartition('/')[2]}-EAGLE3.gguf"


def _as_run(run: ServingRun) -> ServingPlan:
    """The plan as it runs."""
    plan = run.file.plan
    compute, attention = multiplied(run.slice.chip, run.model, plan.weights)
    kv = plan.kv if plan.kv in CACHES else "int8"
    return replace(plan, compute=compute, attention=attention, kv=kv, wire="bf16", spread="copy")


def _differences(run: ServingRun, plan: ServingPlan) -> tuple[PlanDifference, ...]:
    found: list[PlanDifference] = []
    for name, why in TERMS.tables["other_settings"].items():
        asked, runs = getattr(run.file.plan, name), getattr(plan, name)
        if asked != runs:
            runs = runs or "the format of the rest"
            found.append(TERMS.difference("setting", name=name, asked=asked, runs=runs, why=why))
    found.append(TERMS.difference("generic_times", run=run))
    if run.budget > UBATCH:
        found.append(TERMS.difference("parts", most=run.budget, UBATCH=UBATCH))
    if plan.pipe > 1:
        found.append(TERMS.difference("stages_in_turn", plan=plan))
    if share := run.file.launch.memory_fraction:
        found.append(TERMS.difference("share", share=share))
    return tuple(found)


def _notes(run: ServingRun) -> tuple[str, ...]:
    name = file_name(run.file.model, run.file.plan.weights)
    return ((TERMS.say("gguf_file", name=name)),)


def _refuse(run: ServingRun) -> None:
    """What it cannot run at all, with the nearest that it can; docs/multi-gpu.md has what `--split-mode tensor`
    lacks."""
    plan, chip, kind = run.file.plan, run.slice.chip, str(run.fields.get("model_type", "")).lower()
    axis = next((axis for axis in ("data", "expert", "context", "width") if getattr(plan, axis) > 1), "data")
    tensor, otherwise = plan.tensor > 1, f"tensor=1,pipe={plan.tensor}"
    checks = {
        "no_chip": chip.kind != "gpu",
        "one_host": run.hosts > 1,
        "no_axis": getattr(plan, axis) > 1,
        "one_split": tensor and plan.pipe > 1,
        "layers_alone": tensor and kind.startswith(TERMS.lists["layers_alone"]),
        "wide_cache_with_tensor": tensor and plan.kv not in ("bf16", "fp16"),
        "no_gguf_type": plan.weights not in TYPES,
        "no_cache": plan.kv not in CACHES and "int8" not in caches("generic", chip),
    }
    near = {"near": "int8" if plan.weights in ("fp8", "mxfp8") else "int4", "degree": getattr(plan, axis)}
    known = {"types": ", ".join(TYPES), "caches": ", ".join(CACHES), "kind": kind, "axis": axis}
    TERMS.refuse(checks, run=run, plan=plan, chip=chip, hosts=run.hosts, otherwise=otherwise, **near, **known)
