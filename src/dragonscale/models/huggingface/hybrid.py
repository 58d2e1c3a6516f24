"""Readers of hybrids of softmax attention with linear attention or short convolutions."""

from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import LINEAR, ModelConfig, Reader, paired
from dragonscale.models.layer import Layer
from dragonscale.models.mamba import DeltaAttention, LightningAttention, ShortConv
from dragonscale.models.transformer import Transformer, mtp_sections

CONV = ("conv", "full_attention")


def _qwen_hybrid(f: ModelConfig, sparse: bool) -> Transformer:
    """Gated delta net in most layers and gated softmax attention in the rest."""
    step, n_layers = f.natural("full_attention_interval") or 4, f.n_layers()
    softmax = f.either("layer_types", n_layers, LINEAR, lambda i: (i + 1) % step == 0)
    sizes = ("num_value_heads", "num_key_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    full = f.biased_attention(qk_norm="head", gate="full")
    delta = DeltaAttention(*[f.count(f"linear_{name}") for name in sizes])  # pyright: ignore[reportArgumentType]
    ffn, dense = f.mlp() if not sparse else None, [False] * n_layers
    if ffn is None:
        ffn = f.routed(shared_d_ff=f.count("shared_expert_intermediate_size"), shared_gate=True)
        if f.value("decoder_sparse_step"):  # Qwen3-Next may keep some layers dense
            dense = [not each for each in f.is_sparse()]
    layers = paired([full if each else delta for each in softmax], [f.mlp() if plain else ffn for plain in dense])
    modules = f.natural("mtp_num_hidden_layers")
    return f.decoder(layers, extras=mtp_sections([Layer(full, ffn)], f.d_model(), f.count("vocab_size"), modules))


def kimi_linear(f: ModelConfig) -> Transformer:
    """Kimi Linear: delta attention with a decay per channel, latent attention in one layer of four."""
    n_layers, full = f.n_layers(), f.latent_attention()
    inner = f.inner("linear_attn_config") or Fields({}, {}, f.what, f.findings)
    listed = inner.numbers("full_attn_layers")
    size = inner.optional("head_dim") or f.count("linear_head_dim")
    heads = inner.optional("num_heads") or f.count("linear_num_heads")
    kernel = inner.optional("short_conv_kernel_size") or f.count("linear_conv_kernel_dim")
    inner.skip("kda_layers")
    inner.settle()
    chosen = range(5, n_layers + 1, 4) if listed is None else listed  # counted from one
    softmax = f.either("layer_types", n_layers, LINEAR, lambda i: i + 1 in chosen)
    linear = DeltaAttention(heads, heads, size, size, kernel, "channel", rank=size)
    moe = f.with_shared(score_bias=True)
    first = 1 if f.value("first_k_dense_replace") is None else f.natural("first_k_dense_replace")
    ffns = [moe if each else f.mlp() for each in f.sparse_from(first)]
    return f.decoder(paired([full if each else linear for each in softmax], ffns))


def minimax(f: ModelConfig) -> Transformer:
    """MiniMax-Text-01 and M1: lightning attention with softmax attention in one layer of eight."""
    n_layers = f.n_layers()
    listed = f.numbers("attn_type_list")
    softmax = f.either(
        "layer_types", n_layers, LINEAR, lambda i: listed[i] if listed and i < len(listed) else (i + 1) % 2
    )
    full = f.attention(window=f.optional("sliding_window"))
    linear = LightningAttention(full.n_heads, full.head_dim)
    moe = f.routed(f.count("intermediate_size"))
    return f.decoder([Layer(full if each else linear, moe) for each in softmax])


def lfm2(f: ModelConfig) -> Transformer:
    """LFM2: short convolutions with attention here and there; the MLP's size is rounded from a given one."""
    n_layers, d = f.n_layers(), f.d_model()
    listed = f.numbers("full_attn_idxs")
    softmax = f.either("layer_types", n_layers, CONV, lambda i: listed is None or i in listed)
    conv = ShortConv(d, f.count("conv_L_cache"), f.flag("conv_bias"))
    full = f.attention(qk_norm="head")
    d_ff = f.count("block_ff_dim", "intermediate_size")
    multiple, factor = f.optional("block_multiple_of") or 1, f.value("block_ffn_dim_multiplier")
    if f.value("block_auto_adjust_ff_dim"):
        d_ff = 2 * d_ff // 3
        d_ff = int(factor * d_ff) if isinstance(factor, (int, float)) else d_ff
        d_ff = multiple * (-(-d_ff // multiple))
    layers = [Layer(full if each else conv, Mlp(d_ff)) for each in softmax]
    tied = f.flag("tie_embedding", "tie_word_embeddings")
    return f.decoder(layers, tied=tied)


def lfm2_moe(f: ModelConfig) -> Transformer:
    """LFM2 MoE: short convolutions, a few dense layers first."""
    n_layers, dense = f.n_layers(), f.natural("num_dense_layers")
    softmax = f.either("layer_types", n_layers, CONV, lambda _: False)
    conv = ShortConv(f.d_model(), f.count("conv_L_cache"), f.flag("conv_bias"))
    moe = f.routed(score_bias=f.flag("use_expert_bias"))
    layers = [
        Layer(f.attention(qk_norm="head") if each else conv, f.mlp() if i < dense else moe)
        for i, each in enumerate(softmax)
    ]
    return f.decoder(layers)


def olmo_hybrid(f: ModelConfig) -> Transformer:
    """OLMo Hybrid: delta nets before norms, softmax attention with norms after."""
    n_layers, d = f.n_layers(), f.d_model()
    heads = f.count("num_attention_heads")
    keys = f.optional("linear_num_key_heads") or heads
    values = f.optional("linear_num_value_heads") or heads
    size = f.optional("linear_key_head_dim") or int(0.75 * d / keys)
    wide = f.optional("linear_value_head_dim") or 2 * size
    linear = DeltaAttention(values, keys, size, wide, f.count("linear_conv_kernel_dim"))
    softmax = f.either("layer_types", n_layers, LINEAR, lambda i: i % 4 == 3 or (n_layers < 4 and i == n_layers - 1))
    layers = [
        Layer(f.biased_attention(qk_norm="all"), f.mlp(), "post") if each else Layer(linear, f.mlp())
        for each in softmax
    ]
    return f.decoder(layers)


def bailing_hybrid(f: ModelConfig) -> Transformer:
    """Ling 3: delta attention with a decay per channel, gated latent attention in one layer of six."""
    n_layers, step = f.n_layers(), f.count("layer_group_size")
    f.must_be("q_lora_rank", None)
    heads, size = f.count("num_attention_heads"), f.optional("linear_head_dim") or f.count("head_dim")
    linear = DeltaAttention(heads, heads, size, size, f.count("short_conv_kernel_size"), "channel")
    full = f.latent_attention(gate=True)
    softmax = f.either("layer_types", n_layers, LINEAR, lambda i: (i + 1) % step == 0)
    moe = f.with_shared(score_bias=True)
    ffns = [moe if each else f.mlp() for each in f.sparse_from(f.natural("first_k_dense_replace"))]
    return f.decoder(paired([full if each else linear for each in softmax], ffns))


FAMILIES: dict[str, Reader] = {
    "bailing_hybrid": bailing_hybrid,
    "qwen3_next": lambda f: _qwen_hybrid(f, sparse=True),
    "qwen3_5_moe_text": lambda f: _qwen_hybrid(f, sparse=True),
    "qwen3_5_text": lambda f: _qwen_hybrid(f, sparse=False),
    "kimi_linear": kimi_linear,
    "minimax": minimax,
    "minimax_text_01": minimax,
    "minimax_m1": minimax,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "olmo_hybrid": olmo_hybrid,
}
