"""Readers of MoE models whose layers differ: dense ones first or in between, windows here and there."""

from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.dense import pattern_step
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import SPARSE, routed, with_shared
from dragonscale.models.huggingface.parts import (
    SLIDING,
    all_but_every,
    attention,
    biased_attention,
    d_model,
    decoder,
    mlp,
    qkv_biased,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.transformer import Transformer


def _dense_first(f: Fields, n_layers: int, first: int) -> list[bool]:
    return f.either("mlp_layer_types", n_layers, SPARSE, lambda i: i >= first)


def glm4_moe(f: Fields) -> Transformer:
    """GLM 4.5 to 4.7: dense first layers, a correction to the routing scores, multi-token modules."""
    n_layers = f.n_layers()
    norm = "head" if f.flag("use_qk_norm") else ""
    mixer, moe = qkv_biased(f, qk_norm=norm), with_shared(f, score_bias=True)
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
    moe = with_shared(f, score_bias=True)
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
    spans = windows(f, n_layers, all_but_every(pattern_step(f)))
    moe = with_shared(f, score_bias=True)
    sparse = _dense_first(f, n_layers, f.natural("first_k_dense_replace", "first_last_k_dense_replace"))
    f.skip("is_moe_layer")
    layers = [
        Layer(attention(f, qk_norm="head", window=span), moe if kind else mlp(f))
        for span, kind in zip(spans, sparse, strict=True)
    ]
    return decoder(f, layers)


def ernie_moe(f: Fields) -> Transformer:
    """ERNIE 4.5 MoE: experts between two layer numbers, biases of their own for the shared experts and the head."""
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


def mimo_v2(f: Fields) -> Transformer:
    """MiMo V2 Flash: windowed layers have sinks and twice the KV heads of the full ones."""
    n_layers = f.n_layers()
    window = f.optional("sliding_window")
    windowed = f.either("layer_types", n_layers, SLIDING, lambda i: i and (i + 1) % 6)
    sparse = _dense_first(f, n_layers, 1)
    v_head_dim, kv, bias = f.optional("v_head_dim"), f.count("num_key_value_heads"), f.flag("attention_bias")
    full = attention(f, v_head_dim=v_head_dim, qkv_bias=bias)
    local = attention(f, v_head_dim=v_head_dim, qkv_bias=bias, sinks=True, window=window, n_kv_heads=2 * kv)
    moe = routed(f, score_bias=True)
    layers = [
        Layer(local if near else full, moe if choice else mlp(f)) for near, choice in zip(windowed, sparse, strict=True)
    ]
    return decoder(f, layers)


def afmoe(f: Fields) -> Transformer:
    """Trinity: gated attention, norms around both halves, windows on three layers of four."""
    n_layers, dense = f.n_layers(), f.natural("num_dense_layers")
    spans = windows(f, n_layers, all_but_every(f.natural("global_attn_every_n_layers") or 4))
    moe = with_shared(f, score_bias=True)
    layers = [
        Layer(attention(f, qk_norm="head", gate="full", window=span), mlp(f) if i < dense else moe, "sandwich")
        for i, span in enumerate(spans)
    ]
    return decoder(f, layers)


def hy_v3(f: Fields) -> Transformer:
    """Hunyuan 3: a dense first layer, then experts with a shared one."""
    n_layers, d_ff = f.n_layers(), f.count("moe_intermediate_size", "expert_hidden_dim")
    sparse = _dense_first(f, n_layers, f.natural("first_k_dense_replace") or 1)
    shared, bias = f.natural("num_shared_experts") * d_ff, f.flag("mlp_bias")
    moe = routed(f, d_ff, shared_d_ff=shared, score_bias=True, shared_bias=bias)
    mixer = biased_attention(f, qk_norm="head")
    return decoder(f, [Layer(mixer, moe if kind else mlp(f, bias=bias)) for kind in sparse])


def llama4(f: Fields) -> Transformer:
    """Llama 4's language model: chunked attention where positions rotate, full where they do not; experts on every
    `interleave_moe_layer_step`-th layer, with a shared expert as large as a routed one."""
    n_layers, chunk = f.n_layers(), f.optional("attention_chunk_size")
    step = f.natural("no_rope_layer_interval") or 4
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % step != 0) for i in range(n_layers)]
    kinds = ("full_attention", "chunked_attention")
    chunked = f.either("layer_types", n_layers, kinds, lambda i: i < len(rotates) and rotates[i])
    every = f.count("interleave_moe_layer_step")
    sparse = f.numbers("moe_layers")
    sparse = list(range(every - 1, n_layers, every)) if sparse is None else sparse
    d_ff = f.count("intermediate_size")
    moe, dense = routed(f, d_ff, shared_d_ff=d_ff), Mlp(f.count("intermediate_size_mlp"))
    norm = "plain" if f.flag("use_qk_norm") else ""
    f.skip("for_llm_compressor", "rope_interleaved")
    layers = [
        Layer(biased_attention(f, chunk=chunk if cut else None, qk_norm=norm), moe if number in sparse else dense)
        for number, cut in enumerate(chunked)
    ]
    return decoder(f, layers)


def laguna(f: Fields) -> Transformer:
    """Laguna: a gate per head, more heads in the windowed layers."""
    n_layers = f.n_layers()
    spans = windows(f, n_layers, lambda _: False)
    sparse = _dense_first(f, n_layers, 1)
    f.must_be("gating", True)
    listed = f.numbers("num_attention_heads_per_layer") or [f.count("num_attention_heads")] * n_layers
    if len(listed) != n_layers or 0 in listed:
        raise InputError(f"{f.what} has {len(listed)} entries in num_attention_heads_per_layer for {n_layers} layers.")
    shared = f.natural("shared_expert_intermediate_size")
    moe = routed(f, shared_d_ff=shared, score_bias=True)
    layers = [
        Layer(attention(f, n_heads=heads, qk_norm="head", gate="head", window=span), moe if kind else mlp(f))
        for heads, span, kind in zip(listed, spans, sparse, strict=True)
    ]
    return decoder(f, layers)


FAMILIES = {
    "laguna": laguna,
    "glm4_moe": glm4_moe,
    "dots1": dots1,
    "exaone_moe": exaone_moe,
    "ernie4_5_moe": ernie_moe,
    "mimo_v2_flash": mimo_v2,
    "afmoe": afmoe,
    "hy_v3": hy_v3,
    "llama4_text": llama4,
}
