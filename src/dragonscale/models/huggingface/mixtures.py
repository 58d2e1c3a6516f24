"""Readers of mixtures of experts over grouped-query attention, every layer alike or nearly so."""

from collections.abc import Sequence

from dragonscale.models.ffn import Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    all_but_every,
    attention,
    biased_attention,
    decoder,
    mlp,
    window_everywhere,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

SPARSE = ("dense", "sparse")


def routed(f: Fields, d_ff: int, **options: object) -> Moe:
    """The mixture itself, its counts under whichever names the family uses.

    `intermediate_size` beside it is that of dense layers, of which there may be none.
    """
    f.skip("intermediate_size")
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    chosen = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k")
    return Moe(f.count(*names), f.count(*chosen), d_ff, **options)  # pyright: ignore[reportArgumentType]


def mixtral(f: Fields) -> Transformer:
    """Mixtral: eight experts of the MLP's full size."""
    layer = Layer(attention(f, window=window_everywhere(f)), routed(f, f.count("intermediate_size")))
    return decoder(f, [layer] * f.n_layers())


def is_sparse(f: Fields) -> Sequence[bool]:
    """Qwen's rule: every `decoder_sparse_step`-th layer is a mixture unless it is among `mlp_only_layers`."""
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
    moe = routed(f, f.count("moe_intermediate_size"), shared_d_ff=shared, shared_gate=True)
    layers = [
        Layer(attention(f, qkv_bias=True, window=span), moe if sparse else mlp(f))
        for span, sparse in zip(spans, is_sparse(f), strict=True)
    ]
    return decoder(f, layers)


def qwen3_moe(f: Fields) -> Transformer:
    """Qwen 3 MoE: many small experts, none shared."""
    window = window_everywhere(f) if f.flag("use_sliding_window") else None
    f.skip("sliding_window", "max_window_layers")
    moe = routed(f, f.count("moe_intermediate_size"))
    mixer = biased_attention(f, qk_norm="head", window=window)
    return decoder(f, [Layer(mixer, moe if sparse else mlp(f)) for sparse in is_sparse(f)])


def olmoe(f: Fields) -> Transformer:
    """OLMoE: norms over all queries and keys."""
    layer = Layer(biased_attention(f, qk_norm="all"), routed(f, f.count("intermediate_size")))
    return decoder(f, [layer] * f.n_layers())


def flex_olmo(f: Fields) -> Transformer:
    """FlexOlmo: OLMo 2's norms around a mixture."""
    layer = Layer(biased_attention(f, qk_norm="all"), routed(f, f.count("intermediate_size")), "post")
    return decoder(f, [layer] * f.n_layers())


def phimoe(f: Fields) -> Transformer:
    """Phi 3.5 MoE: layer norms with biases, a bias on the head."""
    mixer = biased_attention(f, window=window_everywhere(f))
    layer = Layer(mixer, routed(f, f.count("intermediate_size")), norm_bias=True)
    return decoder(f, [layer] * f.n_layers(), head_bias=f.flag("lm_head_bias"), final_norm_bias=True)


def dbrx(f: Fields) -> Transformer:
    """DBRX: its attention and experts are described in objects of their own; layer norms without biases."""
    attn, ffn = f.inner("attn_config"), f.inner("ffn_config")
    attn = attn or Fields({}, {}, f"attn_config of {f.what}")
    ffn = ffn or Fields({}, {}, f"ffn_config of {f.what}")
    attn.skip("attn_pdrop", "clip_qkv", "rope_theta", "kv_n_heads")
    ffn.skip("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    ffn.skip("uniform_expert_assignment")
    f.skip("emb_pdrop", "resid_pdrop")
    moe = Moe(
        ffn.optional("moe_num_experts") or 4, ffn.optional("moe_top_k") or 1, ffn.optional("ffn_hidden_size") or 3584
    )
    layer = Layer(attention(f, n_kv_heads=attn.optional("kv_n_heads") or 1), moe)
    attn.refuse_unread()
    ffn.refuse_unread()
    return decoder(f, [layer] * f.n_layers("n_layers"))


def granite_moe(f: Fields) -> Transformer:
    """Granite 3 MoE, with a shared MLP in some."""
    shared = f.natural("shared_intermediate_size")
    layer = Layer(biased_attention(f), routed(f, f.count("intermediate_size"), shared_d_ff=shared))
    return decoder(f, [layer] * f.n_layers())


def gpt_oss(f: Fields) -> Transformer:
    """gpt-oss: biases everywhere, sinks, a window on every other layer."""
    moe = routed(f, f.count("intermediate_size"), bias=True, router_bias=True)
    spans = windows(f, f.n_layers(), all_but_every(2))
    layers = [Layer(biased_attention(f, sinks=True, window=span), moe) for span in spans]
    return decoder(f, layers)


def solar_open(f: Fields) -> Transformer:
    """Solar Open: every layer a mixture with a shared expert."""
    d_ff = f.count("moe_intermediate_size")
    moe = routed(f, d_ff, shared_d_ff=f.natural("n_shared_experts") * d_ff, score_bias=True)
    f.must_be("first_k_dense_replace", 0)
    f.must_be("use_qk_norm", False)
    f.skip("intermediate_size")
    return decoder(f, [Layer(attention(f, qkv_bias=f.flag("attention_bias")), moe)] * f.n_layers())


def minimax_m2(f: Fields) -> Transformer:
    """MiniMax M2: norms over all queries and keys, a correction to the routing scores.

    The config names multi-token modules (`num_mtp_modules`), which the released files do not hold.
    """
    f.skip("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    f.must_be("qk_norm_type", "per_layer")
    f.must_be("use_qk_norm", True)
    f.must_be("use_routing_bias", True)
    f.skip("attn_type_list", "layernorm_full_attention_beta")
    shared = f.natural("shared_intermediate_size")
    moe = routed(f, f.count("intermediate_size"), shared_d_ff=shared, score_bias=True)
    return decoder(f, [Layer(attention(f, qk_norm="all"), moe)] * f.n_layers())


def hunyuan_moe(f: Fields) -> Transformer:
    """Hunyuan A13B: every layer a mixture beside one shared MLP of the same size."""
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
    return decoder(f, [Layer(biased_attention(f, qk_norm="head"), moe)] * f.n_layers())


def _one(f: Fields, name: str) -> int:
    """A number that some configs repeat for every layer."""
    value = f.value(name)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        f = Fields({name: value[0]}, {}, f.what)
    return f.natural(name)


def grok1(f: Fields) -> Transformer:
    """Grok-1: norms around both halves; written as in the community's port of the released weights."""
    layer = Layer(attention(f), routed(f, f.count("intermediate_size")), "sandwich")
    f.skip("attn_output_multiplier", "max_attn_value", "embedding_multiplier_scale", "output_multiplier_scale")
    return decoder(f, [layer] * f.n_layers())


FAMILIES = {
    "mixtral": mixtral,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "olmoe": olmoe,
    "flex_olmo": flex_olmo,
    "phimoe": phimoe,
    "dbrx": dbrx,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_moe,
    "gpt_oss": gpt_oss,
    "solar_open": solar_open,
    "minimax_m2": minimax_m2,
    "hunyuan_v1_moe": hunyuan_moe,
    "grok-1": grok1,
}
