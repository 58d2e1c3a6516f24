"""What most families share: readers of heads, windows, MLPs, experts and the frame around the layers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Component, Layer
from dragonscale.models.transformer import Transformer

LINEAR = ("linear_attention", "full_attention")
SLIDING = ("full_attention", "sliding_attention")
SPARSE = ("dense", "sparse")
"""Kinds of layers, as configs list them."""

Reader = Callable[[Fields], Transformer]


def d_model(f: Fields) -> int:
    """The width of the residual stream."""
    return f.count("hidden_size", "n_embd", "d_model", "n_embed", "dim")


def split_evenly(f: Fields, total: int, parts: int, what: str) -> int:
    """One part's share, or an error if it does not come out even."""
    if total % parts:
        raise InputError(f"{f.what} cannot split {what} of {total} over {parts} heads evenly.")
    return total // parts


def heads(f: Fields) -> dict[str, Any]:
    """Heads of a grouped-query attention, as arguments of `Attention`."""
    n_heads = f.count("num_attention_heads", "n_head", "n_heads")
    n_kv_heads = f.optional("num_key_value_heads") or n_heads
    head_dim = f.optional("head_dim", "attention_head_dim") or split_evenly(f, d_model(f), n_heads, "a hidden size")
    return {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim}


def attention(f: Fields, **options: Any) -> Attention:
    """Grouped-query attention with the family's own options."""
    frame: dict[str, Any] = heads(f) | {"soft_cap": bool(f.value("attn_logit_softcapping"))}
    return Attention(**(frame | options))


def full_heads(f: Fields, **options: Any) -> Attention:
    """Attention with as many KV heads as heads, unless said otherwise, that share the width evenly."""
    n_heads = f.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    size = split_evenly(f, d_model(f), n_heads, "a hidden size")
    frame: dict[str, Any] = {"n_heads": n_heads, "n_kv_heads": n_heads, "head_dim": size}
    return Attention(**(frame | options))


def biased_attention(f: Fields, **options: Any) -> Attention:
    """Attention whose `attention_bias` puts a bias on all four projections."""
    bias = f.flag("attention_bias")
    return attention(f, qkv_bias=bias, out_bias=bias, **options)


def mlp(f: Fields, **options: Any) -> Mlp:
    """A feed-forward part of `intermediate_size`."""
    return Mlp(f.count("intermediate_size"), **options)


def latent_attention(f: Fields, **options: Any) -> LatentAttention:
    """Multi-head latent attention."""
    f.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    return LatentAttention(
        n_heads=f.count("num_attention_heads"),
        q_rank=f.optional("q_lora_rank"),
        kv_rank=f.count("kv_lora_rank"),
        nope_dim=f.count("qk_nope_head_dim"),
        rope_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
        bias=f.flag("attention_bias"),
        **options,
    )


def routed(f: Fields, d_ff: int | None = None, **options: Any) -> Moe:
    """The experts, of `moe_intermediate_size` unless said otherwise, their counts under whichever names the family
    uses.

    `intermediate_size` beside it is that of dense layers, of which there may be none.
    """
    f.skip("intermediate_size")
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    chosen = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
    d_ff = d_ff or f.count("moe_intermediate_size")
    used = options.pop("experts_per_token", None) or f.count(*chosen)
    return Moe(f.count(*names), used, d_ff, **options)


def with_shared(f: Fields, **options: Any) -> Moe:
    """Experts beside shared ones of the same size."""
    shared = f.natural("n_shared_experts", "num_shared_experts") * f.count("moe_intermediate_size")
    return routed(f, shared_d_ff=shared, **options)


def is_sparse(f: Fields) -> list[bool]:
    """Qwen's rule: every `decoder_sparse_step`-th layer has experts unless it is among `mlp_only_layers`."""
    step, dense = f.natural("decoder_sparse_step"), f.numbers("mlp_only_layers") or []
    experts = f.natural("num_experts")
    return [
        experts > 0 and step > 0 and number not in dense and (number + 1) % step == 0 for number in range(f.n_layers())
    ]


def sparse_from(f: Fields, first: int, step: int = 1) -> list[bool]:
    """Which layers have experts: by the list in `mlp_layer_types`, else from one on, every so many."""
    return f.either("mlp_layer_types", f.n_layers(), SPARSE, lambda i: i >= first and i % step == 0)


def paired(mixers: Iterable[Component | None], ffns: Iterable[Component | None]) -> list[Layer]:
    """Plain layers, each with its mixer and its feed-forward part."""
    return [Layer(mixer, ffn) for mixer, ffn in zip(mixers, ffns, strict=True)]


def _stretched(stated: int | None, scaling: object) -> int | None:
    """The context with YaRN's stretch of the original one, where a config states the shorter (vllm/config/model.py does
    the same; most state the stretched length)."""
    if stated is None or not isinstance(scaling, Mapping):
        return stated
    kind = scaling.get("rope_type") or scaling.get("type")
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if kind != "yarn" or not isinstance(factor, int | float) or not isinstance(original, int) or not 1 <= factor <= 1e6:
        return stated
    return max(stated, round(original * factor))


def decoder(f: Fields, layers: Sequence[Layer], **options: Any) -> Transformer:
    """The frame: embedding, layers, final norm and head."""
    spelt = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
    given = [f.natural(name) for name in spelt]  # some files have two, which need not agree
    scaling = f.value("rope_scaling") or f.value("rope_parameters")
    context = _stretched(next((length for length in given if length), None), scaling)
    frame: dict[str, Any] = {
        "name": f.text("model_type") or f.what,
        "d_model": d_model(f),
        "vocab": options.pop("vocab", None) or f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"),
        "context": context,
    }
    return Transformer(layers=tuple(layers), **(frame | options))


def windows(f: Fields, n_layers: int, otherwise: Callable[[int], object]) -> list[int | None]:
    """Each layer's window by `layer_types`; without that field, `otherwise` says which layers have one."""
    window = f.optional("sliding_window")
    local = f.either("layer_types", n_layers, SLIDING, lambda number: window and otherwise(number))
    return [window if each else None for each in local]


def all_but_every(step: int) -> Callable[[int], bool]:
    """True for layers that are not the last of each `step`.

    >>> [all_but_every(3)(number) for number in range(4)]
    [True, True, False, True]
    """
    return lambda number: step > 0 and (number + 1) % step != 0


def _qwen(f: Fields, n_layers: int, moe: bool = False) -> list[int | None]:
    """With `use_sliding_window`, from layer `max_window_layers` on; in Qwen 2's MoE on every other layer before it."""
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")
    spans = windows(f, n_layers, lambda i: used and (i % 2 == 0 and i < first if moe else i >= first))
    return spans if used else [None] * n_layers


def _from_layer(f: Fields, n_layers: int) -> list[int | None]:
    first = f.natural("max_window_layers")
    return windows(f, n_layers, lambda number: number >= first)


def _without_rope(f: Fields, n_layers: int) -> list[int | None]:
    """SmolLM 3: where a window is used, the layers that do not rotate have it."""
    used, step = f.flag("use_sliding_window"), f.natural("no_rope_layer_interval")
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % step != 0) if step else 1 for i in range(n_layers)]
    return windows(f, n_layers, lambda number: used and number < len(rotates) and not rotates[number])


def _pattern(f: Fields, n_layers: int) -> list[int | None]:
    """EXAONE's `sliding_window_pattern`: a string of kinds, or how many layers it spans."""
    pattern = f.value("sliding_window_pattern")
    step = len(pattern) if isinstance(pattern, str) else f.natural("sliding_window_pattern")
    return windows(f, n_layers, all_but_every(step))


RULES: dict[str, Callable[[Fields, int], list[int | None]]] = {
    "everywhere": lambda f, n_layers: [f.optional("sliding_window")] * n_layers,
    "where_used": lambda f, n_layers: (
        [f.optional("sliding_window") if f.flag("use_sliding_window") else None] * n_layers
    ),
    "all": lambda f, n_layers: windows(f, n_layers, lambda _: True),
    "all_but_first_of_four": lambda f, n_layers: windows(f, n_layers, lambda number: number % 4),
    "qwen": _qwen,
    "qwen_moe": lambda f, n_layers: _qwen(f, n_layers, moe=True),
    "from_layer": _from_layer,
    "without_rope": _without_rope,
    "pattern": _pattern,
}
