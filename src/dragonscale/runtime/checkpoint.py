"""Weights of a Hugging Face checkpoint as the parameter tree of a model program, and back.

A checkpoint keeps every projection as a matrix [out, in] under its own name; the program has them by named dims. The
tables say, for each weight of a program, which tensors it may be found under and how these lie: `nh d` is a matrix of
n·h rows and d columns. So a weight is a view of its tensor, and writing is the same view, written to; a family needs no
code of its own. A weight that is found nowhere, or a tensor of another shape, is refused by name.

`(c+r) d` holds two weights, of c rows and of r rows. `e d f<0>` has, for each of f, two entries of which the first is
meant. `{}` in a name is the number of an expert.

>>> read_layout("n(p+g) c", ("c", "n", "g"), {"n": 2, "p": 3, "g": 4, "c": 5})
((14, 5), (2, 7, 5), (slice(None, None, None), slice(3, 7, None), slice(None, None, None)), (2, 0, 1))

Tensors of checkpoints that keep numbers in fewer bits with scales beside them, as plain numbers.

Two formats in use: FP8 in blocks of 128 x 128 with a scale each, in a tensor named `…_scale_inv` (DeepSeek-V3), and
MXFP4, 32 numbers in 16 bytes with an exponent each, in tensors named `…_blocks` and `…_scales` (gpt-oss).
"""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.models.load import model_fields
from dragonscale.models.program import Program, Section
from dragonscale.runtime.parameters import Tree, Weight, WeightReader, stacked, weights_of
from dragonscale.runtime.safetensors import write_safetensors

FP4 = numpy.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], numpy.float32)
"""The numbers of E2M1 without their sign."""
BLOCK = 128
"""Rows and columns that share a scale in FP8."""


def as_numbers(tensors: Mapping[str, Any], name: str) -> numpy.ndarray:
    """A tensor, with its scales multiplied in if it has some."""
    found = numpy.asarray(tensors[name])
    if name.endswith("_blocks"):
        return _mxfp4(found, numpy.asarray(tensors[name.removesuffix("_blocks") + "_scales"]))
    if f"{name}_scale_inv" in tensors:
        return _fp8_blocks(found, numpy.asarray(tensors[f"{name}_scale_inv"]))
    if found.dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, numpy.uint8):
        raise InputError(f"The tensor {shorten(name, 160)} is in {found.dtype} with scales that are not known here.")
    return found


def _fp8_blocks(found: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    wide = scales.repeat(BLOCK, 0)[: found.shape[0]].repeat(BLOCK, 1)[:, : found.shape[1]]
    return (found.astype(numpy.float32) * wide).astype(ml_dtypes.bfloat16)


def _mxfp4(blocks: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    """[…, groups, 16] bytes, the lower half of each first, to […, groups·32] numbers."""
    table = numpy.concatenate([FP4, -FP4])
    pairs = numpy.stack([table[blocks & 15], table[blocks >> 4]], -1).reshape(*blocks.shape[:-1], -1)
    numbers = numpy.ldexp(pairs, scales.astype(numpy.int32)[..., None] - 127)
    return numbers.reshape(*blocks.shape[:-2], -1).astype(ml_dtypes.bfloat16)


class WeightNames(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`checkpoint.toml`: for each weight of layers, of experts and of the ends, the names that a tensor may have after
    the prefix, each with the tensor's layout; and how names begin that a family writes, where there are several."""

    layers: dict[str, dict[str, str]]
    experts: dict[str, dict[str, str]]
    ends: dict[str, dict[str, str]]
    written: dict[str, tuple[str, ...]]


NAMES = msgspec.toml.decode((resources.files("dragonscale.runtime") / "checkpoint.toml").read_bytes(), type=WeightNames)
PREFIXES = ("model.", "", "language_model.model.", "model.language_model.")
"""Before the names of a language model's tensors; the longer ones where it is part of a model that also sees."""


@cache
def _parsed(layout: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(re.findall(r"<\d>|\([\w+]+\)|\w", dim)) for dim in layout.split())


def read_layout(layout: str, names: tuple[str, ...], sizes: Mapping[str, int]) -> tuple[Any, Any, Any, Any]:
    """A tensor's shape; the same with a dim for each factor; which entries of these are the weight with dims `names`;
    and the order of its dims."""
    shape: list[int] = []
    fine: list[int] = []
    picked: list[slice | int] = []
    kept: list[str] = []
    for dim in _parsed(layout):
        first = len(fine)
        for factor in dim:
            parts = factor.strip("()").split("+")
            if factor[0] == "<":
                fine.append(2)
                picked.append(int(factor[1]))
                continue
            own = next(part for part in parts if part in names)
            start = sum(sizes[part] for part in parts[: parts.index(own)])
            fine.append(sum(sizes[part] for part in parts))
            picked.append(slice(start, start + sizes[own]) if len(parts) > 1 else slice(None))
            kept.append(own)
        shape.append(math.prod(fine[first:]))
    return tuple(shape), tuple(fine), tuple(picked), tuple(kept.index(name) for name in names)


def load_weights(tensors: Mapping[str, Any], program: Program, dtype: Any = jnp.bfloat16) -> Tree:
    """The parameter tree of a program from the tensors of a checkpoint, in the host's memory: whoever takes it says
    where on the devices each weight lies."""
    return stacked(tensor_reader(tensors, program), program, dtype)


def tensor_reader(tensors: Mapping[str, Any], program: Program) -> WeightReader:
    """Weights one at a time, each a view of its tensor where the file has it as it is: nothing is copied before it is
    used."""
    weights = weights_of(program)
    sections = {section.name: section for section in program.sections}
    start = next((one for one in PREFIXES if f"{one}embed_tokens.weight" in tensors), "model.")

    def read(section: str, name: str, layer: int) -> numpy.ndarray:
        weight, own = weights[section][name], sections[section]
        sources, prefix = tensor_places(program, own, weight, layer, start)
        if not sources:
            raise InputError(f"There is no place known in checkpoints for the weight {name} of {section}.")
        spelt = next((prefix + one for one in sources if prefix + one.format(0) in tensors), None)
        if spelt is None:
            asked = shorten(" or ".join(prefix + one.format(0) for one in sources), 160)
            raise InputError(f"The checkpoint lacks the weight {name} of {section}: there is no {asked}.")
        layout = sources[spelt.removeprefix(prefix)]
        if "{}" not in spelt:
            return viewed(as_numbers(tensors, spelt), spelt, layout, weight.array.names, own.dims)
        dims = weight.array.names[1:]
        every = [spelt.format(expert) for expert in range(own.dims["e"])]
        for one in every:
            if one not in tensors:
                raise InputError(
                    f"The checkpoint lacks the weight {name} of {section}: there is no {shorten(one, 160)}."
                )
        return numpy.stack([viewed(as_numbers(tensors, one), one, layout, dims, own.dims) for one in every])

    return read


def tensor_places(
    program: Program, section: Section, weight: Weight, layer: int, start: str
) -> tuple[dict[str, str], str]:
    """The tensors that may hold a weight, and what is before their names."""
    name = weight.array.name
    if not weight.stacked:
        return NAMES.ends.get(name, {}), start.replace("model.", "", 1) if name == "W_head" else start
    number = [at for at, one in enumerate(program.order) if one == section.name][layer]
    if any(dim.select for dim in weight.array.dims):
        return NAMES.experts.get(name, {}), f"{start}layers.{number}."
    name = "w_qnorm of latents" if name == "w_qnorm" and "q" in section.dims else name
    return NAMES.layers.get(name, {}), f"{start}layers.{number}."


def viewed(
    tensor: numpy.ndarray, name: str, layout: str, names: tuple[str, ...], sizes: Mapping[str, int]
) -> numpy.ndarray:
    shape, fine, picked, order = read_layout(layout, names, sizes)
    if tensor.shape != shape and tensor.squeeze().shape != shape:
        told = f"The tensor {shorten(name, 160)} has the shape {tensor.shape}"
        raise InputError(f"{told}, not that of this model: {shape}.")
    return tensor.reshape(fine)[picked].transpose(order)


def save_weights(params: Tree, program: Program, family: str, dtype: Any = numpy.float32) -> dict[str, numpy.ndarray]:
    """The tensors of a checkpoint from a parameter tree whose layers are stacked, under the names of a family
    (`llama`)."""
    sections = {section.name: section for section in program.sections}
    made: dict[str, numpy.ndarray] = {}
    for section, weights in weights_of(program).items():
        for name, weight in weights.items():
            whole = numpy.asarray(params[section][name]).astype(dtype)
            for layer in range(weight.shape[0] if weight.stacked else 1):
                sources, prefix = tensor_places(program, sections[section], weight, layer, "model.")
                spelt = _spelt(sources, family, sandwiched="w_mixer_after" in weights)
                if not spelt:
                    raise InputError(f"There is no place known in checkpoints for the weight {name} of {section}.")
                value = whole[layer] if weight.stacked else whole
                each = [(spelt.format(at), one) for at, one in enumerate(value)] if "{}" in spelt else [(spelt, value)]
                dims = weight.array.names[1:] if "{}" in spelt else weight.array.names
                for own, part in each:
                    shape = read_layout(sources[spelt], dims, sections[section].dims)[0]
                    tensor = made.setdefault(prefix + own, numpy.zeros(shape, dtype))
                    viewed(tensor, own, sources[spelt], dims, sections[section].dims)[...] = part
    return made


def _spelt(sources: Mapping[str, str], family: str, sandwiched: bool) -> str:
    """The name that a family gives a tensor. A norm before the feed-forward part is named after the attention before
    it, unless that has a norm of its own."""
    if len(sources) > 1 and "post_attention_layernorm.weight" in sources:
        return "pre_feedforward_layernorm.weight" if sandwiched else "post_attention_layernorm.weight"
    starts = NAMES.written.get(family, ())
    return next((one for one in sources if one.startswith(starts)), next(iter(sources), ""))


def save_folder(
    folder: str | Path, model: str | Path, params: Tree, program: Program, dtype: Any = numpy.float32
) -> None:
    """A model folder as Hugging Face's: `config.json` from what `model` was read from, and `model.safetensors`. A
    tokenizer is whoever's business trained one."""
    path, config = Path(folder), dict(model_fields(model))
    family = str(config.setdefault("model_type", "llama"))
    config.setdefault("architectures", ["".join(part.capitalize() for part in family.split("_")) + "ForCausalLM"])
    config["dtype"] = {"float32": "float32", "bfloat16": "bfloat16"}.get(numpy.dtype(dtype).name, "float32")
    path.mkdir(parents=True, exist_ok=True)
    write_safetensors(save_weights(params, program, family, dtype), path / "model.safetensors")
    write_file(path / "config.json", json.dumps(config, indent=2), "The model's config")


def save_adapters(folder: str | Path, model: str, params: Tree, program: Program, rank: int, scale: float) -> None:
    """Trained adapters as a folder that PEFT reads: `adapter_model.safetensors` and `adapter_config.json`."""
    sections, made = {section.name: section for section in program.sections}, dict[str, numpy.ndarray]()
    targets: set[str] = set()
    for section, weights in params.items():
        for name, value in weights.items():
            base, _, half = name.rpartition("_")
            weight = weights_of(program)[section][base]
            for layer, one in enumerate(numpy.asarray(value, numpy.float32)):
                sources, prefix = tensor_places(program, sections[section], weight, layer, "model.")
                spelt = next(iter(sources), "")
                if not spelt or "+" in sources[spelt] or "{}" in spelt or len(sources[spelt].split()) != 2:
                    raise InputError(
                        f"PEFT has no adapters of {base} as a matrix of its own; take other --lora-targets."
                    )
                flat = one.reshape(-1, rank).T if half == "a" else one.reshape(rank, -1).T
                module = spelt.removesuffix(".weight")
                targets.add(module.rpartition(".")[2])
                made[f"base_model.model.{prefix}{module}.lora_{half.upper()}.weight"] = numpy.ascontiguousarray(flat)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_safetensors(made, path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(model), "bias": "none"}
    config |= {"r": rank, "lora_alpha": scale * rank, "lora_dropout": 0.0, "target_modules": sorted(targets)}
    write_file(path / "adapter_config.json", json.dumps(config, indent=2), "The adapters' config")
