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
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.exports.imported import Given, Imported, Source, slice_counted, training_file
from dragonscale.exports.keys import flag_words, load_keys, options, truth, whole
from dragonscale.exports.model_names import EXPERTS, SIZES, hub_id, model_of_sizes, preset_named
from dragonscale.exports.runs import TrainingRun, header, hosts_of
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LEADER, RANK, PlanDifference, WrittenFiles, config_file, yaml_text
from dragonscale.models.catalogue import is_preset
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.plan_file import TrainingFile
from dragonscale.training.stack import stacks

TERMS = load_terms("accelerate")

TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "fsdp", "bf16", "fp16")
"""Arguments by which a script of the Trainer is known."""
TYPES = ("FSDP", "MULTI_GPU", "DEEPSPEED", "NO", "XLA", "TPU", "MEGATRON_LM", "MULTI_XPU", "MULTI_NPU", "MULTI_CPU")
SHARDS = TERMS.tables["shards"]
OPTIMIZERS = {"adafactor": "adafactor", "sgd": "sgd"}
PLANNED = frozenset(TERMS.lists["planned"])
UNPLANNED = ("torch_compile", "neftune", "lora", "load_in", "use_peft", "galore", "optim_target", "packing")
LENGTHS = ("block_size", "max_length", "max_seq_length", "model_max_length")


@dataclass
class HubRun:
    """What a launch says: the config's entries with the tables laid flat, the script's arguments, the processes and
    hosts."""

    config: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    processes: int = 0
    hosts: int = 0
    notes: list[str] = field(default_factory=list)

    def number(self, name: str, default: int = 0, least: int = 1) -> int:
        """A whole number of the config or the arguments; nothing and "auto" leave it unsaid. The Trainer takes its own
        steps of accumulation before those of the config."""
        own_first = name == "gradient_accumulation_steps"
        places = (self.arguments, self.config) if own_first else (self.config, self.arguments)
        value = next((table[name] for table in places if table.get(name) not in (None, "auto")), None)
        return default if value is None else whole(value, f"Hugging Face's {name}", least)

    def truth(self, name: str) -> bool:
        """A switch of the config or the arguments; "auto" leaves it off."""
        value = self.config.get(name, self.arguments.get(name, False))
        return value != "auto" and truth(value, f"Hugging Face's {name}")

    @property
    def kind(self) -> str:
        return str(self.config.get("distributed_type", "")).upper()

    @property
    def loaded(self) -> str:
        """The format in which the weights are loaded."""
        return str(self.arguments.get("dtype", self.arguments.get("torch_dtype", "")))

    @property
    def by_deepspeed(self) -> bool:
        return self.kind == "DEEPSPEED" or bool(self.arguments.get("deepspeed"))


def flat_config(table: Mapping[str, Any]) -> dict[str, Any]:
    """A config with its tables laid flat, as accelerate itself does; names in them may lack the table's prefix."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and name.endswith("_config"):
            prefix = TERMS.tables["prefixes"].get(name, "")
            found |= {key if key.startswith(prefix) else prefix + key: own for key, own in value.items()}
        else:
            found[name] = value
    return found


def _launch(source: Source, command: ShellCommand) -> HubRun:
    run, launch = HubRun(), dict(command.launch)
    if command.launcher == "accelerate":
        inner = source.beside(launch.get("config_file", ""))
        if inner is not None:
            run.config = flat_config(inner.table or {})
        elif "config_file" in launch:
            run.notes.append(f"{launch['config_file']} is not here, so that only the flags of the launch are read.")
        run.config |= {name.replace("-", "_"): value for name, value in launch.items() if name != "config_file"}
        if used := [kind for kind in ("FSDP", "DEEPSPEED") if launch.get(f"use_{kind.lower()}")]:
            run.config["distributed_type"] = used[0]
    nodes = launch.get("nnodes", "")  # torchrun takes a range too
    run.hosts = run.number("num_machines") or (whole(nodes, "nnodes") if nodes.isdecimal() else 0)
    # -1 is accelerate's word for not said
    run.processes = max(run.number("num_processes", least=-1), 0) or command.processes
    run.arguments = _arguments(source, command.words)
    return run


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
    if kind in ("XLA", "TPU", "MEGATRON_LM"):
        raise TERMS.wrong("other_backend", source=source, kind=kind)
    file = _file(source, given, run)
    known = load_keys("accelerate")
    names = [name for name in run.arguments if name not in PLANNED]
    unplanned = [name for name in names if name.startswith(UNPLANNED) and str(run.arguments[name]).lower() != "false"]
    if run.truth("fsdp_offload_params") or "offload" in str(run.arguments.get("fsdp", "")):
        unplanned.append("fsdp_offload_params")
    stray = [name for name in run.config if not _is_config(name) and known.known(f"args.{name}") is None]
    ignored = [name for name in names if name not in unplanned]
    return Imported("accelerate", known.version, file, tuple(run.notes), tuple(ignored), tuple(unplanned), tuple(stray))


def _is_config(name: str) -> bool:
    table = load_keys("accelerate").keys
    sections = ("", "fsdp_config.", "parallelism_config.", "fp8_config.", "deepspeed_config.", "dynamo_config.")
    known = any(f"config.{section}{name}" in table for section in sections)
    return known or f"--{name}" in table or name.startswith("megatron_lm")


def _file(source: Source, given: Given, run: HubRun) -> TrainingFile:
    chips = run.processes or run.number("num_processes", least=-1)
    piece = slice_counted(source, given, max(chips, 0))
    chips = piece.chips if piece is not None else chips
    if chips < 1:
        raise source.needs("how many chips it is for", "them by --on, such as h100:8")
    hosts = run.hosts or run.number("num_machines") or (hosts_of(piece)[0] if piece is not None else 1)
    plan = _precision(run, _mesh(source, run, chips, hosts))
    microbatch = run.number("per_device_train_batch_size", run.number("per_gpu_train_batch_size", 0))
    inside = _deepspeed(source, run)
    said = inside.get("train_micro_batch_size_per_gpu")
    microbatch = microbatch or (0 if said in (None, "auto") else whole(said, "train_micro_batch_size_per_gpu"))
    rounds = run.number("gradient_accumulation_steps", 1)
    plan = replace(plan, microbatch=max(microbatch, 1))
    batch = plan.replicas * plan.microbatch * rounds if microbatch else 0
    seq = next((run.number(name) for name in LENGTHS if name in run.arguments), 0)
    steps = run.number("max_steps", -1, least=-1)
    stack = _stack(source, run)
    return training_file(source, given.on(piece), plan, batch, seq, _model(source, run), stack, max(steps, 0))


def _mesh(source: Source, run: HubRun, chips: int, hosts: int) -> Plan:
    names = {"data": "dp_replicate", "fsdp": "dp_shard", "tensor": "tp", "context": "cp", "ulysses": "sp"}
    sizes = {name: run.number(f"parallelism_config_{own}_size", 1) for name, own in names.items()}
    ulysses, context_by = sizes.pop("ulysses"), "gather"
    if ulysses > 1:
        sizes["context"], context_by = ulysses, "ulysses"
    elif str(run.config.get("parallelism_config_cp_comm_strategy", "")) == "alltoall":
        context_by = "ring"
    plan = replace(Plan(context_by=context_by, sequence=sizes["tensor"] == 1), **sizes)
    legacy = str(run.arguments.get("fsdp", "") or "").lower()
    shards = run.kind == "FSDP" or legacy not in ("", "false")
    if run.by_deepspeed:
        stage = _stage(source, run)
        rest, over = divmod(chips, plan.tensor * plan.context)
        if over:
            raise InputError(f"{chips} chips do not divide by tensor={plan.tensor} x context={plan.context}.")
        return replace(plan, fsdp=rest if stage else 1, data=1 if stage else rest, zero=stage or plan.zero)
    rest = math.prod((plan.data, plan.fsdp, plan.tensor, plan.context))
    if rest > 1 and rest != chips:
        if plan.data * plan.fsdp > 1 or chips % rest:
            raise InputError(f"{source.shown} has a mesh of {rest} ranks, and there are {chips} chips.")
        plan = replace(plan, data=chips // rest)
    if rest > 1:
        zero = 3 if str(run.config.get("fsdp_reshard_after_forward", "true")).lower() == "true" else 2
        return replace(plan, zero=zero if shards else 3)
    if not shards:
        return replace(plan, data=chips)
    zero, hybrid = _strategy(run, legacy)
    if hybrid and chips % hosts:
        raise InputError(f"{source.shown} shards inside each of {hosts} hosts, which do not divide {chips} chips.")
    inside = chips // hosts if hybrid else chips
    return replace(plan, data=chips // inside, fsdp=inside, zero=zero) if zero else replace(plan, data=chips)


def _strategy(run: HubRun, legacy: str) -> tuple[int, bool]:
    """FSDP's ZeRO stage, and whether it shards inside hosts alone."""
    own = run.arguments.get("fsdp_config")
    inner = {key.removeprefix("fsdp_"): value for key, value in own.items()} if isinstance(own, dict) else {}
    reshard = run.config.get("fsdp_reshard_after_forward", inner.get("reshard_after_forward"))
    named = str(run.config.get("fsdp_sharding_strategy", reshard if reshard is not None else "")).lower()
    words = [word for word in legacy.replace(",", " ").split() if word in SHARDS]
    named = words[0] if words else named
    if named in ("true", ""):
        return 3, False
    if named == "false":
        return 2, False
    if named not in SHARDS:
        raise unknown("sharding strategy of FSDP called", named, SHARDS)
    return SHARDS[named], named.startswith("hybrid") or named in ("4", "5")


def _deepspeed(source: Source, run: HubRun) -> dict[str, Any]:
    """The DeepSpeed config that a launch names."""
    named = run.config.get("deepspeed_config_file") or run.arguments.get("deepspeed")
    if isinstance(named, dict):
        return named
    inner = source.beside(str(named or ""))
    return dict(inner.table or {}) if inner is not None else {}


def _stage(source: Source, run: HubRun) -> int:
    table = _deepspeed(source, run).get("zero_optimization")
    stage = table.get("stage") if isinstance(table, dict) else None
    named = str(run.config.get("deepspeed_config_file") or run.arguments.get("deepspeed") or "")
    guess = next((number for number in "0123" if re.search(f"zero{number}|stage_?{number}", named)), "2")
    if stage is None and "zero_stage" not in run.config and named:
        run.notes.append(f"{named} is not here; ZeRO-{guess} is assumed from its name.")
    return whole(stage if stage is not None else run.config.get("zero_stage", guess), "zero_stage", 0, 3)


def _precision(run: HubRun, plan: Plan) -> Plan:
    mixed = str(run.config.get("mixed_precision", "") or "").lower()
    dtype = mixed if mixed in ("bf16", "fp16", "fp8") else ""
    dtype = dtype or next((name for name in ("bf16", "fp16") if run.truth(name)), "")
    if not dtype:
        wide = "tf32" if run.truth("tf32") else "fp32" if run.arguments else "bf16"
        dtype = {"bfloat16": "bf16", "float16": "fp16"}.get(run.loaded, wide)
    block = run.truth("gradient_checkpointing") or run.truth("fsdp_activation_checkpointing")
    named = str(run.arguments.get("optim", "adamw_torch"))
    optimizer = "adam8" if "8bit" in named else next((own for word, own in OPTIMIZERS.items() if word in named), "adam")
    return replace(plan, dtype=dtype, remat="block" if block else "none", optimizer=optimizer)


def _model(source: Source, run: HubRun) -> str:
    kept = source.kept_word("model")
    if overrides := run.arguments.get("config_overrides"):
        parts = [part.partition("=") for part in str(overrides).split(",")]
        fields: dict[str, Any] = {key: whole(value, key, 0) for key, _, value in parts if value.isdecimal()}
        return model_of_sizes({"model_type": run.arguments.get("model_type"), **fields}, kept.partition("?")[0])
    name = str(run.arguments.get("model_name_or_path") or run.arguments.get("config_name") or "")
    found = preset_named(name) if name else ""
    same = kept and is_preset(kept) and is_preset(name) and preset_named(name) == preset_named(kept)
    return kept if same else found


def _stack(source: Source, run: HubRun) -> str:
    """The stack whose expectation fits: the header's where the arguments agree with it."""
    kept = source.kept_word("stack")
    said = str(run.config.get("mixed_precision", "no") or "no").lower() != "no"
    mixed = said or run.truth("bf16") or run.truth("fp16")
    pure = run.loaded == "bfloat16" and not (mixed and run.config)
    liger = run.truth("use_liger_kernel")
    if kept and ("liger" in kept) == liger and ("fsdp" not in kept) == pure:
        return kept
    if run.by_deepspeed and not kept:
        return "deepspeed"
    return ("hf-bf16" if not liger else "hf-liger") if pure else "hf-fsdp" + ("-liger" if liger else "")


CONFIG, ARGUMENTS, SCRIPT = "accelerate.yaml", "training_args.json", "run_clm.py"
PORT = 29500


def _settings(run: TrainingRun) -> dict[str, Any]:
    """What config and arguments are about. Ranks that shard nothing are replicas; `hf-bf16` keeps weights in bf16
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
        "checkpointing": run.whole_blocks and (not sharding or ulysses > 1),
        "liger": "liger" in run.file.stack,
    }


def write(run: TrainingRun) -> WrittenFiles:
    """The config, the arguments, and the command of a host."""
    plan, differences = as_run(run)
    ran, table = run.running(plan), load_keys("accelerate")
    settings = _settings(ran)
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
    names = {"SCRIPT": SCRIPT, "ARGUMENTS": ARGUMENTS, "tokenizer": hub_id(run.file.model)}
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
    if "?" not in run.file.model:
        return {"config_name": name, "tokenizer_name": name}
    keys = (*SIZES, *EXPERTS, "max_position_embeddings", "tie_word_embeddings")
    sizes = {key: run.fields[key] for key in keys if run.fields.get(key) is not None}
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in sizes.items()}
    overrides = ",".join(f"{key}={word}" for key, word in words.items())
    return {"model_type": run.fields["model_type"], "config_overrides": overrides, "tokenizer_name": name}
