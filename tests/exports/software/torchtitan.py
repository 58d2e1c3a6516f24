"""torchtitan's own command line, run without GPUs: its names, and whether it takes what is exported.

A case goes through torchtitan's parser (the config function that it names is called, its overrides are applied), then
through what torchtitan checks before it trains: the sizes of its mesh against the number of processes, the batch, the
sequence, the model's own rules, and the stages of its pipeline. The model is built without memory (meta device), so
that its parameters can be counted.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
import types
import typing
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import MagicMock

ABSENT = ("datasets", "wandb", "torch.utils.tensorboard", "PIL", "torchtitan.distributed.minimal_async_ep.kernels")
"""What data loaders, loggers and kernels import (triton among it), and the command line does not need."""

sys.path.pop(0)  # this file has the package's name
_INSIDE = tuple(f"{name}." for name in ABSENT)


class _Empty:
    """An importer of empty modules in place of packages that are not installed."""

    def find_spec(self, name, path=None, target=None):
        del path, target
        return ModuleSpec(name, self, is_package=True) if name in ABSENT or name.startswith(_INSIDE) else None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__ = []
        module.__spec__ = spec
        return module

    def exec_module(self, module):
        del module


sys.meta_path.insert(0, _Empty())

import torch  # noqa: E402
from torchtitan.components.quantization import float8, mx, nvfp4  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims, pipeline_parallel  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

for converters in (float8, mx, nvfp4):  # which GPU there is decides nothing that is checked here
    converters.has_cuda_capability = lambda *_: True

VERSION = "0.3.0"
MODULES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")
"""The language models; of the others (images, text with images) no plan is made."""
KEPT = ("training", "parallelism", "compile", "activation_checkpoint", "optimizer", "loss", "checkpoint")
"""The sections of a config function whose values a reader needs where a command does not say them."""


def keys():
    """The table: every flag, every config function with what it sets, and every model with its sizes."""
    table = {"--module": {}, "--config": {}}  # any module of the working folder may be named
    sample = importlib.import_module("torchtitan.models.llama3.config_registry").llama3_8b()
    _flags(sample, "", table)
    table["activation-checkpoint"] = {"choices": ["selective", "full", "memory-budget", "none"]}
    for module in MODULES:
        for name, config in _functions(module):
            table[f"config {module}/{name}"] = {"type": "json", "default": _settings(config)}
        for flavor, model in _models(module):
            table[f"model {module}/{flavor}"] = {"type": "json", "default": sizes(module, model)}
    source = (
        "torchtitan 0.3.0 of the package index: the fields of Trainer.Config, config_registry.py and the flavors of "
        "each model"
    )
    return {"software": "torchtitan", "version": VERSION, "source": source, "keys": table}


def _flags(config, prefix, table):
    hints = typing.get_type_hints(type(config), include_extras=True)
    for one in dataclasses.fields(config):
        value, name = getattr(config, one.name), f"{prefix}{one.name}"
        if "Suppress" in str(hints[one.name]) or one.name in (
            "optimizer_factory_kwargs_by_name",
            "activation_checkpoint",
        ):
            continue
        if one.name == "param_groups":
            _groups(value, table)
        elif dataclasses.is_dataclass(value):
            _flags(value, f"{name}.", table)
        else:
            table[f"--{name}"] = _key(name, hints[one.name], value)


def _groups(groups, table):
    for name in ("pattern", "optimizer_name"):
        path = f"optimizer.param_groups.0.{name}"
        table[f"--{path}"] = _key(path, str, None)
    for name in groups[0].optimizer_kwargs:
        path = f"optimizer.param_groups.0.optimizer_kwargs.{name}"
        table[f"--{path}"] = {**_key(path, float, None), "type": "list" if name == "betas" else "float"}


def _key(name, hint, value):
    section, _, last = name.rpartition(".")
    dot = section + "." if section else ""
    key = {}
    if (dashed := name.replace("_", "-")) != name:
        key["also"] = [f"--{dashed}"]
    options = [one for one in typing.get_args(hint) if one is not type(None)] if _union(hint) else [hint]
    if hint is bool:
        key |= {"type": "flag", "off": f"--{dot}no_{last}"}
    elif typing.get_origin(options[0]) is typing.Literal:
        key["choices"] = list(typing.get_args(options[0]))
    elif options[0] in (int, float):
        key["type"] = options[0].__name__
    elif "list[list" in str(options[0]):
        key["type"] = "list"
    if isinstance(value, int | float | str | bool):
        key["default"] = value
    return {name: value for name, value in key.items() if value != []}


def _union(hint):
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _functions(module):
    registry = importlib.import_module(f"torchtitan.models.{module}.config_registry")
    for name, function in inspect.getmembers(registry, inspect.isfunction):
        if function.__module__ != registry.__name__ or name.startswith("_") or "debug" in name:
            continue
        if not inspect.signature(function).parameters:
            yield name, _built(function)


def _built(function):
    with _quiet():
        return function()


def _models(module):
    package = importlib.import_module(f"torchtitan.models.{module}")
    for flavor in next(value for name, value in vars(package).items() if name.endswith("_configs")):
        if "debug" not in flavor:
            yield flavor, package.model_registry(flavor).model


def _settings(config):
    """What a function sets otherwise than Trainer.Config, and its model."""
    found = {"model": config.model_spec.flavor, "dtype": _dtype(config.model_spec.model)}
    attention = next(one.attention for one in config.model_spec.model.layers)
    found["attention"] = type(attention.inner_attention).__qualname__.split(".")[0]
    dispatchers = {
        type(one).__qualname__.split(".")[0]
        for one in _parts(config.model_spec.model)
        if "Dispatcher" in type(one).__qualname__
    }
    found["dispatch"] = ",".join(sorted(dispatchers))
    plain = Trainer.Config()
    for section in KEPT:
        value = getattr(config, section)
        if section == "activation_checkpoint":
            found[section] = MODES.get(type(value), "none")
        elif dataclasses.is_dataclass(value):
            usual = getattr(plain, section)
            for one in dataclasses.fields(value):
                own = getattr(value, one.name)
                if (
                    isinstance(own, int | float | str | bool | list)
                    and own != getattr(usual, one.name, None)
                    and one.name != "param_groups"
                ):
                    found[f"{section}.{one.name}"] = own
    return {name: value for name, value in found.items() if value != ""}


MODES = {SelectiveAC.Config: "selective", FullAC.Config: "full", MemoryBudgetAC.Config: "memory-budget"}


def _parts(value):
    yield value
    inner = (
        value
        if isinstance(value, list)
        else [getattr(value, one.name) for one in dataclasses.fields(value)]
        if dataclasses.is_dataclass(value)
        else []
    )
    for one in inner:
        if isinstance(one, list) or dataclasses.is_dataclass(one):
            yield from _parts(one)


def _dtype(model):
    names = {type(one).__qualname__ for one in _parts(model)}
    return next(
        (
            dtype
            for dtype, mark in (("fp8", "Float8"), ("mxfp8", "MXFP8"), ("nvfp4", "NVFP4"))
            if any(mark in one for one in names)
        ),
        "",
    )


def sizes(module, model):
    """The sizes of a model as Hugging Face's configs name them."""
    attention = model.first_attention
    dense = next((one.feed_forward for one in model.layers if one.feed_forward is not None), None)
    experts = next((one.moe for one in model.layers if one.moe is not None), None)
    kind = {
        "llama3": "llama",
        "qwen3": "qwen3_moe" if experts else "qwen3",
        "deepseek_v3": "deepseek_v3",
        "gpt_oss": "gpt_oss",
    }[module]
    found = {
        "model_type": kind,
        "hidden_size": model.dim,
        "num_hidden_layers": len(model.layers),
        "vocab_size": model.vocab_size,
        "num_attention_heads": attention.n_heads,
        "max_position_embeddings": attention.rope.max_seq_len,
        "tie_word_embeddings": model.enable_weight_tying,
        "num_key_value_heads": getattr(attention, "n_kv_heads", None),
        "head_dim": getattr(attention, "head_dim", None),
        "kv_lora_rank": getattr(attention, "kv_lora_rank", None),
        "q_lora_rank": getattr(attention, "q_lora_rank", None),
        "intermediate_size": dense and dense.w1.out_features,
    }
    if experts is not None:
        inner = experts.routed_experts.inner_experts
        found |= {
            "num_experts": experts.num_experts,
            "moe_intermediate_size": inner.hidden_dim,
            "num_experts_per_tok": experts.router.top_k,
        }
    with torch.device("meta"):
        found["parameters"] = sum(one.numel() for one in model.build().parameters())
    return {name: value for name, value in found.items() if value}


@contextlib.contextmanager
def _quiet():
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        yield said


def check(case):
    """None where torchtitan takes a command; otherwise what it says."""
    words = case["words"][case["words"].index("--module") :]
    text = "\n".join(value for name, value in case["files"].items() if name.endswith(".sh"))
    found = {name: int(value) for name, value in re.findall(r"--(nproc-per-node|nnodes) (\d+)", text)}
    world = found["nproc-per-node"] * found.get("nnodes", 1)
    with tempfile.TemporaryDirectory() as place, _quiet() as said:
        for name, content in case["files"].items():
            (Path(place) / name).write_text(content, encoding="utf-8")
        sys.path.insert(0, place)
        sys.modules.pop("torchtitan_run", None)
        os.chdir(place)
        try:
            return _checked(ConfigManager().parse_args(words), world, case)
        except SystemExit:
            return said.getvalue()[-600:]
        except Exception as error:  # whatever it raises is its answer
            return f"{type(error).__name__}: {error}"[-600:]
        finally:
            sys.path.remove(place)
            os.chdir("/")


def _checked(config, world, case):
    dims = ParallelDims.from_config(config.parallelism, world)
    if dims.dp_shard * dims.cp * dims.tp % dims.ep:
        return f"ep={dims.ep} does not divide dp_shard x cp x tp"
    training = config.training
    divisor = (dims.tp if config.parallelism.enable_sequence_parallel else 1) * (2 * dims.cp if dims.cp > 1 else 1)
    if training.seq_len % divisor:
        return f"seq_len {training.seq_len} is no multiple of {divisor}"
    degree = dims.dp_replicate * dims.dp_shard
    if training.global_batch_size % (training.local_batch_size * degree):
        return f"global batch {training.global_batch_size} is no multiple of {training.local_batch_size} x {degree}"
    model = config.model_spec.model
    model.update_from_config(config=config)
    if dims.pp > 1 and (why := _stages(config, dims, model)):
        return why
    with torch.device("meta"):
        built = sum(one.numel() for one in model.build().parameters())
    wanted = case.get("parameters")
    return f"{built} parameters, and the model has {wanted}" if wanted and abs(built / wanted - 1) > 0.002 else None


def _stages(config, dims, model):
    count, layers, first, last = pipeline_parallel._get_pipeline_metadata(dims, config.parallelism, model)
    parts = config.parallelism.module_fqns_per_model_part
    if parts is None:
        parts = pipeline_parallel._generate_llm_fqn_per_model_part(count, layers, first, last)
    every = [name for part in parts for name in part]
    if every != ["tok_embeddings", *(f"layers.{number}" for number in range(layers)), "norm", "lm_head"]:
        return f"the stages hold {every}"
    for rank in range(dims.pp):
        pipeline_parallel._get_pp_rank_to_stage_indices_mapping(
            rank, dims.pp, config.parallelism.pipeline_parallel_schedule, len(parts)
        )
    return None


if __name__ == "__main__":
    found = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(found))
