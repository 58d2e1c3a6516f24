"""DeepSpeed: a config in JSON, and the Hugging Face Trainer that trains by it.

DeepSpeed is a library: what it shards, offloads and how it splits a batch is said by `ds_config.json`; the model and
its sequences are the program's. The program here is the Trainer's own example for causal language models, `run_clm.py`
(examples/pytorch/language-modeling of transformers), whose arguments must agree with the config. ZeRO's state is split
over all data-parallel ranks: replicas of groups of shards (MiCS) were removed in DeepSpeed 0.19. Experts are spread by
AutoEP, tensors by AutoTP, sequences by Ulysses, which accelerate sets up. A pipeline is a model written as a
`PipelineModule`, which no config can say.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import TrainingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import Word, config_file
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.training.plan import Plan

TERMS = load_terms("deepspeed")
FILE, MODEL, SCRIPT = "ds_config.json", "model_config.json", "run_clm.py"
AUTO_EP = ("mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3")
"""Types of models whose experts AutoEP finds by itself."""
_OURS = ("name", "source", "parameters", "aliases", "checkpoint", "text_config")


def write(run: TrainingRun) -> WrittenFiles:
    """The config, and the command of a process."""
    plan, differences = as_run(run)
    run, asked = replace(run, file=replace(run.file, plan=plan)), run.plan
    _check(run)
    table, config = load_keys("deepspeed"), _config(run)
    table.check_all(config)
    files = {FILE: json.dumps(config, indent=2) + "\n"}
    tokenizer = hub_id(run.file.model)
    model: Word = tokenizer
    if "?" in run.file.model or "/" not in tokenizer:
        own = {name: value for name, value in run.fields.items() if name not in _OURS}
        files[MODEL] = json.dumps(own, indent=2, default=str) + "\n"
        model = config_file(MODEL)
    flags = {"--deepspeed": config_file(FILE), "--config_name": model, "--tokenizer_name": tokenizer}
    words = (SCRIPT, *flag_words(table, flags | TERMS.group("arguments", run)))
    env = {"PARALLELISM_CONFIG_SP_SIZE": str(plan.context)} if plan.context > 1 else {}
    env = {**TERMS.group("ulysses_environment"), **env} if env else env
    program = LaunchProgram("train", words, *hosts_of(run.slice), per="chip", env=env)
    return WrittenFiles(files, (program,), differences, plan if plan != asked else None, _notes(run))


def _notes(run: TrainingRun) -> tuple[str, ...]:
    """What a user still has to see to."""
    told = {
        "script": True,
        "data": not run.said.get("data"),
        "weights": True,
        "shared_folder": run.hosts > 1,
        "no_steps": not run.all_steps,
    }
    return TERMS.notes(told, tokenizer=hub_id(run.file.model))


def as_run(run: TrainingRun) -> tuple[Plan, tuple[PlanDifference, ...]]:
    """The plan that DeepSpeed runs, and in what it differs from the one given."""
    plan, differences = run.plan, list[PlanDifference]()
    if plan.pipe > 1:
        raise TERMS.refused("pipeline", plan=plan)
    if not plan.zero or plan.fsdp * plan.expert * plan.context == 1:
        plan = replace(plan, data=plan.data * plan.fsdp, fsdp=1, zero=0)
    elif plan.data > 1:
        differences.append(TERMS.difference("data", plan=plan, apart=plan.data * plan.fsdp))
        plan = replace(plan, data=1, fsdp=plan.data * plan.fsdp)
    if plan.remat == "offload":
        differences.append(TERMS.difference("remat"))
        plan = replace(plan, remat="block")
    return plan, tuple(differences)


def _check(run: TrainingRun) -> None:
    """What DeepSpeed and accelerate refuse when they start."""
    plan, fields, spread = run.plan, run.fields, _spread(run)
    kv = int(fields.get("num_key_value_heads") or fields.get("num_attention_heads") or 1)
    checks = {
        "whole_mesh": plan.tensor > 1 and plan.tensor != plan.chips,
        "offload": plan.offload != "none" and not plan.zero,
        "ulysses_heads": plan.context > 1 and kv % plan.context and plan.context % kv,
        "auto_ep": spread > 1 and str(fields.get("model_type")) not in AUTO_EP,
        "offload_with_experts": spread > 1 and plan.tensor > 1 and plan.offload != "none",
        "no_class": "model_type" not in fields,
    }
    TERMS.refuse(checks, plan=plan, run=run, kv=kv, types=", ".join(AUTO_EP), kind=fields.get("model_type"))


def _spread(run: TrainingRun) -> int:
    """Ranks that experts are spread over."""
    return run.plan.expert * run.plan.tensor if run.experts else 1


def _config(run: TrainingRun) -> Mapping[str, Any]:
    plan, config = run.plan, TERMS.group("config", run)
    if _spread(run) > 1:
        config["expert_parallel"] = {"enabled": True, "autoep_size": _spread(run), "use_grouped_mm": True}
    return config | ({"sequence_parallel_size": plan.context} if plan.context > 1 else {})
