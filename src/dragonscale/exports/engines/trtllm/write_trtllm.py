"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`.

Its `tensor_parallel_size` counts all ranks of a stage: with `enable_attention_dp` each of them is a replica of the
attention, so a plan with `data` has no `tensor` beside it, and batch and token limits are those of a rank. Experts are
dealt over `moe_expert_parallel_size` of those ranks and sliced over the rest. Prompts are not cut unless chunked
prefill is on, graphs are captured for decoding alone, and only requests that fit to their end are taken. On several
hosts MPI starts a process for each GPU (`trtllm-llmapi-launch`). Pools that prefill and decode are servers of their
own, behind `trtllm-serve disaggregated`.
"""

from dataclasses import replace
from typing import Any

from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import config_file
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.serving.checkpoint import own_formats, stored_in
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import architecture
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("trtllm")
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
    shown = {"per": "rank" if run.hosts > 1 else "host", "copies": run.file.replicas or 1, "port": PORTS[run.role]}
    program = LaunchProgram(run.role or "serve", words, *hosts_of(run.slice), **shown)
    tokens = run.engine.host.stream_interval
    told = {"stream_interval": tokens > 1 and run.decodes, "eagle": _drafts(run).get("decoding_type") == "Eagle"}
    notes = (*checkpoint.notes, *TERMS.notes(told, tokens=tokens))
    as_run = plan if plan != asked else None
    return WrittenFiles({file: text}, (program,), tuple(differences), as_run, notes)


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
