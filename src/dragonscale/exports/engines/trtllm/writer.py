"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`.

Its `tensor_parallel_size` counts all ranks of a stage: with `enable_attention_dp` each of them is a replica of the
attention, so a plan with `data` has no `tensor` beside it, and batch and token limits are those of a rank. Experts are
dealt over `moe_expert_parallel_size` of those ranks and sliced over the rest. Prompts are not cut unless chunked
prefill is on, graphs are captured for decoding alone, and only requests that fit to their end are taken. On several
hosts MPI starts a process for each GPU (`trtllm-llmapi-launch`). Pools that prefill and decode are servers of their
own, behind `trtllm-serve disaggregated`.
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.engines.limits import request_length
from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for
from dragonscale.exports.engines.trtllm.words import moe_backend, slots, spoken_drafts
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import config_file
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.serving.checkpoint import own_formats, stored_in
from dragonscale.serving.legal import divisible
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("trtllm")

PORTS = {"prefill": 8001, "decode": 8002, "": 8000}
PAGE = 32
"""Tokens of a block of its cache."""


def write(run: ServingRun) -> WrittenFiles:
    """The YAML and the command of a replica, or those of two pools and of what stands before them."""
    if run.prefill is not None:
        return _pools(run, run.prefill)
    differences, as_run = _differences(run)
    text = _file(run, differences)
    return WrittenFiles({"trtllm.yaml": text}, (_program(run, "trtllm.yaml"),), differences, as_run, _notes(run))


def _pools(run: ServingRun, prefill: ServingRun) -> WrittenFiles:
    differences, as_run = _differences(run)
    more, _ = _differences(prefill)
    copies = {"prefill": prefill.file.replicas or 1, "decode": run.file.replicas or 1}
    files = {
        "decode.yaml": _file(run, differences),
        "prefill.yaml": _file(prefill, more),
        "disaggregated.yaml": header(run, _title(), differences) + yaml_text(_front(copies)),
    }
    front = (
        "trtllm-serve",
        "disaggregated",
        *flag_words(load_keys("trtllm"), {"--config_file": config_file("disaggregated.yaml")}),
    )
    programs = (
        _program(run, "decode.yaml"),
        _program(prefill, "prefill.yaml"),
        LaunchProgram("front", front, 1, 0, port=PORTS[""]),
    )
    where = TERMS.say("server_names")
    notes = tuple(dict.fromkeys((*_notes(run), *_notes(prefill))))
    both = (*differences, *(one for one in more if one not in differences))
    return WrittenFiles(files, programs, both, as_run, notes, (where,), ("disaggregated.yaml",))


def _front(copies: Mapping[str, int]) -> dict[str, Any]:
    """What `trtllm-serve disaggregated` reads."""
    pools = {"context_servers": "prefill", "generation_servers": "decode"}
    table: dict[str, Any] = {"hostname": "0.0.0.0", "port": PORTS[""]}
    for name, role in pools.items():
        urls = [f"{role}-{place}:{PORTS[role]}" for place in range(copies[role])]
        table[name] = {"num_instances": copies[role], "urls": urls}
    _check(load_keys("trtllm"), table, "disaggregated.")
    return table


def _title() -> str:
    return f"TensorRT-LLM {load_keys('trtllm').version}"


def _file(run: ServingRun, differences: tuple[PlanDifference, ...]) -> str:
    table = _args(run)
    _check(load_keys("trtllm"), table)
    return header(run, _title(), differences) + yaml_text(table)


def _check(keys: KeyTable, table: Mapping[str, Any], lead: str = "") -> None:
    """Every name of a table, and of the tables in it, is one that the software has."""
    for name, value in table.items():
        keys.check(f"{lead}{name}", None if isinstance(value, Mapping | list) else value)
        if isinstance(value, Mapping):
            _check(keys, value, f"{lead}{name}.")


def _program(run: ServingRun, file: str) -> LaunchProgram:
    hosts, chips = hosts_of(run.slice)
    flags = flag_words(
        load_keys("trtllm"), {"--host": "0.0.0.0", "--port": PORTS[run.role], "--config": config_file(file)}
    )
    words = ("trtllm-serve", _checkpoint(run).word, *flags)
    if hosts > 1:
        words = ("trtllm-llmapi-launch", *words)
    return LaunchProgram(
        run.role or "serve",
        words,
        hosts,
        chips,
        per="rank" if hosts > 1 else "host",
        copies=run.file.replicas or 1,
        port=PORTS[run.role],
    )


def _checkpoint(run: ServingRun) -> ServedCheckpoint:
    """Its formats are those of the checkpoint: nothing is quantised when one is loaded."""
    return checkpoint_for(run.engine.name, run.slice.chip, run.model, run.file.model, run.file.plan, {})


def _notes(run: ServingRun) -> tuple[str, ...]:
    said = [*_checkpoint(run).notes]
    if (tokens := run.engine.host.stream_interval) > 1 and run.role != "prefill":
        said.append(TERMS.say("stream_interval", tokens=tokens))
    drafts = run.file.speculation
    if drafts.drafts and spoken_drafts(run)["decoding_type"] == "Eagle":
        said.append(
            "speculative_config.speculative_model is a trained EAGLE-3 head of the model: name the one you have."
        )
    return tuple(said)


def _args(run: ServingRun) -> dict[str, Any]:
    """The arguments of a server."""
    plan, engine = run.file.plan, run.engine
    experts = divisible(run.model).experts
    table: dict[str, Any] = {"tensor_parallel_size": plan.data * plan.tensor, "pipeline_parallel_size": plan.pipe}
    if experts:
        table["moe_tensor_parallel_size"] = plan.data * plan.tensor // plan.expert
        table["moe_expert_parallel_size"] = plan.expert
        table["enable_attention_dp"] = plan.data > 1
    if plan.data > 1:
        table["attention_dp_config"] = {"enable_balance": True}
    if hosts_of(run.slice)[0] > 1:
        table["gpus_per_node"] = hosts_of(run.slice)[1]
    table["dtype"] = "float16" if _checkpoint(run).dtype == "fp16" else "bfloat16"
    table |= {"max_batch_size": _at_once(run), "max_num_tokens": engine.scheduling.max_tokens}
    if length := request_length(run):
        table["max_seq_len"] = length
    table["enable_chunked_prefill"] = _chunked(run)
    table["kv_cache_config"] = {
        "dtype": plan.kv if plan.kv in ("fp8", "nvfp4") else "auto",
        "free_gpu_memory_fraction": engine.memory.share,
        "enable_block_reuse": True,
        "tokens_per_block": PAGE,
    }
    table["scheduler_config"] = {"capacity_scheduler_policy": _policy(run)}
    table |= _graphs(run)
    if experts:
        table["moe_config"] = _experts(run, experts)
    if run.file.speculation.drafts and run.role != "prefill":
        table["speculative_config"] = spoken_drafts(run)
    table["stream_interval"] = engine.host.stream_interval
    return table


def _at_once(run: ServingRun) -> int:
    """Requests of an iteration of a rank; where prompts alone run, as many as its tokens hold."""
    if run.role != "prefill":
        return run.seqs
    return max(run.seqs, run.engine.scheduling.max_tokens // max(run.file.traffic.prompt, 1))


def _chunked(run: ServingRun) -> bool:
    return run.file.traffic.prompt > run.engine.scheduling.max_tokens or run.engine.scheduling.scheduler == "chunked"


def _policy(run: ServingRun) -> str:
    return "GUARANTEED_NO_EVICT" if run.engine.scheduling.reserve == "whole" else "MAX_UTILIZATION"


def _graphs(run: ServingRun) -> dict[str, Any]:
    """Graphs and the overlapped scheduler; a server that prefills has no use for either."""
    graphs = None if run.role == "prefill" else {"enable_padding": True, "max_batch_size": run.seqs}
    table: dict[str, Any] = {"cuda_graph_config": graphs, "disable_overlap_scheduler": run.role == "prefill"}
    if run.role:
        longest = -(-max(run.file.traffic.prompt, run.engine.scheduling.max_tokens) // PAGE) * PAGE
        table["cache_transceiver_config"] = {"backend": "DEFAULT", "max_tokens_in_buffer": longest}
    return table


def _experts(run: ServingRun, experts: int) -> dict[str, Any]:
    table: dict[str, Any] = {"backend": moe_backend(run)}
    if table["backend"] == "WIDEEP":
        table["load_balancer"] = {"num_slots": slots(run, experts), "layer_updates_per_iter": 1}
    return table


def _differences(run: ServingRun) -> tuple[tuple[PlanDifference, ...], ServingPlan | None]:
    """What it does otherwise, and the plan that it then runs."""
    from dataclasses import replace

    plan, found = run.file.plan, []
    _refuse(run)
    checkpoint = _checkpoint(run)
    changed = checkpoint.plan
    found += checkpoint.differences
    if plan.spread != "copy" and plan.tensor > 1:
        found.append(TERMS.difference("spread", plan=plan))
        changed = replace(changed, spread="copy")
    if run.file.traffic.prompt > run.engine.scheduling.max_tokens and run.engine.scheduling.scheduler != "chunked":
        prompt, most = run.file.traffic.prompt, run.engine.scheduling.max_tokens
        why = f"prompts of {prompt:,} tokens do not fit an iteration of {most:,}"
        found.append(PlanDifference("whole prompts in an iteration", "they run in chunks", why))
    return tuple(found), changed if changed != plan else None


def _refuse(run: ServingRun) -> None:
    """What it cannot run at all."""
    plan = run.file.plan
    if plan.data > 1 and plan.tensor > 1:
        near = f"data={plan.data * plan.tensor},tensor=1"
        raise TERMS.refused("data_with_tensor", plan=plan, near=near, ranks=plan.data * plan.tensor)
    if run.file.speculation.drafts and plan.pipe > 1 and run.role != "prefill":
        raise TERMS.refused("drafts_in_pipeline", plan=plan)
    if own_formats(run.engine.name, run.slice.chip, run.model) is None and stored_in(run.model) == plan.weights:
        raise TERMS.refused("no_kernels", run=run, plan=plan)
    split = plan.spread == "sequence" and plan.tensor > min(divisible(run.model).kv_heads, default=1)
    if plan.context > 1 or split:
        said = f"context={plan.context}" if plan.context > 1 else "spread=sequence"
        raise TERMS.refused("split_cache", said=said, version=load_keys("trtllm").version)
