"""Hugging Face accelerate with the Trainer of transformers: a config of `accelerate launch`, and the arguments of a
training script.

The mesh is accelerate's: FSDP2 with a `ParallelismConfig` (`dp_replicate` for `data`, `dp_shard` for `fsdp`, `tp`,
`cp`), or plain data parallelism where nothing is sharded. Ulysses attention (`sp`) runs in DeepSpeed there, so such a
plan is a config of its plugin. Batch, steps, optimizer and checkpoints are the Trainer's arguments. They are written
for `run_clm.py`, the example of transformers that trains language models; any script that reads TrainingArguments takes
the same file without the lines that name model and data.

Weights: the stacks `hf-fsdp` hold them in fp32 and compute in bf16 (mixed precision), `hf-bf16` load and keep
them in bf16.

Read are a config, the flags of `accelerate launch`, or the Trainer's own flags under torchrun. FSDP1's names are read
too (`fsdp_sharding_strategy FULL_SHARD` is ZeRO-3, `SHARD_GRAD_OP` ZeRO-2, `HYBRID_SHARD` shards inside a host), and
the DeepSpeed plugin's few settings. What a launch does not say (the model, the batch, the sequence) comes from the
script's arguments, from a JSON file that they name, or is left open.
"""

import json
import re
from dataclasses import replace
from typing import Any

from dragonscale.errors import unknown
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import flag_words, load_keys, options, whole
from dragonscale.exports.model_names import EXPERTS, SIZES, hub_id, is_changed
from dragonscale.exports.runs import STEPS, TrainingRun, header
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.hub_run import PAIRED, PLANNED, HubRun, file_of, flat_config
from dragonscale.exports.written import LEADER, RANK, PlanDifference, WrittenFiles, config_file, yaml_text
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.stack import stacks

TERMS = load_terms("accelerate")

TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "fsdp", "bf16", "fp16")
"""Arguments by which a script of the Trainer is known."""
TYPES = ("FSDP", "MULTI_GPU", "DEEPSPEED", "NO", "XLA", "TPU", "MEGATRON_LM", "MULTI_XPU", "MULTI_NPU", "MULTI_CPU")


UNPLANNED = ("torch_compile", "galore", "optim_target")
_ADAPTERS = {"use_lora": "use_peft", "use_qlora": "load_in_4bit"}
_ADAPTERS |= {"lora_rank": "lora_r", "lora_dim": "lora_r", "lora_target": "lora_target_modules"}
"""What scripts call arguments that TRL has too."""


def _launch(source: Source, command: ShellCommand) -> HubRun:
    run, launch = HubRun(), dict(command.launch)
    if command.launcher == "accelerate":
        inner = source.beside(launch.get("config_file", ""))
        if inner is not None:
            run.config = flat_config(inner.table or {})
        elif "config_file" in launch:
            run.notes.append(f"{launch['config_file']} is not here, so that only the flags of the launch are read.")
        own = {name.replace("-", "_"): value for name, value in launch.items() if "_" in name or _is_config(name)}
        run.config |= {name: value for name, value in own.items() if name != "config_file"}  # without Slurm's
        if used := [kind for kind in ("FSDP", "DEEPSPEED") if launch.get(f"use_{kind.lower()}")]:
            run.config["distributed_type"] = used[0]
    nodes = launch.get("nnodes", "")  # torchrun takes a range too
    run.hosts = run.number("num_machines") or (whole(nodes, "nnodes") if nodes.isdecimal() else 0)
    # -1 is accelerate's word for not said
    run.processes = max(run.number("num_processes", least=-1), 0) or command.processes
    run.arguments = {"trainer": _trainer(command.words), **_arguments(source, command.words)}
    return run


def _trainer(words: list[str]) -> str:
    """What a script trains by: its name says it, or a setting of those that generate answers."""
    script = next((word for word in words if word.endswith(".py")), "").rpartition("/")[2].lower()
    settings = {name for name, kind in load_terms("trl").tables["tells"].items() if kind == "grpo"}
    told = ["grpo"] if settings & {name.replace("-", "_") for name, _ in options(words)} else []
    known = (*PAIRED, "kto", *TERMS.lists["generating"])
    return next(iter([*told, *(word for word in re.split(r"[\W_\d]+", script) if word in known)]), "sft")


def _arguments(source: Source, words: list[str]) -> dict[str, Any]:
    """The arguments of a script: flags, or the JSON or YAML file that stands alone after it."""
    rest = words[next((place for place, word in enumerate(words) if word.endswith(".py")), 0) + 1 :]
    if len(rest) == 1 and rest[0].endswith((".json", ".yaml", ".yml")):
        inner = source.beside(rest[0])
        return dict(inner.table or {}) if inner is not None else {}
    return {name.replace("-", "_"): values[0] if values else True for name, values in options(rest)}


def recognises(source: Source) -> bool:
    """A config of `accelerate launch`, a command of it, or a script with the Trainer's arguments."""
    table = source.table or {}
    if isinstance(table.get("distributed_type"), str) or ("fsdp_config" in table and "num_processes" in table):
        return True
    return _command(source) is not None


def _command(source: Source) -> ShellCommand | None:
    for command in source.commands:
        if command.launcher == "accelerate":
            return command
        flags = {name.replace("-", "_") for name, _ in options(command.words)}
        script = any(word.endswith(".py") for word in command.words)
        if script and "per_device_train_batch_size" in flags and len(flags & set(TRAINER)) > 1:
            return command
    return None


def read(source: Source, given: Given) -> Imported:
    """The plan of a config or a command."""
    command = _command(source)
    run = _launch(source, command) if command is not None else HubRun(flat_config(source.table or {}))
    kind = run.kind
    if kind and kind not in TYPES:
        raise unknown("distributed_type of accelerate called", run.config["distributed_type"], TYPES)
    if command is not None and command.env.get("XLA_USE_SPMD") == "1":  # one process has all chips: batches are theirs
        kind = "XLA"
    if kind in ("XLA", "TPU", "MEGATRON_LM"):
        raise TERMS.wrong("other_backend", source=source, kind=kind)
    run.arguments = {_ADAPTERS.get(name, name): value for name, value in run.arguments.items()}
    if any(name.startswith("lora_") for name in run.arguments):
        run.arguments = {"use_peft": True, "lora_target_modules": "q_proj,v_proj", **run.arguments}
    file = file_of(source, given, run)
    known = load_keys("accelerate")
    names = [name for name in run.arguments if name not in PLANNED]
    unplanned = [name for name in names if name.startswith(UNPLANNED) and str(run.arguments[name]).lower() != "false"]
    unplanned += run.unplanned
    stray = [name for name in run.config if not _is_config(name) and known.known(f"args.{name}") is None]
    ignored = [name for name in names if name not in unplanned]
    return Imported("accelerate", known.version, file, tuple(run.notes), tuple(ignored), tuple(unplanned), tuple(stray))


def _is_config(name: str) -> bool:
    table = load_keys("accelerate").keys
    sections = ("", "fsdp_config.", "parallelism_config.", "fp8_config.", "deepspeed_config.", "dynamo_config.")
    known = any(f"config.{section}{name}" in table for section in sections)
    return known or f"--{name}" in table or name.startswith("megatron_lm")


CONFIG, ARGUMENTS, SCRIPT = "accelerate.yaml", "training_args.json", "run_clm.py"
PORT = 29500


def mesh_settings(run: TrainingRun) -> dict[str, Any]:
    """What config and arguments are about. Ranks that shard nothing are replicas; the stacks `hf` keep weights in bf16
    alone (`pure`); blocks are recomputed by FSDP where it shards, by the Trainer elsewhere."""
    plan = run.plan
    sharding = (plan.fsdp > 1 and plan.zero > 0) or plan.context > 1
    ulysses, contexts = (plan.context, 1) if plan.context_by == "ulysses" else (1, plan.context)
    pure = stacks()[run.file.stack].state.master_bytes == 0 and plan.dtype == "bf16"
    kind = "DEEPSPEED" if ulysses > 1 else "FSDP" if sharding else "MULTI_GPU" if plan.chips > 1 else "NO"
    meshed = ulysses == 1 and (kind == "FSDP" or plan.tensor > 1)
    values: dict[str, Any] = {"kind": kind, "meshed": meshed, "parallel": ulysses > 1 or meshed, "pure": pure}
    values |= {"inner": max(plan.tensor, contexts), "twice": 2 * contexts, "each": plan.replicas * plan.microbatch}
    return values | {
        "sharding": sharding,
        "short": short_plan(plan),
        "ulysses": ulysses,
        "contexts": contexts,
        "replicas": plan.data if sharding else plan.data * plan.fsdp,
        "shards": plan.fsdp if sharding else 1,
        "precision": "fp32" if pure else plan.dtype,
        "fsdp_checkpoints": run.whole_blocks,
        "checkpointing": run.whole_blocks and (not sharding or ulysses > 1),
        "liger": "liger" in run.file.stack,
    }


def write(run: TrainingRun) -> WrittenFiles:
    """The config, the arguments, and the command of a host."""
    run.check_built("transformers")
    plan, differences = as_run(run)
    ran, table = run.running(plan), load_keys("accelerate")
    settings = mesh_settings(ran)
    TERMS.refuse(ran, **settings)
    config = TERMS.group("config", ran, **settings)
    arguments = model_arguments(run) | TERMS.group("arguments", ran, **settings)
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
    names = {"SCRIPT": SCRIPT, "ARGUMENTS": ARGUMENTS, "tokenizer": hub_id(run.file.model), "trial": STEPS}
    notes = TERMS.remark_on(ran, fused="foak" in run.file.stack, **names)
    return run.trained(plan, words, WrittenFiles(files, differences=tuple(differences), notes=notes))


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


def model_arguments(run: TrainingRun) -> dict[str, Any]:
    """The model, whose weights start random: its repository on the Hub, or its type and the sizes that differ from
    those that the type has."""
    name = hub_id(run.file.model)
    if not is_changed(run.file.model):
        return {"config_name": name, "tokenizer_name": name}
    keys = (*SIZES, *EXPERTS, "max_position_embeddings", "tie_word_embeddings")
    sizes = {key: run.fields[key] for key in keys if run.fields.get(key) is not None}
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in sizes.items()}
    overrides = ",".join(f"{key}={word}" for key, word in words.items())
    return {"model_type": run.fields["model_type"], "config_overrides": overrides, "tokenizer_name": name}
