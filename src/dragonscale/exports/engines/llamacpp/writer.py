"""llama.cpp: `llama-server` on the GPUs of one host.

Its formats are those of a GGUF file. Several GPUs share a model by layers (`--split-mode layer`, a pipeline) or by
weights and heads (`--split-mode tensor`, still experimental); there is no data or expert parallelism, and no second
host. It batches requests as others do, but into slots: `--parallel` of them, each with its share of `--ctx-size`, kept
from the start; an iteration has at most `--batch-size` tokens, which run in parts of `--ubatch-size`. The planner has
no constants of it (its engine here is `generic`), and says so in a difference.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
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

LAYERS_ALONE = TERMS.lists["layers_alone"]
CACHES = {"bf16": "bf16", "fp16": "f16", "int8": "q8_0"}
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
    budget = run.engine.scheduling.max_tokens
    slot = run.length or 0
    flags: dict[str, Any] = {
        "--model": file_name(run.file.model, plan.weights),
        "--host": "0.0.0.0",
        "--port": 8000,
        "--n-gpu-layers": "all",
        "--split-mode": "none" if plan.chips == 1 else "tensor" if plan.tensor > 1 else "layer",
        "--tensor-split": ",".join(["1"] * plan.chips) if plan.chips > 1 else None,
        "--parallel": run.seqs,
        "--ctx-size": run.seqs * slot or None,
        "--batch-size": budget,
        "--ubatch-size": min(budget, UBATCH),
        "--cache-type-k": CACHES[plan.kv],
        "--cache-type-v": CACHES[plan.kv],
        "--flash-attn": "on",
        "--cont-batching": True,
        "--cache-prompt": True,
        "--metrics": True,
    }
    return flags | _drafts(run)


def _drafts(run: ServingRun) -> dict[str, Any]:
    """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head."""
    drafts = run.file.speculation
    if not drafts.drafts:
        return {}
    if drafts.draft:
        kind, model = "draft-simple", file_name(drafts.draft, "bf16")
    elif run.fields.get("num_nextn_predict_layers"):
        kind, model = "draft-mtp", None
    else:
        kind, model = "draft-eagle3", f"{hub_id(run.file.model).rpartition('/')[2]}-EAGLE3.gguf"
    ngl = "all" if model else None
    return {
        "--spec-type": kind,
        "--spec-draft-model": model,
        "--spec-draft-n-max": drafts.drafts,
        "--n-gpu-layers-draft": ngl,
    }


def _as_run(run: ServingRun) -> ServingPlan:
    """The plan as it runs."""
    plan = run.file.plan
    compute, attention = multiplied(run.slice.chip, run.model, plan.weights)
    kv = plan.kv if plan.kv in CACHES else "int8"
    return replace(plan, compute=compute, attention=attention, kv=kv, wire="bf16", spread="copy")


def _differences(run: ServingRun, plan: ServingPlan) -> tuple[PlanDifference, ...]:
    found = [
        PlanDifference(
            f"{getattr(run.file.plan, name)} for {name}",
            f"{getattr(plan, name) or 'the format of the rest'} runs",
            why,
            name,
        )
        for name, why in (
            ("compute", "its kernels choose what quantised weights are multiplied in"),
            ("attention", "a GGUF type says it"),
            ("kv", "the cache has no such type: q8_0"),
            ("wire", "activations are not quantised between GPUs"),
            ("spread", "the cache is split by heads or layers alone"),
        )
        if getattr(run.file.plan, name) != getattr(plan, name)
    ]
    found.append(TERMS.difference("generic_times", run=run))
    if run.engine.scheduling.max_tokens > UBATCH:
        most = run.engine.scheduling.max_tokens
        why = "its buffers grow with --ubatch-size on every GPU"
        found.append(PlanDifference(f"{most:,} tokens computed at once", f"they run in parts of {UBATCH:,}", why))
    if plan.pipe > 1:
        why = "with --split-mode layer only prompts are cut into parts that follow each other"
        found.append(TERMS.difference("stages_in_turn", plan=plan, why=why))
    if run.file.launch.memory_fraction:
        share = f"{run.file.launch.memory_fraction:g} of the memory"
        found.append(PlanDifference(share, "it takes what --ctx-size asks for", "there is no flag for a share"))
    return tuple(found)


def _notes(run: ServingRun) -> tuple[str, ...]:
    name = file_name(run.file.model, run.file.plan.weights)
    return ((TERMS.say("gguf_file", name=name)),)


def _refuse(run: ServingRun) -> None:
    """What it cannot run at all, with the nearest that it can."""
    plan, chip = run.file.plan, run.slice.chip
    if chip.kind != "gpu":
        raise Infeasible(f"llama.cpp does not run on {chip.title}; take a GPU, or another target.")
    if hosts_of(run.slice)[0] > 1:
        raise TERMS.refused("one_host", run=run, chip=chip, hosts=hosts_of(run.slice)[0])
    for axis in ("data", "expert", "context", "width"):
        if getattr(plan, axis) > 1:
            raise TERMS.refused("no_axis", axis=axis, plan=plan, degree=getattr(plan, axis))
    if plan.tensor > 1 and plan.pipe > 1:
        raise TERMS.refused("one_split", plan=plan)
    if plan.tensor > 1:
        _refuse_tensor(run)
    if plan.weights not in TYPES:
        near = "int8" if plan.weights in ("fp8", "mxfp8") else "int4"
        raise TERMS.refused("no_gguf_type", plan=plan, near=near, types=", ".join(TYPES))
    if plan.kv not in CACHES and "int8" not in caches("generic", chip):
        raise Infeasible(f"llama.cpp has no KV cache in {plan.kv}, only {', '.join(CACHES)}; take --kv-dtype bf16.")


def _refuse_tensor(run: ServingRun) -> None:
    """What `--split-mode tensor` lacks (docs/multi-gpu.md)."""
    plan, kind = run.file.plan, str(run.fields.get("model_type", "")).lower()
    instead = f"take tensor=1,pipe={plan.tensor}"
    if kind.startswith(LAYERS_ALONE):
        raise TERMS.refused("layers_alone", run=run, kind=kind, instead=instead)
    if plan.kv not in ("bf16", "fp16"):
        raise TERMS.refused("wide_cache_with_tensor", plan=plan, otherwise=instead[5:])
