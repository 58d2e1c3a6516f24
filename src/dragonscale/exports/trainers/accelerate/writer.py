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
from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import SIZES, hub_id
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.hub_words import USUAL
from dragonscale.exports.words import LEADER, RANK, config_file
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.stack import stacks

TERMS = load_terms("accelerate")

CONFIG, ARGUMENTS, SCRIPT = "accelerate.yaml", "training_args.json", "run_clm.py"
PORT = 29500
OPTIMIZERS = {"adam": "adamw_torch_fused", "adam8": "adamw_torch_8bit", "adafactor": "adafactor", "sgd": "sgd"}
"""Optimizers by the names of TrainingArguments; those of torchao work on sharded weights, those of bitsandbytes do not.
"""
MIXED = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "tf32": "no"}
_MESH = "parallelism_config_"


def write(run: TrainingRun) -> WrittenFiles:
    """The config, the arguments, and the command of a host."""
    plan, differences = as_run(run)
    check(run, plan)
    title = f"Hugging Face accelerate {load_keys('accelerate').version}"
    files = {
        CONFIG: header(run, title, differences) + yaml_text(config(run, plan)),
        ARGUMENTS: json.dumps(arguments(run, plan), indent=2) + "\n",
    }
    hosts, chips = hosts_of(run.slice)
    flags: dict[str, Any] = {"--config_file": config_file(CONFIG)}
    if hosts > 1:
        flags |= {"--machine_rank": RANK, "--main_process_ip": LEADER, "--main_process_port": PORT}
    words = ("accelerate", "launch", *flag_words(load_keys("accelerate"), flags), SCRIPT, config_file(ARGUMENTS))
    program = LaunchProgram("train", words, hosts, chips)
    return WrittenFiles(files, (program,), tuple(differences), None if plan == run.plan else plan, notes(run, plan))


def as_run(run: TrainingRun) -> tuple[Plan, list[PlanDifference]]:
    """The plan as accelerate runs it, and what differs."""
    plan, found = run.plan, list[PlanDifference]()
    if plan.tensor > 1 and plan.sequence:
        why = "the tensor-parallel plans of transformers keep whole sequences between blocks"
        found.append(TERMS.difference("sequence", why=why))
        plan = replace(plan, sequence=False)
    if plan.optimizer == "adam-bf16":
        why = "moments have the format of the weights that the optimizer holds"
        found.append(PlanDifference("optimizer=adam-bf16", "torch's AdamW runs", why, "optimizer"))
        plan = replace(plan, optimizer="adam")
    return plan, found


def mesh(plan: Plan) -> dict[str, int]:
    """The sizes of ParallelismConfig. Ranks that shard nothing are replicas."""
    sharded = sharding(plan)
    return {
        "dp_replicate": plan.data if sharded else plan.data * plan.fsdp,
        "dp_shard": plan.fsdp if sharded else 1,
        "tp": plan.tensor,
        "cp": plan.context if plan.context_by != "ulysses" else 1,
        "sp": plan.context if plan.context_by == "ulysses" else 1,
    }


def sharding(plan: Plan) -> bool:
    """Whether FSDP has something to shard."""
    return (plan.fsdp > 1 and plan.zero > 0) or plan.context > 1


def check(run: TrainingRun, plan: Plan) -> None:
    """What accelerate refuses beyond the rules of the stack."""
    sizes = mesh(plan)
    if plan.context > 1 and plan.zero == 0:
        raise TERMS.refused("unsharded_context", short=short_plan(plan))
    if sizes["sp"] > 1 and plan.tensor > 1:
        raise TERMS.refused("ulysses_with_tensor", plan=plan)
    if sizes["sp"] > 1 and plan.data > 1:
        raise Infeasible(f"DeepSpeed shards over all ranks under Ulysses; put data={plan.data} into fsdp.")
    if sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1 and (plan.tensor > 1 or sizes["cp"] > 1):
        raise TERMS.refused("bare_replicas", replicas=sizes["dp_replicate"])
    if plan.dtype == "fp8" and not sharding(plan) and plan.chips > 1:
        raise Infeasible("accelerate's float8 of torchao goes with FSDP2; put data into fsdp, or take dtype=bf16.")
    if run.file.seq % (2 * sizes["cp"]):
        raise TERMS.refused("sequence_multiple", run=run, multiple=2 * sizes["cp"])
    if run.file.batch % (plan.replicas * plan.microbatch):
        raise TERMS.refused("batch_multiple", run=run, multiple=plan.replicas * plan.microbatch)


def pure(run: TrainingRun) -> bool:
    """Whether the stack keeps weights in bf16 alone."""
    return stacks()[run.file.stack].state.master_bytes == 0 and run.plan.dtype == "bf16"


def config(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """The file of `accelerate launch`, every key of it one of accelerate's."""
    sizes, ulysses = mesh(plan), plan.context > 1 and plan.context_by == "ulysses"
    hosts, _ = hosts_of(run.slice)
    kind = "DEEPSPEED" if ulysses else "FSDP" if sharding(plan) else "MULTI_GPU" if plan.chips > 1 else "NO"
    made: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": "no" if pure(run) else MIXED[plan.dtype],
        "num_machines": hosts,
        "num_processes": plan.chips,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if kind == "FSDP":
        made["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": plan.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": plan.remat == "block",
            "fsdp_offload_params": False,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    if ulysses:
        made["deepspeed_config"] = {
            "zero_stage": plan.zero,
            "gradient_accumulation_steps": run.accumulation,
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
            "zero3_init_flag": plan.zero == 3,
        }
        made["parallelism_config"] = {
            f"{_MESH}sp_size": sizes["sp"],
            f"{_MESH}sp_backend": "deepspeed",
            f"{_MESH}sp_seq_length": run.file.seq,
            f"{_MESH}sp_seq_length_is_variable": False,
            f"{_MESH}sp_attn_implementation": "flash_attention_2",
        }
    elif kind == "FSDP" or plan.tensor > 1:
        table: dict[str, Any] = {
            f"{_MESH}{name}_size": sizes[name] for name in ("dp_replicate", "dp_shard", "tp", "cp")
        }
        rotates = {f"{_MESH}cp_comm_strategy": "alltoall" if plan.ring else "allgather"} if plan.context > 1 else {}
        made["parallelism_config"] = table | rotates
    if plan.dtype == "fp8":
        made["fp8_config"] = {"fp8_backend": "ao", "fp8_enable_fsdp_float8_all_gather": True, "fp8_pad_inner_dim": True}
    for name, value in made.items():
        for key, own in value.items() if isinstance(value, dict) else ():
            load_keys("accelerate").check(f"config.{name}.{key}", own)
        if not isinstance(value, dict):
            load_keys("accelerate").check(f"config.{name}", value)
    return made


def arguments(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """The arguments of the script, every one of them TrainingArguments' or the script's."""
    said = {**USUAL, **run.file.run}
    made: dict[str, Any] = {
        **model_arguments(run),
        "dtype": "bfloat16" if pure(run) else "float32",
        "dataset_name": "allenai/c4",
        "dataset_config_name": "en",
        "streaming": True,
        "block_size": run.file.seq,
        "output_dir": said.get("checkpoints", "output"),
        "do_train": True,
        "per_device_train_batch_size": plan.microbatch,
        "gradient_accumulation_steps": run.file.batch // (plan.replicas * plan.microbatch),
        "max_steps": run.steps or None,
        # Beside float8 the launcher alone says the format: bf16 here would turn it off.
        "bf16": True if plan.dtype == "bf16" and not pure(run) else None,
        "fp16": True if plan.dtype == "fp16" else None,
        "tf32": True if plan.dtype == "tf32" else None,
        "gradient_checkpointing": True
        if plan.remat == "block" and (not sharding(plan) or (plan.context_by == "ulysses" and plan.context > 1))
        else None,
        "optim": OPTIMIZERS[plan.optimizer],
        "learning_rate": said["learning_rate"],
        "lr_scheduler_type": "cosine",
        "warmup_steps": said["warmup"],
        **({"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-8} if plan.optimizer.startswith("adam") else {}),
        "weight_decay": said["weight_decay"],
        "max_grad_norm": said["clip"],
        "seed": said["seed"],
        "use_liger_kernel": True if "liger" in run.file.stack else None,
        "logging_steps": 10,
        "save_strategy": "steps",
        "save_steps": said["every"],
        "save_total_limit": said["keep"],
    }
    made = {name: value for name, value in made.items() if value is not None}
    for name, value in made.items():
        load_keys("accelerate").check(f"args.{name}", value)
    return made


def model_arguments(run: TrainingRun) -> dict[str, Any]:
    """The model, whose weights start random: its repository on the Hub, or its type and the sizes that differ from
    those that the type has."""
    name = hub_id(run.file.model)
    if "?" not in run.file.model:
        return {"config_name": name, "tokenizer_name": name}
    keys = [
        *SIZES,
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "max_position_embeddings",
        "tie_word_embeddings",
    ]
    sizes = {key: run.fields[key] for key in keys if run.fields.get(key) is not None}
    overrides = ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in sizes.items()
    )
    return {"model_type": run.fields["model_type"], "config_overrides": overrides, "tokenizer_name": name}


def notes(run: TrainingRun, plan: Plan) -> tuple[str, ...]:
    """What a user still has to see to."""
    found = [(TERMS.say("script", SCRIPT=SCRIPT, ARGUMENTS=ARGUMENTS))]
    found.append(f"The data is C4; weights start random, and the tokenizer is that of {hub_id(run.file.model)}.")
    if hosts_of(run.slice)[0] > 1:
        found.append("output_dir must be a folder that all hosts see.")
    if plan.tensor > 1:
        found.append(TERMS.say("tensor_script"))
    if "foak" in run.file.stack:
        found.append("The fused loss of this stack is fms-acceleration's plugin: install it beside the Trainer.")
    if not run.steps:
        found.append("The plan does not say its tokens, so max_steps is left out: give --tokens, or set it.")
    return tuple(found)
