"""Hugging Face accelerate with the Trainer of transformers: a config of `accelerate launch`, and the arguments of a
training script.

The mesh is accelerate's: FSDP2 with a `ParallelismConfig` (`dp_replicate` for `data`, `dp_shard` for `fsdp`, `tp`,
`cp`), or plain data parallelism where nothing is sharded. Ulysses attention (`sp`) runs in DeepSpeed there, so such a
plan is a config of its plugin. Batch, steps, optimizer and checkpoints are the Trainer's arguments. They are written
for `run_clm.py`, the example of transformers that trains language models; any script that reads TrainingArguments takes
the same file without the lines that name model and data.

Weights: the stacks `hf-fsdp` hold them in fp32 and compute in bf16 (mixed precision), the stacks `hf` load and keep
them in bf16.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import EXPERTS, SIZES, hub_id
from dragonscale.exports.runs import TrainingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import LEADER, RANK, config_file
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.stack import stacks

TERMS = load_terms("accelerate")
CONFIG, ARGUMENTS, SCRIPT = "accelerate.yaml", "training_args.json", "run_clm.py"
PORT = 29500


def _settings(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """What config and arguments are about. Ranks that shard nothing are replicas; the stacks `hf` keep weights in bf16
    alone (`pure`); blocks are recomputed by FSDP where it shards, by the Trainer elsewhere."""
    sharding, by_heads = is_sharded(plan), plan.context_by == "ulysses"
    ulysses, contexts = (plan.context, 1) if by_heads else (1, plan.context)
    pure = stacks()[run.file.stack].state.master_bytes == 0 and run.plan.dtype == "bf16"
    kind = "DEEPSPEED" if ulysses > 1 else "FSDP" if sharding else "MULTI_GPU" if plan.chips > 1 else "NO"
    meshed = ulysses == 1 and (kind == "FSDP" or plan.tensor > 1)
    values: dict[str, Any] = {
        "run": run,
        "plan": plan,
        "said": run.said,
        "kind": kind,
        "meshed": meshed,
        "zero3": plan.zero == 3,
    }
    values |= {"ulysses": ulysses, "contexts": contexts, "parallel": ulysses > 1 or meshed, "pure": pure}
    values |= {"liger": "liger" in run.file.stack, "adam": plan.optimizer.startswith("adam")}
    return values | {
        "replicas": plan.data if sharding else plan.data * plan.fsdp,
        "shards": plan.fsdp if sharding else 1,
        "precision": "fp32" if pure else plan.dtype,
        "checkpointing": run.whole_blocks and (not sharding or ulysses > 1),
        "accumulation": run.file.batch // (plan.replicas * plan.microbatch),
    }


def is_sharded(plan: Plan) -> bool:
    """Whether FSDP has something to shard."""
    return (plan.fsdp > 1 and plan.zero > 0) or plan.context > 1


def write(run: TrainingRun) -> WrittenFiles:
    """The config, the arguments, and the command of a host."""
    plan, differences = as_run(run)
    settings, table = _settings(run, plan), load_keys("accelerate")
    check(run, plan, settings)
    config = TERMS.group("config", **settings)
    arguments = model_arguments(run) | TERMS.group("arguments", **settings)
    table.check_all(config, "config.")
    table.check_all(arguments, "args.")
    files = {
        CONFIG: header(run, f"Hugging Face accelerate {table.version}", differences) + yaml_text(config),
        ARGUMENTS: json.dumps(arguments, indent=2) + "\n",
    }
    flags: dict[str, Any] = {"--config_file": config_file(CONFIG)}
    if run.hosts > 1:
        flags |= {"--machine_rank": RANK, "--main_process_ip": LEADER, "--main_process_port": PORT}
    words = ("accelerate", "launch", *flag_words(table, flags), SCRIPT, config_file(ARGUMENTS))
    program = LaunchProgram("train", words, *hosts_of(run.slice))
    return WrittenFiles(files, (program,), tuple(differences), None if plan == run.plan else plan, notes(run, plan))


def as_run(run: TrainingRun) -> tuple[Plan, list[PlanDifference]]:
    """The plan as accelerate runs it, and what differs."""
    plan, differences = run.plan, list[PlanDifference]()
    if plan.tensor > 1 and plan.sequence:
        differences.append(TERMS.difference("sequence"))
        plan = replace(plan, sequence=False)
    if plan.optimizer == "adam-bf16":
        differences.append(TERMS.difference("optimizer"))
        plan = replace(plan, optimizer="adam")
    return plan, differences


def check(run: TrainingRun, plan: Plan, settings: Mapping[str, Any]) -> None:
    """What accelerate refuses beyond the rules of the stack."""
    each, replicas, contexts = plan.replicas * plan.microbatch, settings["replicas"], settings["contexts"]
    checks = {
        "unsharded_context": plan.context > 1 and plan.zero == 0,
        "ulysses_with_tensor": settings["ulysses"] > 1 and plan.tensor > 1,
        "ulysses_with_data": settings["ulysses"] > 1 and plan.data > 1,
        "bare_replicas": replicas > 1 and settings["shards"] == 1 and (plan.tensor > 1 or contexts > 1),
        "bare_fp8": plan.dtype == "fp8" and not is_sharded(plan) and plan.chips > 1,
        "sequence_multiple": run.file.seq % (2 * contexts),
        "batch_multiple": run.file.batch % each,
    }
    TERMS.refuse(checks, plan=plan, run=run, short=short_plan(plan), replicas=replicas, twice=2 * contexts, each=each)


def model_arguments(run: TrainingRun) -> dict[str, Any]:
    """The model, whose weights start random: its repository on the Hub, or its type and the sizes that differ from
    those that the type has."""
    name = hub_id(run.file.model)
    if "?" not in run.file.model:
        return {"config_name": name, "tokenizer_name": name}
    keys = (*SIZES, *EXPERTS, "max_position_embeddings", "tie_word_embeddings")
    sizes = {key: run.fields[key] for key in keys if run.fields.get(key) is not None}
    overrides = ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in sizes.items()
    )
    return {"model_type": run.fields["model_type"], "config_overrides": overrides, "tokenizer_name": name}


def notes(run: TrainingRun, plan: Plan) -> tuple[str, ...]:
    """What a user still has to see to."""
    told = {
        "script": True,
        "data": True,
        "shared_folder": run.hosts > 1,
        "tensor_script": plan.tensor > 1,
        "fused_loss": "foak" in run.file.stack,
        "no_steps": not run.steps,
    }
    return TERMS.notes(told, SCRIPT=SCRIPT, ARGUMENTS=ARGUMENTS, tokenizer=hub_id(run.file.model))
