"""Plans out of Hugging Face's words: a config of `accelerate launch`, its flags, or the Trainer's own flags under
torchrun.

FSDP1's names are read too (`fsdp_sharding_strategy FULL_SHARD` is ZeRO-3, `SHARD_GRAD_OP` ZeRO-2, `HYBRID_SHARD` shards
inside a host), and the DeepSpeed plugin's few settings. What a launch does not say (the model, the batch, the sequence)
comes from the script's arguments, from a JSON file that they name, or is left open.
"""

import math
import re
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.exports.imported import Given, Imported, needs, run_tokens, slice_counted, training_file
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import model_of_sizes, preset_named
from dragonscale.exports.runs import hosts_of
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.hub_words import HubRun, flat_config, of_command
from dragonscale.exports.values import whole
from dragonscale.models.catalogue import is_preset
from dragonscale.training.plan import Plan
from dragonscale.training.plan_file import TrainingFile

TERMS = load_terms("accelerate")

TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "fsdp", "bf16", "fp16")
"""Arguments by which a script of the Trainer is known."""
TYPES = ("FSDP", "MULTI_GPU", "DEEPSPEED", "NO", "XLA", "TPU", "MEGATRON_LM", "MULTI_XPU", "MULTI_NPU", "MULTI_CPU")
SHARDS = TERMS.tables["shards"]
OPTIMIZERS = {"adafactor": "adafactor", "sgd": "sgd"}
PLANNED = frozenset(TERMS.lists["planned"])
UNPLANNED = ("torch_compile", "neftune", "lora", "load_in", "use_peft", "galore", "optim_target", "packing")
SIZES = ("block_size", "max_length", "max_seq_length", "model_max_length")


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
        options = [word for word in command.words if word.startswith("--")]
        flags = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in options}
        script = any(word.endswith(".py") for word in command.words)
        if script and "per_device_train_batch_size" in flags and len(flags & set(TRAINER)) > 1:
            return command
    return None


def read(source: Source, given: Given) -> Imported:
    """The plan of a config or a command."""
    command = _command(source)
    run = of_command(source, command) if command is not None else HubRun(flat_config(source.table or {}))
    kind = str(run.config.get("distributed_type", "")).upper()
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
        raise needs("how many chips it is for", "them by --on, such as h100:8", source)
    hosts = run.hosts or run.number("num_machines") or (hosts_of(piece)[0] if piece is not None else 1)
    plan = _precision(run, _mesh(source, run, chips, hosts))
    microbatch = run.number("per_device_train_batch_size", run.number("per_gpu_train_batch_size", 0))
    inside = _deepspeed(source, run)
    said = inside.get("train_micro_batch_size_per_gpu")
    microbatch = microbatch or (0 if said in (None, "auto") else whole(said, "train_micro_batch_size_per_gpu"))
    rounds = run.number("gradient_accumulation_steps", 1)
    plan = replace(plan, microbatch=max(microbatch, 1))
    batch = plan.replicas * plan.microbatch * rounds if microbatch else 0
    seq = next((run.number(name) for name in SIZES if name in run.arguments), 0)
    file = training_file(source, given, plan, batch, seq, _model(source, run), "hf-fsdp")
    file = replace(file, slice=str(piece) if piece is not None else file.slice, stack=_stack(source, run))
    return _with_steps(file, run)


def _with_steps(file: TrainingFile, run: HubRun) -> TrainingFile:
    steps, step = run.number("max_steps", -1, least=-1), file.batch * file.seq
    if steps < 1 or not step:
        return file
    return replace(file, tokens=run_tokens(file.tokens, steps, step))


def _mesh(source: Source, run: HubRun, chips: int, hosts: int) -> Plan:
    names = {"data": "dp_replicate", "fsdp": "dp_shard", "tensor": "tp", "context": "cp", "ulysses": "sp"}
    sizes = {name: run.number(f"parallelism_config_{own}_size", 1) for name, own in names.items()}
    ulysses, context_by = sizes.pop("ulysses"), "gather"
    if ulysses > 1:
        sizes["context"], context_by = ulysses, "ulysses"
    elif str(run.config.get("parallelism_config_cp_comm_strategy", "")) == "alltoall":
        context_by = "ring"
    plan = replace(Plan(context_by=context_by, sequence=sizes["tensor"] == 1), **sizes)
    kind = str(run.config.get("distributed_type", "")).upper()
    legacy = str(run.arguments.get("fsdp", "") or "").lower()
    shards = kind == "FSDP" or legacy not in ("", "false")
    if kind == "DEEPSPEED" or run.arguments.get("deepspeed"):
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
    loaded = str(run.arguments.get("dtype", run.arguments.get("torch_dtype", "")))
    dtype = mixed if mixed in ("bf16", "fp16", "fp8") else ""
    dtype = dtype or next((name for name in ("bf16", "fp16") if run.truth(name)), "")
    if not dtype:
        wide = "tf32" if run.truth("tf32") else "fp32" if run.arguments else "bf16"
        dtype = {"bfloat16": "bf16", "float16": "fp16"}.get(loaded, wide)
    block = run.truth("gradient_checkpointing") or run.truth("fsdp_activation_checkpointing")
    named = str(run.arguments.get("optim", "adamw_torch"))
    optimizer = "adam8" if "8bit" in named else next((own for word, own in OPTIMIZERS.items() if word in named), "adam")
    return replace(plan, dtype=dtype, remat="block" if block else "none", optimizer=optimizer)


def _model(source: Source, run: HubRun) -> str:
    kept = str(source.kept.get("model", ""))
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
    kind = str(run.config.get("distributed_type", "")).upper()
    kept = str(source.kept.get("stack", ""))
    loaded = str(run.arguments.get("dtype", run.arguments.get("torch_dtype", "")))
    said = str(run.config.get("mixed_precision", "no") or "no").lower() != "no"
    mixed = said or run.truth("bf16") or run.truth("fp16")
    pure = loaded == "bfloat16" and not (mixed and run.config)
    liger = run.truth("use_liger_kernel")
    if kept and ("liger" in kept) == liger and ("fsdp" not in kept) == pure:
        return kept
    if (kind == "DEEPSPEED" or run.arguments.get("deepspeed")) and not kept:
        return "deepspeed"
    return ("hf" if pure else "hf-fsdp") + ("-liger" if liger else "")
