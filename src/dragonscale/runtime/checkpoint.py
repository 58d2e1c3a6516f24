"""Weights of a Hugging Face checkpoint as the parameter tree of a model program.

A checkpoint keeps every projection as a matrix [out, in] under its own name; the program has them by named dims. `SOURCES`
says, for each weight of a program, which tensors it may be found under and how they become its dims; a family needs no
code of its own. A weight that is found nowhere, or a tensor of another shape, is refused by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.models.program import Program, Section
from dragonscale.runtime.parameters import Tree, Weight, weights_of

Sizes = dict[str, int]
Make = Callable[[numpy.ndarray, Sizes], numpy.ndarray]


def _matrix(*dims: str) -> Make:
    """[out, in] to [in, out…]: the dims of a projection whose first dim is its input."""
    return lambda tensor, sizes: tensor.T.reshape([sizes[name] for name in dims])


def _as_is(*dims: str) -> Make:
    return lambda tensor, sizes: tensor.reshape([sizes[name] for name in dims])


def _rows(start: Callable[[Sizes], int], stop: Callable[[Sizes], int], *dims: str) -> Make:
    """Some rows of a matrix that holds several projections."""
    return lambda tensor, sizes: tensor[start(sizes) : stop(sizes)].T.reshape([sizes[name] for name in dims])


def _latent(first: bool) -> Make:
    """Keys' and values' expansions, head by head in one matrix [n·(p+g), c]."""

    def make(tensor: numpy.ndarray, sizes: Sizes) -> numpy.ndarray:
        heads = tensor.reshape(sizes["n"], sizes["p"] + sizes["g"], sizes["c"])
        chosen = heads[:, : sizes["p"]] if first else heads[:, sizes["p"] :]
        return chosen.transpose(2, 0, 1)

    return make


Source = tuple[tuple[str, ...], Make]
ATTENTION: dict[str, Source] = {
    "Wq": (("self_attn.q_proj.weight",), _matrix("d", "n", "h")),
    "Wk": (("self_attn.k_proj.weight",), _matrix("d", "k", "h")),
    "Wv": (("self_attn.v_proj.weight",), _matrix("d", "k", "g")),
    "w_q": (("self_attn.q_proj.bias",), _as_is("n", "h")),
    "w_k": (("self_attn.k_proj.bias",), _as_is("k", "h")),
    "w_v": (("self_attn.v_proj.bias",), _as_is("k", "g")),
    "w_o": (("self_attn.o_proj.bias",), _as_is("d")),
    "Wo": (("self_attn.o_proj.weight",), _matrix("n", "g", "d")),
    "Wqa": (("self_attn.q_a_proj.weight",), _matrix("d", "q")),
    "Wqb": (("self_attn.q_b_proj.weight",), _matrix("q", "n", "h")),
    "Wkva": (("self_attn.kv_a_proj_with_mqa.weight",), _rows(lambda _: 0, lambda s: s["c"], "d", "c")),
    "Wkr": (("self_attn.kv_a_proj_with_mqa.weight",), _rows(lambda s: s["c"], lambda s: s["c"] + s["r"], "d", "r")),
    "Wkb": (("self_attn.kv_b_proj.weight",), _latent(first=True)),
    "Wvb": (("self_attn.kv_b_proj.weight",), _latent(first=False)),
    "w_sinks": (("self_attn.sinks",), _as_is("n")),
}
FEED: dict[str, Source] = {
    "Wu": (("mlp.up_proj.weight",), _matrix("d", "f")),
    "Wg": (("mlp.gate_proj.weight",), _matrix("d", "f")),
    "Wd": (("mlp.down_proj.weight",), _matrix("f", "d")),
    "W_router": (("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight"), _matrix("d", "e")),
    "w_score": (("mlp.gate.e_score_correction_bias",), _as_is("e")),
    "Wsu": (("mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"), _matrix("d", "z")),
    "Wsg": (("mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"), _matrix("d", "z")),
    "Wsd": (("mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"), _matrix("z", "d")),
    "W_sgate": (("mlp.shared_expert_gate.weight",), _as_is("d")),
}
EXPERTS: dict[str, Source] = {
    "Wu": (("mlp.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.w3.weight"), _matrix("d", "f")),
    "Wg": (("mlp.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.w1.weight"), _matrix("d", "f")),
    "Wd": (("mlp.experts.{}.down_proj.weight", "block_sparse_moe.experts.{}.w2.weight"), _matrix("f", "d")),
}
NORMS: dict[str, Source] = {
    "w_mixer": (("input_layernorm.weight",), _as_is("d")),
    "w_ffn": (("pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"), _as_is("d")),
    "w_mixer_after": (("post_attention_layernorm.weight",), _as_is("d")),
    "w_ffn_after": (("post_feedforward_layernorm.weight",), _as_is("d")),
    "w_qnorm": (("self_attn.q_norm.weight",), _as_is("h")),
    "w_qnorm of latents": (("self_attn.q_a_layernorm.weight",), _as_is("q")),
    "w_knorm": (("self_attn.k_norm.weight",), _as_is("h")),
    "w_kvnorm": (("self_attn.kv_a_layernorm.weight",), _as_is("c")),
}
ENDS: dict[str, Source] = {
    "W_embed": (("model.embed_tokens.weight", "embed_tokens.weight"), _as_is("v", "d")),
    "w_final": (("model.norm.weight", "norm.weight"), _as_is("d")),
    "W_head": (("lm_head.weight",), _as_is("v", "d")),
}


def load_weights(tensors: Mapping[str, Any], program: Program, dtype: Any = jnp.bfloat16) -> Tree:
    """The parameter tree of a program from the tensors of a checkpoint, in the host's memory: whoever takes it says where on
    the devices each weight lies."""
    tree: Tree = {}
    layers: dict[str, list[int]] = {}
    for number, name in enumerate(program.order):
        layers.setdefault(name, []).append(number)
    for section in program.sections:
        tree[section.name] = {}
        for name, weight in weights_of(program)[section.name].items():
            if weight.stacked:
                value = numpy.stack([_layer(tensors, section, weight, number) for number in layers[section.name]])
            else:
                value = _found(tensors, ENDS, name, "", section)
            if value.shape != weight.shape:
                raise InputError(
                    f"The checkpoint's {name} of {section.name} has the shape {value.shape}, not {weight.shape}."
                )
            tree[section.name][name] = value.astype(dtype)
    return tree


def _layer(tensors: Mapping[str, Any], section: Section, weight: Weight, number: int) -> numpy.ndarray:
    name, prefix = weight.array.name, f"model.layers.{number}."
    if any(dim.select for dim in weight.array.dims):
        return _found(tensors, EXPERTS, name, prefix, section)
    name = "w_qnorm of latents" if name == "w_qnorm" and "q" in section.dims else name
    return _found(tensors, {**ATTENTION, **FEED, **NORMS}, name, prefix, section)


def _found(
    tensors: Mapping[str, Any], sources: dict[str, Source], name: str, prefix: str, section: Section
) -> numpy.ndarray:
    """A weight from the first of its names that is there; of experts, from the tensors of all of them."""
    if name not in sources:
        raise InputError(f"There is no place known in checkpoints for the weight {name} of {section.name}.")
    names, make = sources[name]
    spelt = next((prefix + one for one in names if prefix + one.format(0) in tensors), None)
    if spelt is None:
        asked = shorten(" or ".join(prefix + one.format(0) for one in names), 160)
        raise InputError(f"The checkpoint lacks the weight {name} of {section.name}: there is no {asked}.")
    every = [spelt.format(expert) for expert in range(section.dims["e"])] if sources is EXPERTS else [spelt]
    try:
        found = [make(numpy.asarray(tensors[each]), section.dims) for each in every]
    except ValueError:
        shape = tensors[every[0]].shape
        raise InputError(
            f"The checkpoint's {every[0]} has the shape {shape}, which is not that of this model."
        ) from None
    return numpy.stack(found) if sources is EXPERTS else found[0]
