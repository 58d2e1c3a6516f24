"""What a config says about arithmetic that changes no count: nonlinearities, norms, rotary embeddings, routing, scales.

The model program knows shapes; to compute with it one also has to know which nonlinearity, which epsilon, which
frequencies. They come from the same `config.json` fields, by the names that Hugging Face gives them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dragonscale.errors import InputError, shorten
from dragonscale.models.load import model_fields

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]

_SPELLINGS: dict[Activation, tuple[str, ...]] = {
    "silu": ("silu", "swish", "swiglu"),
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    "relu": ("relu",),
    "relu2": ("relu2", "relu_squared"),
}
_ACTIVATIONS: dict[str, Activation] = {spelling: act for act, spellings in _SPELLINGS.items() for spelling in spellings}
_ROPE = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor"}
_ROPE |= {name: name for name in ("beta_fast", "beta_slow")}
"""Numbers of rotary embeddings, and what configs call them."""


@dataclass(frozen=True)
class Rope:
    """Rotary embeddings: `theta`, the part of a head that turns, and how frequencies are stretched for long contexts.

    `interleaved` pairs neighbours (GPT-J, DeepSeek) instead of halves. `kind` is `none` (no positions), `default`,
    `linear`, `llama3` or `yarn`, whose bounds between stretched and unstretched channels are `whole_turns` or lie
    between two channels.
    """

    theta: float = 10000.0
    part: float = 1.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    interleaved: bool = False
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole_turns: bool = True


@dataclass(frozen=True)
class Routing:
    """How a router's logits become weights: `softmax` over all experts or over the chosen ones (`after`), or `sigmoid`;
    `normalise` makes the chosen ones sum to one; `scale` multiplies them; with groups only the best are looked into."""

    score: Literal["softmax", "after", "sigmoid"] = "softmax"
    normalise: bool = True
    scale: float = 1.0
    groups: int = 1
    best_groups: int = 1


@dataclass(frozen=True)
class Numerics:
    """The arithmetic of one model. `offset` is added to the weights of norms (Gemma keeps them around zero). With a
    `gate_limit` (gpt-oss) gates and what they open are held within it, the gate is x·sigmoid(`gate_slope`·x), and one
    is added to what it opens."""

    act: Activation = "silu"
    gate_limit: float = 0.0
    gate_slope: float = 1.702
    eps: float = 1e-5
    norm: Literal["rms", "layer"] = "rms"
    offset: float = 0.0
    rope: Rope = field(default_factory=Rope)
    near_rope: Rope | None = None
    attention_scale: float | None = None
    attention_cap: float = 0.0
    logits_cap: float = 0.0
    embed_scale: float = 1.0
    routing: Routing = field(default_factory=Routing)


_LAYER_NORM = ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "phi", "starcoder2", "stablelm")


def read_numerics(config: Mapping[str, Any]) -> Numerics:
    """The arithmetic of a config.

    >>> read_numerics({"model_type": "llama", "rms_norm_eps": 1e-6, "rope_theta": 500000.0}).rope.theta
    500000.0
    """
    config = {**config, **(config.get("text_config") or {})}  # of a model that also sees, the part that reads
    kind = str(config.get("model_type", "llama"))
    acts = ("hidden_act", "hidden_activation", "activation_function")
    given = next((config[name] for name in acts if name in config), "silu")
    if given not in _ACTIVATIONS:
        raise InputError(f"There is no JAX for the nonlinearity {shorten(given)}; known: {', '.join(_ACTIVATIONS)}.")
    gemma = kind.startswith("gemma")
    epsilons = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
    eps = next((config[name] for name in epsilons if config.get(name)), 1e-5)
    ropes = config.get("rope_parameters") or {}
    near = Rope(float(config["rope_local_base_freq"])) if config.get("rope_local_base_freq") else None
    if "full_attention" in ropes:  # one for each kind of layer
        config["rope_parameters"] = ropes["full_attention"]
        near = _rope({**config, "rope_parameters": ropes.get("sliding_attention", ropes["full_attention"])})
    rope = _rope(config)
    heads = config.get("query_pre_attn_scalar")
    return Numerics(
        act=_ACTIVATIONS[given],
        gate_limit=float(config.get("swiglu_limit") or 7.0) if kind == "gpt_oss" else 0.0,
        gate_slope=float(config.get("swiglu_alpha") or 1.702),
        eps=float(eps),
        norm="layer" if kind in _LAYER_NORM else "rms",
        offset=1.0 if gemma else 0.0,
        rope=rope,
        near_rope=near,
        attention_scale=_attention_scale(config, rope) if heads is None else float(heads) ** -0.5,
        attention_cap=float(config.get("attn_logit_softcapping") or 0.0),
        logits_cap=float(config.get("final_logit_softcapping") or 0.0),
        embed_scale=math.sqrt(config["hidden_size"]) if gemma else 1.0,
        routing=_routing(config, kind),
    )


def _rope(config: Mapping[str, Any]) -> Rope:
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = float(config.get("rope_theta") or scaling.get("rope_theta") or config.get("rotary_emb_base") or 10000.0)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in ("default", "linear", "llama3", "yarn"):
        known = "default, linear, llama3, yarn"
        raise InputError(f"There is no JAX for rotary embeddings stretched as {shorten(kind)}; known: {known}.")
    if config.get("model_type") in ("gpt2", "opt", "bloom"):
        return Rope(kind="none")
    latent = config.get("kv_lora_rank") is not None
    return Rope(
        theta=theta,
        part=float(_first((config, scaling), "partial_rotary_factor", "rotary_pct") or 1.0),
        kind=kind,
        original=int(scaling.get("original_max_position_embeddings") or config.get("max_position_embeddings") or 8192),
        interleaved=bool(config.get("rope_interleave", latent)) or config.get("model_type") == "gptj",
        magnitude=_magnitude(scaling) if kind == "yarn" else 1.0,
        whole_turns=bool(scaling.get("truncate", True)),
        **{own: float(scaling[name]) for own, name in _ROPE.items() if scaling.get(name)},
    )


def _first(tables: tuple[Mapping[str, Any], ...], *names: str) -> Any:
    return next((table[name] for name in names for table in tables if table.get(name) is not None), None)


def _mscale(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _magnitude(scaling: Mapping[str, Any]) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = float(scaling.get("factor") or 1.0)
    first, every = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return _mscale(factor, float(first)) / _mscale(factor, float(every)) if first and every else _mscale(factor, 1.0)


def _attention_scale(config: Mapping[str, Any], rope: Rope) -> float | None:
    """Latent attention under YaRN multiplies its scale by the square of the magnitude over all dims."""
    if config.get("kv_lora_rank") is None:
        return None
    size = float(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    every = scaling.get("mscale_all_dim")
    return size**-0.5 * (_mscale(rope.factor, float(every)) ** 2 if rope.kind == "yarn" and every else 1.0)


def _routing(config: Mapping[str, Any], kind: str) -> Routing:
    if kind in ("gpt_oss", "mixtral"):
        return Routing("after", normalise=False)
    sigmoid = config.get("scoring_func") == "sigmoid" or kind in ("deepseek_v3", "kimi_k2")
    normalise = bool(config.get("norm_topk_prob", kind in ("deepseek_v3", "qwen3_moe")))
    groups, best = int(config.get("n_group") or 1), int(config.get("topk_group") or 1)
    scale = float(config.get("routed_scaling_factor") or 1.0)
    return Routing("sigmoid" if sigmoid else "softmax", normalise, scale, groups, best)


def numerics_of(name: str | Path) -> Numerics:
    """Of whatever a model is read from; a file of the book's letters is a LLaMA."""
    return read_numerics(model_fields(name))
