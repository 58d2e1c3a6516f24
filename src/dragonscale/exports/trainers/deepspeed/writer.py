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

from dragonscale.errors import Infeasible
from dragonscale.exports.flags import flag_words
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.hub_words import USUAL
from dragonscale.exports.words import Word, config_file
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.training.plan import Plan

TERMS = load_terms("deepspeed")

FILE, MODEL, SCRIPT = "ds_config.json", "model_config.json", "run_clm.py"
OPTIMIZERS = {"adam": "AdamW", "muon": "Muon", "sgd": "SGD"}
AUTO_EP = ("mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3")
"""Types of models whose experts AutoEP finds by itself."""
_OURS = ("name", "source", "parameters", "aliases", "checkpoint", "text_config")


def write(run: TrainingRun) -> WrittenFiles:
    """The config, and the command of a process."""
    plan, differences = as_run(run)
    ran = replace(run, file=replace(run.file, plan=plan))
    _check(ran)
    table = load_keys("deepspeed")
    config = _config(ran)
    _check_names(table, config)
    files = {FILE: json.dumps(config, indent=2) + "\n"}
    tokenizer = hub_id(run.file.model)
    model: Word = tokenizer
    if "?" in run.file.model or "/" not in tokenizer:
        own = {name: value for name, value in run.fields.items() if name not in _OURS}
        files[MODEL] = json.dumps(own, indent=2, default=str) + "\n"
        model = config_file(MODEL)
    flags = {
        "--deepspeed": config_file(FILE),
        "--config_name": model,
        "--tokenizer_name": tokenizer,
        **_flags(ran),
    }
    hosts, chips = hosts_of(run.slice)
    env: dict[str, str] = {}
    if plan.context > 1:
        env = {
            "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
            "PARALLELISM_CONFIG_SP_SIZE": str(plan.context),
            "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
            "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION": "flash_attention_2",
        }
    program = LaunchProgram("train", (SCRIPT, *flag_words(table, flags)), hosts, chips, per="chip", env=env)
    return WrittenFiles(files, (program,), differences, plan if plan != run.plan else None, _notes(run))


def _notes(run: TrainingRun) -> tuple[str, ...]:
    """What a user still has to see to."""
    found = [f"{SCRIPT} is examples/pytorch/language-modeling/{SCRIPT} of transformers: put it beside {FILE}."]
    if not run.file.run.get("data"):
        found.append("The data is --train_file data.txt, which is yours to bring; --dataset_name names one of the Hub.")
    found.append(f"Weights start random (--config_name); the tokenizer is that of {hub_id(run.file.model)}.")
    if hosts_of(run.slice)[0] > 1:
        found.append("The folder of --output_dir must be one that all hosts see.")
    if not run.steps and not run.file.run.get("steps"):
        found.append("The plan does not say its tokens, so --max_steps is left out: give --tokens, or set it.")
    return tuple(found)


def as_run(run: TrainingRun) -> tuple[Plan, tuple[PlanDifference, ...]]:
    """The plan that DeepSpeed runs, and in what it differs from the one given."""
    plan, found = run.plan, []
    if plan.pipe > 1:
        raise TERMS.refused("pipeline", plan=plan)
    if plan.zero and (plan.fsdp > 1 or plan.expert * plan.context > 1):
        if plan.data > 1:
            apart = plan.data * plan.fsdp
            found.append(TERMS.difference("data", plan=plan, apart=apart))
            plan = replace(plan, data=1, fsdp=apart)
    else:
        plan = replace(plan, data=plan.data * plan.fsdp, fsdp=1, zero=0)
    if plan.remat == "offload":
        found.append(TERMS.difference("remat"))
        plan = replace(plan, remat="block")
    return plan, tuple(found)


def _check(run: TrainingRun) -> None:
    """What DeepSpeed and accelerate refuse when they start."""
    plan, fields = run.plan, run.fields
    if plan.tensor > 1 and plan.tensor != plan.chips:
        raise TERMS.refused("whole_mesh", plan=plan)
    if plan.offload != "none" and not plan.zero:
        raise Infeasible("DeepSpeed offloads the optimizer under ZeRO 1, 2 and 3 alone; take zero=1.")
    kv = int(fields.get("num_key_value_heads") or fields.get("num_attention_heads") or 1)
    if plan.context > 1 and kv % plan.context and plan.context % kv:
        raise TERMS.refused("ulysses_heads", kv=kv, plan=plan)
    if _spread(run) > 1 and str(fields.get("model_type")) not in AUTO_EP:
        raise TERMS.refused("auto_ep", run=run, types=", ".join(AUTO_EP), kind=fields.get("model_type"))
    if _spread(run) > 1 and plan.tensor > 1 and plan.offload != "none":
        raise Infeasible("DeepSpeed does not offload the optimizer with AutoEP and AutoTP together; take offload=none.")
    if "model_type" not in fields:
        raise TERMS.refused("no_class", run=run)


def _spread(run: TrainingRun) -> int:
    """Ranks that experts are spread over."""
    mixed = any("e" in section.dims for section in run.model.program().sections)
    return run.plan.expert * run.plan.tensor if mixed else 1


def _config(run: TrainingRun) -> dict[str, Any]:
    plan, said = run.plan, {**USUAL, **run.file.run}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": plan.microbatch,
        "gradient_accumulation_steps": run.accumulation,
    }
    if plan.tensor == plan.context == 1:  # the Trainer counts ranks that share a sequence as having one each
        config = {"train_batch_size": run.file.batch, **config}
    config |= {"gradient_clipping": said["clip"], "zero_optimization": _zero(plan)}
    if plan.dtype in ("bf16", "fp16"):
        config[plan.dtype] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    params = {"lr": said["learning_rate"], "weight_decay": said["weight_decay"]}
    if plan.optimizer == "adam":
        params |= {"betas": [0.9, 0.95], "eps": 1e-8}
    config["optimizer"] = {"type": OPTIMIZERS[plan.optimizer], "params": params}
    if plan.optimizer == "sgd":
        config["zero_allow_untested_optimizer"] = True
    if plan.tensor > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tensor}
    if _spread(run) > 1:
        config["expert_parallel"] = {"enabled": True, "autoep_size": _spread(run), "use_grouped_mm": True}
    if plan.context > 1:
        config["sequence_parallel_size"] = plan.context
    return config


def _zero(plan: Plan) -> dict[str, Any]:
    """ZeRO, with DeepSpeed's own buckets: those that the expectation counts."""
    zero: dict[str, Any] = {"stage": plan.zero}
    if plan.zero:
        zero |= {
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": 500_000_000,
        }
    if plan.zero in (1, 2):
        zero |= {"allgather_partitions": True, "allgather_bucket_size": 500_000_000}
    if plan.zero == 3:
        zero |= {
            "stage3_prefetch_bucket_size": 50_000_000,
            "stage3_param_persistence_threshold": 100_000,
            "stage3_max_live_parameters": 1_000_000_000,
            "stage3_max_reuse_distance": 1_000_000_000,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if plan.offload == "optimizer":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return zero


def _check_names(table: KeyTable, config: Mapping[str, Any], path: str = "") -> None:
    for name, value in config.items():
        table.check(f"{path}{name}")
        if isinstance(value, Mapping):
            _check_names(table, value, f"{path}{name}.")


def _flags(run: TrainingRun) -> dict[str, Any]:
    """The Trainer's arguments: what the config says is said again, and must agree."""
    plan, said = run.plan, {**USUAL, **run.file.run}
    steps = run.steps or int(said.get("steps") or 0)
    return {
        "--train_file": str(said.get("data") or "data.txt"),
        "--block_size": run.file.seq,
        "--do_train": True,
        "--per_device_train_batch_size": plan.microbatch,
        "--gradient_accumulation_steps": run.accumulation,
        "--max_steps": steps or None,
        "--bf16": True if plan.dtype == "bf16" else None,
        "--fp16": True if plan.dtype == "fp16" else None,
        "--gradient_checkpointing": plan.remat == "block",
        "--learning_rate": said["learning_rate"],
        "--adam_beta1": 0.9,
        "--adam_beta2": 0.95,
        "--adam_epsilon": 1e-8,
        "--weight_decay": said["weight_decay"],
        "--max_grad_norm": said["clip"],
        "--lr_scheduler_type": "cosine",
        "--warmup_steps": said["warmup"],
        "--save_steps": said["every"],
        "--save_total_limit": said["keep"],
        "--seed": said["seed"],
        "--output_dir": str(said.get("checkpoints") or "output"),
        "--logging_steps": 10,
    }
