"""Megatron-Bridge: a Python file that makes its `ConfigContainer` and trains.

What is set is what Megatron-LM's flags would say (`megatron.flags`), by the container's own names (`names`). A model
that the Hub has is built from its config there by `AutoBridge`, as the library's recipes do it; any other is written
out by its sizes.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.header import header
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import TrainingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import TYPES, model_flags
from dragonscale.exports.trainers.megatron.settle import MegatronRun, settings, settle
from dragonscale.exports.trainers.megatron.writer import TERMS as FLAGS
from dragonscale.exports.trainers.megatron.writer import environment, notes, plan_flags
from dragonscale.exports.trainers.megatron_bridge.graphs import ENVIRONMENT, graph_differences, graph_fields
from dragonscale.exports.trainers.megatron_bridge.names import CONFIGS, PRECISION, Code, fields_of
from dragonscale.exports.words import config_file
from dragonscale.exports.written import LaunchProgram, WrittenFiles

TERMS = load_terms("megatron-bridge")

FILE = "recipe.py"
_BRIDGED = TERMS.lists["bridged"]
_IMPORTS = TERMS.texts["imports"]


def write(run: TrainingRun) -> WrittenFiles:
    """The recipe, and the command that starts it."""
    _model(run)  # a model that it does not build is the first thing to say
    settled = settle(run)
    settled = replace(settled, differences=(*settled.differences, *graph_differences(settled)))
    text = recipe(settled)
    hosts, chips = hosts_of(run.slice)
    env = environment(settled) | (ENVIRONMENT if graph_fields(settled) else {})
    program = LaunchProgram("train", (config_file(FILE),), hosts, chips, per="chip", env=env)
    as_run = settled.plan if settled.plan != run.plan else None
    told = tuple(
        note.replace("--mock-data", "MockGPTDatasetConfig")
        .replace("--data-path", "a GPTDatasetConfig")
        .replace("--save", "checkpoint.save")
        .replace("--train-iters", "train.train_iters")
        for note in notes(settled)
    )
    return WrittenFiles({FILE: text}, (program,), settled.differences, as_run, told)


def recipe(settled: MegatronRun) -> str:
    """The Python file."""
    run, table = settled.run, load_keys("megatron-bridge")
    model, sized = _model(run)
    flags = plan_flags(settled, leave="precision") | _router_fusion(settled)
    fields = fields_of(flags) | _further(settled) | graph_fields(settled)
    for name, value in {**sized, **fields}.items():
        table.check(name, value if isinstance(value, str | int) and not isinstance(value, Code) else None)
    sections = _by_section(fields)
    body = [f"    model = {model}", "    cfg = ConfigContainer(", "        model=model,"]
    body += [_config(name, sections[name]) for name in CONFIGS if name in sections]
    body += ["        mixed_precision=None,", "    )"]
    body += [f"    cfg.model.{name} = {value!r}" for name, value in sections["model"].items()]
    body += _precision(settled, table)
    title = header(run, f"Megatron-Bridge {table.version}", settled.differences)
    made = textwrap.dedent("""
        if __name__ == "__main__":
            pretrain(config(), forward_step)
        """)
    return (
        f"{title}{_imports(body)}\n\ndef config() -> ConfigContainer:\n"
        + "\n".join([*body, "    return cfg", ""])
        + f"\n{made}"
    )


def _imports(body: list[str]) -> str:
    """The imports that a recipe uses."""
    text = "\n".join(body)
    lines = _IMPORTS.replace(
        "import GPTModelProvider, MLAModelProvider",
        f"import {'MLAModelProvider' if 'MLAModel' in text else 'GPTModelProvider'}",
    )
    unused = {
        "import torch\n": "torch." not in text,
        "import torch.nn.functional as F\n": "F.silu" not in text,
        "from megatron.bridge import AutoBridge\n": "AutoBridge" not in text,
        "from megatron.core.activations import squared_relu\n": "squared_relu" not in text,
        "from megatron.bridge.training.comm_overlap import CommOverlapConfig\n": "CommOverlapConfig" not in text,
        "from megatron.bridge.training.mixed_precision import get_mixed_precision_config\n": "get_mixed" not in text,
        "from megatron.bridge.models import GPTModelProvider\n": "GPTModelProvider" not in text,
    }
    for line, drop in unused.items():
        lines = lines.replace(line, "") if drop else lines
    return lines


def _model(run: TrainingRun) -> tuple[str, dict[str, Any]]:
    """The expression that makes the model, and the fields that say its sizes."""
    kind, repo = str(run.fields.get("model_type", "")), hub_id(run.file.model)
    if kind in _BRIDGED and "/" in repo and "?" not in run.file.model:
        named = json.dumps(repo, ensure_ascii=False)  # a string of the program, whatever the path holds
        return f"AutoBridge.from_hf_pretrained({named}).to_megatron_provider(load_weights=False)", {}
    if kind not in TYPES:
        raise Infeasible(f"Megatron-Bridge does not build models of type {kind}.")
    fields = fields_of(model_flags(run.fields, run.file.model, run.file.seq))
    words = ", ".join(f"{name.partition('.')[2]}={value!r}" for name, value in fields.items())
    provider = "MLAModelProvider" if run.fields.get("kv_lora_rank") else "GPTModelProvider"
    inner = textwrap.fill(
        words, 110, initial_indent=" " * 8, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )
    return f"{provider}(\n{inner},\n    )", fields


def _router_fusion(settled: MegatronRun) -> dict[str, Any]:
    """What stack megatron-bridge has fused beyond Megatron-Core's."""
    return {"--moe-router-fusion": True} if settled.experts and settled.stack.name == "megatron-bridge" else {}


def _further(settled: MegatronRun) -> dict[str, Any]:
    """What the container wants beside what flags say."""
    run = settled.run
    found: dict[str, Any] = {
        "dataset.seq_length": run.file.seq,
        "dataset.random_seed": 1234,
        "dataset.split": "99,1,0",
        "dataset.dataloader_type": "single",
        "dataset.reset_position_ids": False,
        "dataset.reset_attention_mask": False,
        "dataset.eod_mask_loss": False,
        "tokenizer.tokenizer_type": "NullTokenizer",
        "tokenizer.vocab_size": run.fields.get("vocab_size", run.model.vocab),
    }
    found |= {f"{part}.use_distributed_optimizer": settled.sharded for part in ("ddp", "optimizer")}
    if settled.plan.pipe > 1 and settled.plan.virtual > 1:
        found["model.virtual_pipeline_model_parallel_size"] = settled.plan.virtual  # said beside a layout too
    if settled.plan.dtype == "fp32" and settled.plan.pipe > 1:
        found["model.pipeline_dtype"] = Code("torch.float32")
    return found


def _by_section(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"model": {}}
    for name, value in fields.items():
        section, _, own = name.partition(".")
        found.setdefault(section, {})[own] = value
    if "comm_overlap" in found:
        found["comm_overlap"].setdefault("tp_comm_overlap", False)
    return found


def _config(name: str, values: Mapping[str, Any]) -> str:
    inner = "".join(f"            {key}={value!r},\n" for key, value in values.items())
    return f"        {name}={CONFIGS[name]}(\n{inner}        ),"


def _precision(settled: MegatronRun, table: KeyTable) -> list[str]:
    """The library's recipe of mixed precision, and what differs from it."""
    dtype, flags = settled.plan.dtype, FLAGS.group("precision", settled, **settings(settled))
    if dtype == "fp32":
        return []
    lines = [f'    cfg.mixed_precision = get_mixed_precision_config("{PRECISION[dtype]}")']
    said: dict[str, Any] = {"grad_reduce_in_fp32": False} if "--grad-reduce-in-bf16" in flags else {}
    if dtype in ("fp8", "mxfp8") and "--fp8-param-gather" not in flags:
        said["fp8_param_gather"] = False
    if dtype == "mxfp8" and "--reuse-grad-buf-for-mxfp8-param-ag" not in flags:
        said["reuse_grad_buf_for_mxfp8_param_ag"] = False
    for name, value in said.items():
        table.check(f"mixed_precision.{name}", value)
        lines.append(f"    cfg.mixed_precision.{name} = {value!r}")
    return lines
