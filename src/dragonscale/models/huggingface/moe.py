"""Readers of MoE models over grouped-query attention, every layer alike or nearly so."""

from collections.abc import Callable, Sequence
from typing import Any

from dragonscale.models.ffn import Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    Reader,
    alike,
    all_but_every,
    attention,
    biased_attention,
    decoder,
    mlp,
    qkv_biased,
    window_everywhere,
    windowed,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

SPARSE = ("dense", "sparse")


def routed(f: Fields, d_ff: int | None = None, **options: Any) -> Moe:
    """The experts, of `moe_intermediate_size` unless said otherwise, their counts under whichever names the family uses.

    `intermediate_size` beside it is that of dense layers, of which there may be none.
    """
    f.skip("intermediate_size")
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    chosen = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k")
    d_ff = d_ff or f.count("moe_intermediate_size")
    return Moe(f.count(*names), f.count(*chosen), d_ff, **options)


def full_size(f: Fields, **options: Any) -> Moe:
    """Experts of the MLP's full size."""
    return routed(f, f.count("intermediate_size"), **options)


def with_shared(f: Fields, **options: Any) -> Moe:
    """Experts beside shared ones of the same size."""
    shared = f.natural("n_shared_experts", "num_shared_experts") * f.count("moe_intermediate_size")
    return routed(f, shared_d_ff=shared, **options)


def is_sparse(f: Fields) -> Sequence[bool]:
    """Qwen's rule: every `decoder_sparse_step`-th layer has experts unless it is among `mlp_only_layers`."""
    step, dense = f.natural("decoder_sparse_step"), f.numbers("mlp_only_layers") or []
    experts = f.natural("num_experts")
    return [
        experts > 0 and step > 0 and number not in dense and (number + 1) % step == 0 for number in range(f.n_layers())
    ]


def qwen2_moe(f: Fields) -> Transformer:
    """Qwen 1.5 and 2 MoE: a large shared expert behind a gate."""
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")
    n_layers = f.n_layers()
    spans = windows(f, n_layers, lambda i: used and i % 2 == 0 and i < first)
    spans = spans if used else [None] * n_layers
    shared = f.count("shared_expert_intermediate_size")
    f.must_be("qkv_bias", True)
    moe = routed(f, shared_d_ff=shared, shared_gate=True)
    layers = [
        Layer(attention(f, qkv_bias=True, window=span), moe if sparse else mlp(f))
        for span, sparse in zip(spans, is_sparse(f), strict=True)
    ]
    return decoder(f, layers)


def qwen3_moe(f: Fields) -> Transformer:
    """Qwen 3 MoE: many small experts, none shared."""
    window = window_everywhere(f) if f.flag("use_sliding_window") else None
    f.skip("sliding_window", "max_window_layers")
    moe = routed(f)
    mixer = biased_attention(f, qk_norm="head", window=window)
    return decoder(f, [Layer(mixer, moe if sparse else mlp(f)) for sparse in is_sparse(f)])


def phimoe(f: Fields) -> Transformer:
    """Phi 3.5 MoE: layer norms with biases, a bias on the head."""
    layer = Layer(biased_attention(f, window=window_everywhere(f)), full_size(f), norm_bias=True)
    return decoder(f, [layer] * f.n_layers(), head_bias=f.flag("lm_head_bias"), final_norm_bias=True)


def dbrx(f: Fields) -> Layer:
    """DBRX: its attention and experts are described in objects of their own; layer norms without biases."""
    attn = f.inner("attn_config") or Fields({}, {}, f"attn_config of {f.what}")
    ffn = f.inner("ffn_config") or Fields({}, {}, f"ffn_config of {f.what}")
    attn.skip("attn_pdrop", "clip_qkv", "rope_theta", "kv_n_heads")
    ffn.skip("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    ffn.skip("uniform_expert_assignment")
    f.skip("emb_pdrop", "resid_pdrop")
    experts, chosen = ffn.optional("moe_num_experts") or 4, ffn.optional("moe_top_k") or 1
    moe = Moe(experts, chosen, ffn.optional("ffn_hidden_size") or 3584)
    layer = Layer(attention(f, n_kv_heads=attn.optional("kv_n_heads") or 1), moe)
    attn.refuse_unread()
    ffn.refuse_unread()
    return layer


def solar_open(f: Fields) -> Layer:
    """Solar Open: every layer has experts and a shared one."""
    f.must_be("first_k_dense_replace", 0)
    f.must_be("use_qk_norm", False)
    return Layer(qkv_biased(f), with_shared(f, score_bias=True))


def minimax_m2(f: Fields) -> Layer:
    """MiniMax M2: norms over all queries and keys, a correction to the routing scores.

    The config names multi-token modules (`num_mtp_modules`), which the released files do not hold.
    """
    f.skip("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    f.must_be("qk_norm_type", "per_layer")
    f.must_be("use_qk_norm", True)
    f.must_be("use_routing_bias", True)
    f.skip("attn_type_list", "layernorm_full_attention_beta")
    moe = full_size(f, shared_d_ff=f.natural("shared_intermediate_size"), score_bias=True)
    return Layer(attention(f, qk_norm="all"), moe)


def hunyuan_moe(f: Fields) -> Layer:
    """Hunyuan A13B: experts in every layer beside one shared MLP of the same size."""
    for name, value in (("use_qk_norm", True), ("use_mixed_mlp_moe", True), ("num_shared_expert", 1)):
        given = f.given.get(name)
        if isinstance(given, list):
            f.read.add(name)
        else:
            f.must_be(name, value)
    d_ff = _one(f, "moe_intermediate_size") or _one(f, "intermediate_size")
    f.read |= {"moe_intermediate_size", "intermediate_size"}
    f.skip("moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token", "dense_list")
    f.skip("norm_type", "group_limited_greedy")
    f.skip("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "cla_share_factor")
    chosen = _one(f, "moe_topk") or f.count("num_experts_per_tok")
    moe = Moe(f.count("num_experts", "num_local_experts"), chosen, d_ff, shared_d_ff=d_ff)
    return Layer(biased_attention(f, qk_norm="head"), moe)


def _one(f: Fields, name: str) -> int:
    """A number that some configs repeat for every layer."""
    value = f.value(name)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        f = Fields({name: value[0]}, {}, f.what)
    return f.natural(name)


def grok1(f: Fields) -> Layer:
    """Grok-1: norms around both halves; written as in the community's port of the released weights."""
    f.skip("attn_output_multiplier", "max_attn_value", "embedding_multiplier_scale", "output_multiplier_scale")
    return Layer(attention(f), full_size(f), "sandwich")


def _granite(f: Fields) -> Layer:
    """Granite 3 MoE, with a shared MLP in some."""
    return Layer(biased_attention(f), full_size(f, shared_d_ff=f.natural("shared_intermediate_size")))


def _gpt_oss(f: Fields, span: int | None) -> Layer:
    """gpt-oss: biases everywhere, sinks, a window on every other layer."""
    return Layer(biased_attention(f, sinks=True, window=span), full_size(f, bias=True, router_bias=True))


_LAYERS: dict[str, Callable[[Fields], Layer]] = {
    "mixtral": lambda f: Layer(attention(f, window=window_everywhere(f)), full_size(f)),
    # norms over all queries and keys; FlexOlmo has OLMo 2's norms after each half too
    "olmoe": lambda f: Layer(biased_attention(f, qk_norm="all"), full_size(f)),
    "flex_olmo": lambda f: Layer(biased_attention(f, qk_norm="all"), full_size(f), "post"),
    "granitemoe": _granite,
    "granitemoeshared": _granite,
    "solar_open": solar_open,
    "minimax_m2": minimax_m2,
    "hunyuan_v1_moe": hunyuan_moe,
    "grok-1": grok1,
}
FAMILIES: dict[str, Reader] = {
    **{name: alike(layer) for name, layer in _LAYERS.items()},
    "dbrx": alike(dbrx, "n_layers"),
    "gpt_oss": windowed(all_but_every(2), _gpt_oss),
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "phimoe": phimoe,
}
