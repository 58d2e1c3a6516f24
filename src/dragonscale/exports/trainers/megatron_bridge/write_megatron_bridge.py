"""Megatron-Bridge: a Python file that makes its `ConfigContainer` and trains.

What is set is what Megatron-LM's flags would say (groups of `terms/megatron.toml`), by the container's own names
(`names`). A model that the Hub has is built from its config there by `AutoBridge`, as the library's recipes do it; any
other is written out by its sizes.

CUDA graphs are what the stack `megatron-bridge` is timed with, where the library takes them: Transformer Engine's, a
layer at a time; whole layers of a dense model, of layers with experts the parts whose shapes are fixed (attention, the
router and what prepares the exchange), since the number of tokens that an expert gets is not. Megatron-Core refuses
them beside blocks that are recomputed whole, and a router inside a recomputed MoE layer; Megatron-FSDP has a mode of
its own for them.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id, is_changed
from dragonscale.exports.runs import TrainingRun, header
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron import write_megatron as megatron
from dragonscale.exports.trainers.megatron.model import model_flags
from dragonscale.exports.trainers.megatron.write_megatron import MegatronRun
from dragonscale.exports.trainers.megatron_bridge.read_megatron_bridge import CONFIGS, PRECISION, Code, fields_of
from dragonscale.exports.written import PlanDifference, WrittenFiles, config_file
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.plan import layers_of

TERMS = load_terms("megatron-bridge")

FILE = "recipe.py"
ENVIRONMENT = {"NCCL_GRAPH_REGISTER": "0"}
"""What graphs need beside an allocator with expandable segments."""
_TRAINER = trainers()["megatron-bridge"]


def write(run: TrainingRun) -> WrittenFiles:
    """The recipe, and the command that starts it."""
    _model(run)  # a model that it does not build is the first thing to say
    settled = megatron.settle(run)
    settled = replace(settled, differences=(*settled.differences, *graph_differences(settled)))
    text = recipe(settled)
    env = megatron.environment(settled) | (ENVIRONMENT if graph_fields(settled) else {})
    told = megatron.notes(settled)
    for flag, field in TERMS.tables["named"].items():
        told = tuple(note.replace(flag, field) for note in told)
    written = WrittenFiles({FILE: text}, differences=settled.differences, notes=told)
    return run.trained(settled.plan, (config_file(FILE),), written, per="chip", env=env)


def recipe(settled: MegatronRun) -> str:
    """The Python file."""
    run, table = settled.run, load_keys("megatron-bridge")
    model, sized = _model(run)
    flags = megatron.plan_flags(settled, leave="precision")
    if settled.experts and settled.stack.name == "megatron-bridge":  # which has it fused beyond Megatron-Core's
        flags["--moe-router-fusion"] = True
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
    text = "\n".join([*body, "    return cfg", ""])
    return f"{title}{_imports(body)}\n\ndef config() -> ConfigContainer:\n{text}\n{TERMS.texts['main']}"


def _imports(body: list[str]) -> str:
    """The imports that a recipe uses."""
    text = "\n".join(body)
    provider = "MLAModelProvider" if "MLAModel" in text else "GPTModelProvider"
    lines = TERMS.texts["imports"].replace("import GPTModelProvider, MLAModelProvider", f"import {provider}")
    for line, mark in TERMS.tables["imported_for"].items():
        lines = lines if mark in text else lines.replace(f"{line}\n", "")
    return lines


def _model(run: TrainingRun) -> tuple[str, dict[str, Any]]:
    """The expression that makes the model, and the fields that say its sizes."""
    kind, repo = str(run.fields.get("model_type", "")), hub_id(run.file.model)
    run.check_built("megatron-bridge")
    if kind in _TRAINER.from_hub and "/" in repo and not is_changed(run.file.model):
        named = json.dumps(repo, ensure_ascii=False)  # a string of the program, whatever the path holds
        return f"AutoBridge.from_hf_pretrained({named}).to_megatron_provider(load_weights=False)", {}
    fields = fields_of(model_flags(run.fields, run.file.model, run.file.seq))
    words = ", ".join(f"{name.partition('.')[2]}={value!r}" for name, value in fields.items())
    provider = "MLAModelProvider" if run.fields.get("kv_lora_rank") else "GPTModelProvider"
    pad = " " * 8
    wrapper = textwrap.TextWrapper(110, pad, pad, break_long_words=False, break_on_hyphens=False)
    inner = wrapper.fill(words)
    return f"{provider}(\n{inner},\n    )", fields


def _further(settled: MegatronRun) -> dict[str, Any]:
    """What the container wants beside what flags say."""
    run = settled.run
    found = TERMS.group("data", run, vocab=run.fields.get("vocab_size", run.model.vocab))
    found |= {f"{part}.use_distributed_optimizer": settled.sharded for part in ("ddp", "optimizer")}
    if settled.plan.pipe > 1 and settled.plan.virtual > 1:
        found["model.virtual_pipeline_model_parallel_size"] = settled.plan.virtual  # said beside a layout too
    if layers_of(settled.plan.offload):
        found["model.cpu_offloading"] = True  # which the flag of Megatron-LM implies
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
    dtype, flags = settled.plan.dtype, megatron.TERMS.group("precision", settled, **megatron.settings(settled))
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


def no_graphs(settled: MegatronRun) -> str:
    """Why a run of the stack has no graphs; empty where it has."""
    plan = settled.plan
    if settled.fsdp:
        return "Megatron-FSDP gathers weights inside the layers that graphs would record"
    if layers_of(plan.offload):
        return "Megatron-Core has none beside activations in the host's memory"
    if settled.whole_blocks:
        return "Megatron-Core takes whole blocks run again with a graph of the whole iteration alone"
    if str(settled.fields.get("model_type", "")).startswith("gemma4"):
        return "the library has none for this model"
    return ""


def wanted(settled: MegatronRun) -> bool:
    """Whether the expectation counts launches as graphs have them."""
    return settled.run.file.stack == "megatron-bridge" and settled.architecture in ("hopper", "blackwell")


def graph_fields(settled: MegatronRun) -> dict[str, Any]:
    """The fields that turn graphs on; none where there are none."""
    if not wanted(settled) or no_graphs(settled):
        return {}
    modules = [] if not settled.experts else ["attn"]
    if settled.experts and "moe" not in settled.plan.remat.split("+"):
        # with a capacity the host has to learn how many tokens are dropped before the exchange
        modules += ["moe_router"] if settled.run.file.capacity else ["moe_router", "moe_preprocess"]
    return TERMS.group("graphs", modules=modules)


def graph_differences(settled: MegatronRun) -> tuple[PlanDifference, ...]:
    """That graphs are counted and not recorded."""
    why = no_graphs(settled) if wanted(settled) else ""
    return (TERMS.difference("graphs", why=why),) if why else ()
