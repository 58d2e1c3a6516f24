"""Readers of mixtures of experts over grouped-query attention."""

from collections.abc import Sequence

from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    SLIDING,
    all_but_every,
    attention,
    biased_attention,
    d_model,
    decoder,
    mlp,
    window_everywhere,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.mtp import mtp_sections
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


def _dense_first(f: Fields, n_layers: int, first: int) -> list[bool]:
    kinds = f.kinds("mlp_layer_types", n_layers, SPARSE, lambda i: "dense" if i < first else "sparse")
    return [kind == "sparse" for kind in kinds]


def glm4_moe(f: Fields) -> Transformer:
    """GLM 4.5 to 4.7: dense first layers, a correction to the routing scores, multi-token modules."""
    n_layers = f.n_layers()
    norm = "head" if f.flag("use_qk_norm") else ""
    mixer = attention(f, qkv_bias=f.flag("attention_bias"), qk_norm=norm)
    d_ff = f.count("moe_intermediate_size")
    moe = routed(f, d_ff, shared_d_ff=f.natural("n_shared_experts") * d_ff, score_bias=True)
    sparse = _dense_first(f, n_layers, f.natural("first_k_dense_replace"))
    layers = [Layer(mixer, moe if kind else mlp(f)) for kind in sparse]
    modules = f.natural("num_nextn_predict_layers")
    copies = mtp_sections([Layer(mixer, moe)], d_model(f), f.count("vocab_size"), modules, True, True)
    return decoder(f, layers, extras=copies)


def dots1(f: Fields) -> Transformer:
    """dots.llm1: norms on queries and keys, dense first layers, a window in none of the released."""
    n_layers = f.n_layers()
    first = f.natural("first_k_dense_replace")
    f.must_be("moe_layer_freq", 1)
    d_ff = f.count("moe_intermediate_size")
    moe = routed(f, d_ff, shared_d_ff=f.natural("n_shared_experts") * d_ff, score_bias=True)
    used_from = f.natural("max_window_layers")
    spans = windows(f, n_layers, lambda i: i >= used_from)
    layers = [
        Layer(biased_attention(f, qk_norm="head", window=span), mlp(f) if number < first else moe)
        for number, span in enumerate(spans)
    ]
    return decoder(f, layers)


def exaone_moe(f: Fields) -> Transformer:
    """K-EXAONE: windows on three layers of four, dense first layers, norms on queries and keys."""
    n_layers = f.n_layers()
    pattern = f.value("sliding_window_pattern")
    step = len(pattern) if isinstance(pattern, str) else f.natural("sliding_window_pattern")
    spans = windows(f, n_layers, all_but_every(step))
    d_ff = f.count("moe_intermediate_size")
    moe = routed(f, d_ff, shared_d_ff=f.natural("num_shared_experts") * d_ff, score_bias=True)
    sparse = _dense_first(f, n_layers, f.natural("first_k_dense_replace", "first_last_k_dense_replace"))
    f.skip("is_moe_layer")
    layers = [
        Layer(attention(f, qk_norm="head", window=span), moe if kind else mlp(f))
        for span, kind in zip(spans, sparse, strict=True)
    ]
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


def ernie_moe(f: Fields) -> Transformer:
    """ERNIE 4.5 MoE: mixtures between two layer numbers, biases of their own for the shared experts and the head."""
    n_layers, bias = f.n_layers(), f.flag("use_bias")
    first, step = f.natural("moe_layer_start_index"), f.natural("moe_layer_interval") or 1
    end = f.value("moe_layer_end_index")
    last = n_layers - 1 if end in (None, -1) else f.natural("moe_layer_end_index")
    d_ff = f.count("moe_intermediate_size")
    shared = f.natural("moe_num_shared_experts") * d_ff
    moe = routed(f, d_ff, shared_d_ff=shared, score_bias=True, shared_bias=bias)
    f.must_be("moe_use_aux_free", True)
    f.skip("moe_gate", "moe_capacity", "num_nextn_predict_layers", "rope_3d", "freq_allocation")
    mixer = attention(f, qkv_bias=bias, out_bias=bias)
    layers = [
        Layer(mixer, moe if first <= i <= last and (i + 1) % step == 0 else mlp(f, bias=bias)) for i in range(n_layers)
    ]
    return decoder(f, layers, head_bias=bias)


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
    f.skip("attention_head_dim", "moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token")
    chosen = _one(f, "moe_topk") or f.count("num_experts_per_tok")
    moe = Moe(f.count("num_experts", "num_local_experts"), chosen, d_ff, shared_d_ff=d_ff)
    return decoder(f, [Layer(biased_attention(f, qk_norm="head"), moe)] * f.n_layers())


def _one(f: Fields, name: str) -> int:
    """A number that some configs repeat for every layer."""
    value = f.value(name)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        f = Fields({name: value[0]}, {}, f.what)
    return f.natural(name)


def mimo_v2(f: Fields) -> Transformer:
    """MiMo V2 Flash: windowed layers have sinks and twice the KV heads of the full ones."""
    n_layers = f.n_layers()
    window = f.optional("sliding_window")
    kinds = f.kinds(
        "layer_types", n_layers, SLIDING, lambda i: SLIDING[0] if i == 0 or (i + 1) % 6 == 0 else SLIDING[1]
    )
    sparse = _dense_first(f, n_layers, 1)
    v_head_dim, kv, bias = f.optional("v_head_dim"), f.count("num_key_value_heads"), f.flag("attention_bias")
    full = attention(f, v_head_dim=v_head_dim, qkv_bias=bias)
    local = attention(f, v_head_dim=v_head_dim, qkv_bias=bias, sinks=True, window=window, n_kv_heads=2 * kv)
    moe = routed(f, f.count("moe_intermediate_size"), score_bias=True)
    layers = [
        Layer(full if kind == SLIDING[0] else local, moe if choice else mlp(f))
        for kind, choice in zip(kinds, sparse, strict=True)
    ]
    return decoder(f, layers)


def afmoe(f: Fields) -> Transformer:
    """Trinity: gated attention, norms around both halves, windows on three layers of four."""
    n_layers, dense = f.n_layers(), f.natural("num_dense_layers")
    spans = windows(f, n_layers, all_but_every(f.natural("global_attn_every_n_layers") or 4))
    d_ff = f.count("moe_intermediate_size")
    moe = routed(f, d_ff, shared_d_ff=f.natural("num_shared_experts") * d_ff, score_bias=True)
    layers = [
        Layer(attention(f, qk_norm="head", gate="full", window=span), mlp(f) if i < dense else moe, "sandwich")
        for i, span in enumerate(spans)
    ]
    return decoder(f, layers)


def hy_v3(f: Fields) -> Transformer:
    """Hunyuan 3: a dense first layer, then mixtures with a shared expert."""
    n_layers, d_ff = f.n_layers(), f.count("moe_intermediate_size", "expert_hidden_dim")
    sparse = _dense_first(f, n_layers, f.natural("first_k_dense_replace") or 1)
    shared, bias = f.natural("num_shared_experts") * d_ff, f.flag("mlp_bias")
    moe = routed(f, d_ff, shared_d_ff=shared, score_bias=True, shared_bias=bias)
    mixer = biased_attention(f, qk_norm="head")
    return decoder(f, [Layer(mixer, moe if kind else mlp(f, bias=bias)) for kind in sparse])


def llama4(f: Fields) -> Transformer:
    """Llama 4's language model: chunked attention where positions rotate, full where they do not; mixtures on every
    `interleave_moe_layer_step`-th layer, with a shared expert as large as a routed one."""
    n_layers, chunk = f.n_layers(), f.optional("attention_chunk_size")
    step = f.natural("no_rope_layer_interval") or 4
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % step != 0) for i in range(n_layers)]
    kinds = f.kinds(
        "layer_types",
        n_layers,
        ("full_attention", "chunked_attention"),
        lambda i: "chunked_attention" if i < len(rotates) and rotates[i] else "full_attention",
    )
    every = f.count("interleave_moe_layer_step")
    sparse = f.numbers("moe_layers")
    sparse = list(range(every - 1, n_layers, every)) if sparse is None else sparse
    d_ff = f.count("intermediate_size")
    moe, dense = routed(f, d_ff, shared_d_ff=d_ff), Mlp(f.count("intermediate_size_mlp"))
    norm = "plain" if f.flag("use_qk_norm") else ""
    f.skip("for_llm_compressor", "rope_interleaved")
    layers = [
        Layer(
            biased_attention(f, chunk=chunk if kind == "chunked_attention" else None, qk_norm=norm),
            moe if number in sparse else dense,
        )
        for number, kind in enumerate(kinds)
    ]
    return decoder(f, layers)


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
    "glm4_moe": glm4_moe,
    "dots1": dots1,
    "exaone_moe": exaone_moe,
    "solar_open": solar_open,
    "minimax_m2": minimax_m2,
    "ernie4_5_moe": ernie_moe,
    "hunyuan_v1_moe": hunyuan_moe,
    "mimo_v2_flash": mimo_v2,
    "afmoe": afmoe,
    "hy_v3": hy_v3,
    "llama4_text": llama4,
    "grok-1": grok1,
}
