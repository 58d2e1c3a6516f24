"""Experts, and readers of MoE models over grouped-query attention whose form is no row of `families.toml`."""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.attention import ExpertAttention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import Reader, attention, biased_attention, decoder, mlp
from dragonscale.models.huggingface.windows import SLIDING, windows
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

SPARSE = ("dense", "sparse")


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


def dbrx(f: Fields) -> Transformer:
    """DBRX: its attention and experts are described in objects of their own; layer norms without biases."""
    attn = f.inner("attn_config") or Fields({}, {}, f"attn_config of {f.what}", f.findings)
    ffn = f.inner("ffn_config") or Fields({}, {}, f"ffn_config of {f.what}", f.findings)
    attn.skip("attn_pdrop", "clip_qkv", "rope_theta", "kv_n_heads")
    ffn.skip("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    ffn.skip("uniform_expert_assignment")
    f.skip("emb_pdrop", "resid_pdrop")
    experts, chosen = ffn.optional("moe_num_experts") or 4, ffn.optional("moe_top_k") or 1
    moe = Moe(experts, chosen, ffn.optional("ffn_hidden_size") or 3584)
    layer = Layer(attention(f, n_kv_heads=attn.optional("kv_n_heads") or 1), moe)
    attn.settle()
    ffn.settle()
    return decoder(f, [layer] * f.n_layers("n_layers"))


def hunyuan_moe(f: Fields) -> Transformer:
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
    return decoder(f, [Layer(biased_attention(f, qk_norm="head"), moe)] * f.n_layers())


def _one(f: Fields, name: str) -> int:
    """A number that some configs repeat for every layer."""
    value = f.value(name)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        f = Fields({name: value[0]}, {}, f.what)
    return f.natural(name)


def _dense_first(f: Fields, n_layers: int, first: int) -> list[bool]:
    return f.either("mlp_layer_types", n_layers, SPARSE, lambda i: i >= first)


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


def jetmoe(f: Fields) -> Transformer:
    """JetMoE: experts for the heads of the attention as well as for the MLP, the same number of each."""
    experts, chosen = f.count("num_local_experts"), f.count("num_experts_per_tok")
    heads, size = f.count("num_key_value_heads"), f.count("kv_channels")
    f.must_be("num_attention_heads", chosen * heads)
    f.skip("glu", "bias", "ffn_hidden_size", "moe_num_experts", "moe_top_k", "num_layers", "hidden_size")
    mixer = ExpertAttention(experts, chosen, heads, size)
    moe = Moe(experts, chosen, f.count("intermediate_size", "ffn_hidden_size"), out_bias=True)
    return decoder(f, [Layer(mixer, moe)] * f.n_layers("num_hidden_layers", "num_layers"))


FAMILIES: dict[str, Reader] = {
    "jetmoe": jetmoe,
    "dbrx": dbrx,
    "hunyuan_v1_moe": hunyuan_moe,
    "ernie4_5_moe": ernie_moe,
    "mimo_v2_flash": mimo_v2,
    "llama4_text": llama4,
    "laguna": laguna,
}
