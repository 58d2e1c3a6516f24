"""A run of Hugging Face's Trainer as its launchers and front ends say it: what accelerate's config has, what the
arguments of a script have, and the plan that both come to.

Names are those of accelerate and of TrainingArguments, beside them TRL's for adapters and lengths; front ends that have
names of their own are translated before they come here.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.exports.imported import Given, Source, slice_counted, training_file
from dragonscale.exports.keys import table_at, truth, whole
from dragonscale.exports.model_names import model_of_sizes, preset_named
from dragonscale.exports.runs import hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.physics.hardware import Slice
from dragonscale.training.plan.legality import native
from dragonscale.training.plan.plan import OPTIMIZERS, Plan
from dragonscale.training.plan.plan_file import TrainingFile
from dragonscale.training.plan.stack import stacks
from dragonscale.training.plan.tuning import DEFAULT_RANK, methods, optimizer_named

TERMS = load_terms("accelerate")

PLANNED = frozenset(TERMS.lists["planned"])
"""Arguments that are read, whoever has them."""
SHARDS = TERMS.tables["shards"]
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
    unplanned: list[str] = field(default_factory=list)
    owner: str = "Hugging Face"
    spelt: Mapping[str, str] = field(default_factory=dict)
    """What the owner calls a setting, where it has a name of its own."""

    def number(self, name: str, default: int = 0, least: int = 1) -> int:
        """A whole number of the config or the arguments; nothing and "auto" leave it unsaid. The Trainer takes its own
        steps of accumulation before those of the config."""
        own_first = name == "gradient_accumulation_steps"
        places = (self.arguments, self.config) if own_first else (self.config, self.arguments)
        value = next((table[name] for table in places if table.get(name) not in (None, "auto")), None)
        return default if value is None else whole(value, self.named(name), least)

    def named(self, name: str) -> str:
        """How messages name a setting."""
        return f"{self.owner}'s {self.spelt.get(name, name)}"

    def truth(self, name: str) -> bool:
        """A switch of the config or the arguments; "auto" leaves it off."""
        value = self.config.get(name, self.arguments.get(name, False))
        return value != "auto" and truth(value, self.named(name))

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


def chips_of_run(source: Source, given: Given, run: HubRun, processes: int) -> tuple[Slice | None, int]:
    """The slice where one is said, and its chips: those that are given before the processes that a launch says."""
    piece = slice_counted(source, given, processes)
    chips = piece.chips if piece is not None else processes
    if chips < 1:
        raise source.needs("how many chips it is for", "them by --on, such as h100:8")
    if processes not in (0, chips):
        run.notes.append(f"It starts {processes} processes, and is read for the {chips} chips that are given.")
    return piece, chips


def file_of(source: Source, given: Given, run: HubRun, own: Mapping[str, str] | None = None) -> TrainingFile:
    """The plan file of a run; `own` are the stacks of the front end that it is of (plain, with Liger's kernels, under
    DeepSpeed)."""
    tuning = tuning_of(source, run)
    piece, chips = chips_of_run(source, given, run, max(run.processes or run.number("num_processes", least=-1), 0))
    hosts = run.hosts or run.number("num_machines") or (hosts_of(piece)[0] if piece is not None else 1)
    plan = _precision(run, _mesh(source, run, chips, hosts))
    if plan.dtype == "bf16" and piece is not None and not native(piece.chip, "bf16") and native(piece.chip, "fp16"):
        plan = replace(plan, dtype="fp16")
        run.notes.append(f"{piece.chip.title} has no bf16 matmul: it is read as a run in fp16.")
    if away := _hosted(source, run, plan.zero):
        if plan.offload == "optimizer" or (plan.zero == 3 and not run.by_deepspeed):
            plan = replace(plan, offload="parameters")
        else:  # DeepSpeed with weights there and the optimizer's state on the chip
            run.unplanned.append(away)
            run.notes.append(TERMS.say("hosted"))
    microbatch = run.number("per_device_train_batch_size", run.number("per_gpu_train_batch_size", 0))
    inside = _deepspeed(source, run)
    said = inside.get("train_micro_batch_size_per_gpu")
    microbatch = microbatch or (0 if said in (None, "auto") else whole(said, "train_micro_batch_size_per_gpu"))
    usual = -(-run.number("sequences", 1) // (max(microbatch, 1) * chips))  # ms-swift's batch where none is said
    rounds = run.number("gradient_accumulation_steps", usual)
    plan = replace(plan, microbatch=max(microbatch, 1) * (2 if tuning.get("method") in PAIRED else 1))
    batch = plan.replicas * plan.microbatch * rounds if microbatch else 0
    seq = next((run.number(name, least=0) for name in LENGTHS if run.arguments.get(name) is not None), 0)
    steps = max(run.number("max_steps", -1, least=-1), 0)
    stack, model = _stack(source, run, plan.fsdp > 1, run.truth("use_peft"), own or {}), _model(source, run)
    return replace(training_file(source, given.on(piece), plan, batch, seq, model, stack, steps), **tuning)


PAIRED = ("dpo", "orpo", "reward")
"""Methods whose examples are two answers each, a chosen and a rejected one."""
HEADS = ("lm_head", "embed_tokens", "output", "wte")


def tuning_of(source: Source, run: HubRun) -> dict[str, Any]:
    """What of the model a run trains, by the entries of a plan file; refused where that is not planned."""
    trainer = str(run.arguments.get("trainer", "sft"))
    if trainer in TERMS.lists["generating"]:
        raise TERMS.wrong("generating", source=source, trainer=trainer)
    if trainer not in ("sft", *methods()):
        raise TERMS.wrong("other_method", source=source, trainer=trainer)
    frozen = "nf4" if run.truth("load_in_4bit") else "int8" if run.truth("load_in_8bit") else ""
    preferred = {} if trainer == "sft" else {"method": trainer}
    if trainer == "distill":
        preferred["teacher"] = preset_named(str(run.arguments.get("teacher", "")))
    if not run.truth("use_peft"):
        if frozen:
            raise TERMS.wrong("frozen_whole", source=source, frozen=frozen)
        return preferred
    rank, kept = run.number("lora_r", 8), source.kept
    if kept.get("method") in ("lora", "qlora") and not kept.get("lora_rank") and rank == DEFAULT_RANK:
        rank = 0  # which an export's plan leaves to the method
    own = {"method": "qlora" if frozen == "nf4" else "lora"} if trainer == "sft" else {}
    own["frozen"] = "" if own.get("method") == "qlora" else frozen
    return {**own, **preferred, "lora_rank": rank, "lora_targets": _targets(source, run)}


def _targets(source: Source, run: HubRun) -> str:
    """The modules that get adapters, as a plan names them."""
    said = run.arguments.get("lora_target_modules", "")
    text = " ".join(map(str, said)) if isinstance(said, list) else str(said or "")
    words = [word for word in text.replace(",", " ").split() if word not in HEADS]
    if text and not words:
        raise TERMS.wrong("targets", source=source, words=text)
    if len(words) < len(text.replace(",", " ").split()):
        run.notes.append(TERMS.say("heads"))
    targets = "all" if {"all", "all-linear"} & set(words) else ",".join(words) or "all"
    kept = source.kept_word("lora_targets")
    # a header without targets means all of them
    return kept if source.kept.get("method") and _modules(kept) == _modules(targets) else targets


def _modules(targets: str) -> set[str]:
    attention, mlp = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj", "up_proj", "down_proj"}
    words = {"attention": attention, **dict.fromkeys(("", "all", "all-linear"), attention | mlp)}
    return words.get(targets, set(targets.replace(",", " ").split()))


def _mesh(source: Source, run: HubRun, chips: int, hosts: int) -> Plan:
    names = {"data": "dp_replicate", "fsdp": "dp_shard", "tensor": "tp", "context": "cp", "ulysses": "sp"}
    sizes = {name: run.number(f"parallelism_config_{own}_size", 1) for name, own in names.items()}
    ulysses, context_by = sizes.pop("ulysses"), "gather"
    if ulysses > 1:
        sizes["context"], context_by = ulysses, "ulysses"
    elif sizes["context"] > 1 and str(run.config.get("parallelism_config_cp_comm_strategy", "")) == "alltoall":
        context_by = "ring"
    plan = replace(Plan(context_by=context_by, sequence=sizes["tensor"] == 1), **sizes)
    fsdp = run.arguments.get("fsdp") or ""
    legacy = (" ".join(map(str, fsdp)) if isinstance(fsdp, list) else str(fsdp)).lower()
    shards = run.kind == "FSDP" or legacy not in ("", "false")
    if run.by_deepspeed:
        stage = _stage(source, run)
        rest, over = divmod(chips, plan.tensor * plan.context)
        if over:
            raise InputError(f"{chips} chips do not divide by tensor={plan.tensor} x context={plan.context}.")
        offload = "optimizer" if _offloads(source, run) else "none"
        mesh = {"fsdp": rest if stage else 1, "data": 1 if stage else rest, "zero": stage or plan.zero}
        return replace(plan, **mesh, offload=offload)
    rest = math.prod((plan.data, plan.fsdp, plan.tensor, plan.context))
    if rest > 1 and rest != chips:
        if plan.fsdp > 1 or (plan.data > 1 and run.owner != "torchtune") or chips % rest:
            raise InputError(f"{source.shown} has a mesh of {rest} ranks, and there are {chips} chips.")
        plan = replace(plan, **{"fsdp" if shards else "data": chips // rest})
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
    guess = next((number for number in "0123" if re.search(f"(zero|stage|z)[_-]?{number}", named.lower())), "2")
    if stage is None and "zero_stage" not in run.config and named:
        run.notes.append(f"{named} is not here; ZeRO-{guess} is assumed from its name.")
    return whole(stage if stage is not None else run.config.get("zero_stage", guess), "zero_stage", 0, 3)


def _offloads(source: Source, run: HubRun, what: str = "optimizer") -> bool:
    """Whether DeepSpeed keeps the state of its optimizer (or `what` else) in the host's memory, by its config or by
    that file's name."""
    inside = _deepspeed(source, run)
    named = "" if inside else run.config.get("deepspeed_config_file") or run.arguments.get("deepspeed") or ""
    device = table_at(inside, "zero_optimization", f"offload_{what}").get("device")
    guess = "cpu" if re.search(r"(?<!no_)(?<!no-)(?<!without_)offload", str(named).lower()) else "none"
    device = device or run.config.get(f"offload_{what}_device", guess)
    return str(device) not in ("none", "None", "")


def _hosted(source: Source, run: HubRun, zero: int) -> str:
    """The setting that keeps parameters in the host's memory; empty where they are on the chip."""
    if run.by_deepspeed:
        return "offload_param" if zero == 3 and _offloads(source, run, "param") else ""
    asked = run.truth("fsdp_offload_params") or "offload" in str(run.arguments.get("fsdp", ""))
    return "fsdp_offload_params" if asked else ""


def _precision(run: HubRun, plan: Plan) -> Plan:
    mixed = str(run.config.get("mixed_precision", "") or "").lower()
    dtype = mixed if mixed in ("bf16", "fp16", "fp8") else ""
    dtype = dtype or next((name for name in ("bf16", "fp16") if run.truth(name)), "")
    if not dtype:
        wide = "tf32" if run.truth("tf32") else "fp32" if run.arguments else "bf16"
        dtype = {"bfloat16": "bf16", "float16": "fp16"}.get(run.loaded, wide)
        run.notes += [TERMS.say("no_precision")] if dtype == "fp32" and run.loaded != "float32" else []
    block = run.truth("gradient_checkpointing") or run.truth("fsdp_activation_checkpointing")
    named = str(run.arguments.get("optim") or "adamw_torch").lower()
    other = "adam8" if "8bit" in named else next((own for own in OPTIMIZERS if own in named), "adam")
    optimizer = optimizer_named(named) if optimizer_named(named) in OPTIMIZERS else other
    return replace(plan, dtype=dtype, remat="block" if block else "none", optimizer=optimizer)


def _model(source: Source, run: HubRun) -> str:
    kept = source.kept_word("model")
    if overrides := run.arguments.get("config_overrides"):
        parts = [part.partition("=") for part in str(overrides).split(",")]
        fields: dict[str, Any] = {key: whole(value, key, 0) for key, _, value in parts if value.isdecimal()}
        return model_of_sizes({"model_type": run.arguments.get("model_type"), **fields}, read_asked(kept).text)
    name = str(run.arguments.get("model_name_or_path") or run.arguments.get("config_name") or "")
    found = preset_named(name) if name else ""
    same = kept and is_preset(kept) and is_preset(name) and preset_named(name) == preset_named(kept)
    return kept if same else found


def _stack(source: Source, run: HubRun, sharded: bool, tuned: bool, own: Mapping[str, str]) -> str:
    """The stack whose expectation fits: the header's where the arguments agree with it, or that of the front end."""
    kept = source.kept_word("stack")
    said = str(run.config.get("mixed_precision", "no") or "no").lower() != "no"
    mixed = said or run.truth("bf16") or run.truth("fp16")
    pure = run.loaded == "bfloat16" and (bool(own) or not (mixed and run.config))
    liger = run.truth("use_liger_kernel")
    if kept in stacks() and (own or (("liger" in kept) == liger and _narrow(kept) == pure)):
        return kept
    if run.by_deepspeed and not kept:
        return own.get("deepspeed", "deepspeed")
    if liger:
        return own.get("liger", "hf-liger" if pure or tuned else "hf-fsdp-liger")
    named = own.get("stack", "")
    if named in stacks() and (tuned or _narrow(named) == pure):
        return named
    return "hf-bf16" if pure else "hf" if own and not sharded else "hf-fsdp"


def _narrow(stack: str) -> bool:
    """Whether a stack keeps no copy of its weights in fp32."""
    return stacks()[stack].state.master_bytes == 0
