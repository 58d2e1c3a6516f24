"""Readers of hybrids of softmax attention with linear attention or short convolutions."""

from dataclasses import replace

from dragonscale.models.ffn import AttentionResidual, Mlp
from dragonscale.models.huggingface.parts import LINEAR, ModelConfig, Reader, by_layer, paired
from dragonscale.models.layer import Layer
from dragonscale.models.mamba import DeltaAttention, LightningAttention, ShortConv
from dragonscale.models.transformer import Transformer

CONV = ("conv", "full_attention")


def _qwen_hybrid(f: ModelConfig, sparse: bool) -> Transformer:
    """Gated delta net in most layers and gated softmax attention in the rest."""
    step, n_layers = f.natural("full_attention_interval") or 4, f.n_layers()
    softmax = f.either("layer_types", LINEAR, lambda i: (i + 1) % step == 0)
    sizes = f.counts(
        "linear_num_value_heads",
        "linear_num_key_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    full = f.biased_attention(qk_norm="head", gate="full")
    delta = DeltaAttention(*sizes)  # pyright: ignore[reportArgumentType]
    has_experts = [sparse] * n_layers
    if sparse:
        # one shared expert beside the routed ones, its output scaled by a sigmoid of the token
        ffn = f.routed(shared_d_ff=f.count("shared_expert_intermediate_size"), shared_gate=True)
        if f.value("decoder_sparse_step"):  # Qwen3-Next may keep some layers dense
            has_experts = f.is_sparse()
    else:
        ffn = f.mlp()
    layers = paired(by_layer(softmax, full, delta), f.ffns(has_experts, ffn))
    # a multi-token module attends with softmax, whatever kind the last layer is
    return f.decoder(layers, extras=f.multi_token([Layer(full, ffn)], "mtp_num_hidden_layers"))


def kimi_linear(f: ModelConfig) -> Transformer:
    """Kimi Linear: delta attention with a decay per channel, latent attention in one layer of four."""
    n_layers = f.n_layers()
    full = f.latent_attention(gate="full" if f.flag("mla_use_output_gate") else "")
    inner = f.inner("linear_attn_config")
    listed = inner.numbers("full_attn_layers")
    # the sizes stand in linear_attn_config or in fields of the config itself
    size = inner.optional("head_dim") or f.count("linear_head_dim")
    heads = inner.optional("num_heads") or f.count("linear_num_heads")
    kernel = inner.optional("short_conv_kernel_size") or f.count("linear_conv_kernel_dim")
    full_gate = inner.flag("use_full_rank_gate")
    inner.skip("kda_layers", "gate_lower_bound")
    inner.settle()
    if listed is None:
        listed = list(range(5, n_layers + 1, 4))
    softmax = f.either("layer_types", LINEAR, lambda i: i + 1 in listed)  # the list counts from one
    # keys and values of one size; the thin matrices of decay and output gate go through `head_dim` channels
    linear = DeltaAttention(heads, heads, size, size, kernel, "channel", rank=size, full_gate=full_gate)
    latent = f.optional("routed_expert_hidden_size")  # Kimi K3's experts work at a smaller width
    moe = f.with_shared(score_bias=True, latent=latent, latent_norm=f.flag("latent_moe_use_norm"))
    first_sparse = 1  # where first_k_dense_replace is null
    if f.value("first_k_dense_replace") is not None:
        first_sparse = f.natural("first_k_dense_replace")
    layers = paired(by_layer(softmax, full, linear), f.ffns(f.sparse_from(first_sparse), moe))
    if f.optional("attn_res_block_size"):
        layers = [replace(layer, extra=AttentionResidual()) for layer in layers]
    return f.decoder(layers)


def minimax(f: ModelConfig) -> Transformer:
    """MiniMax-Text-01 and M1: lightning attention with softmax attention in one layer of eight."""
    n_layers = f.n_layers()
    listed = f.numbers("attn_type_list") or []  # per layer: 0 lightning, 1 softmax
    attends = listed + ([1, 0] * n_layers)[len(listed) :]  # layers beyond the list alternate
    softmax = f.either("layer_types", LINEAR, lambda i: attends[i])
    full = f.attention(window=f.optional("sliding_window"))
    linear = LightningAttention(full.n_heads, full.head_dim)
    moe = f.routed(f.count("intermediate_size"))
    return f.decoder(paired(by_layer(softmax, full, linear), [moe] * n_layers))


def lfm2(f: ModelConfig) -> Transformer:
    """LFM2: short convolutions with attention here and there; the MLP's size is rounded from a given one."""
    n_layers, d = f.n_layers(), f.d_model()
    listed = f.numbers("full_attn_idxs")  # without the list, every layer attends
    softmax = f.either("layer_types", CONV, lambda i: listed is None or i in listed)
    conv = ShortConv(d, f.count("conv_L_cache"), f.flag("conv_bias"))
    full = f.attention(qk_norm="head")
    d_ff = f.count("block_ff_dim", "intermediate_size")
    multiple, factor = f.optional("block_multiple_of") or 1, f.value("block_ffn_dim_multiplier")
    if f.value("block_auto_adjust_ff_dim"):
        # as Llama 1 and 2: two thirds of the size, as a gated MLP has a third matrix, up to a whole multiple
        d_ff = 2 * d_ff // 3
        if isinstance(factor, (int, float)):
            d_ff = int(factor * d_ff)
        d_ff = multiple * (-(-d_ff // multiple))
    layers = paired(by_layer(softmax, full, conv), [Mlp(d_ff)] * n_layers)
    tied = f.flag("tie_embedding", "tie_word_embeddings")
    return f.decoder(layers, tied=tied)


def lfm2_moe(f: ModelConfig) -> Transformer:
    """LFM2 MoE: short convolutions, a few dense layers first."""
    n_layers, dense = f.n_layers(), f.natural("num_dense_layers")
    softmax = f.either("layer_types", CONV, lambda _: False)
    conv = ShortConv(f.d_model(), f.count("conv_L_cache"), f.flag("conv_bias"))
    moe = f.routed(score_bias=f.flag("use_expert_bias"))
    mixers = by_layer(softmax, f.attention(qk_norm="head"), conv)
    return f.decoder(paired(mixers, f.ffns([i >= dense for i in range(n_layers)], moe)))


def olmo_hybrid(f: ModelConfig) -> Transformer:
    """OLMo Hybrid: delta nets before norms, softmax attention with norms after."""
    n_layers, d = f.n_layers(), f.d_model()
    heads = f.count("num_attention_heads")
    keys = f.optional("linear_num_key_heads") or heads
    values = f.optional("linear_num_value_heads") or heads
    # without sizes, all heads' keys are three quarters as wide as the model, and their values twice that
    size = f.optional("linear_key_head_dim") or int(0.75 * d / keys)
    wide = f.optional("linear_value_head_dim") or 2 * size
    linear = DeltaAttention(values, keys, size, wide, f.count("linear_conv_kernel_dim"))
    # one layer of four attends; in a model of fewer than four layers the last one does
    softmax = f.either("layer_types", LINEAR, lambda i: i % 4 == 3 or (n_layers < 4 and i == n_layers - 1))
    attending, recurrent = Layer(f.biased_attention(qk_norm="all"), f.mlp(), "post"), Layer(linear, f.mlp())
    return f.decoder(by_layer(softmax, attending, recurrent))


def bailing_hybrid(f: ModelConfig) -> Transformer:
    """Ling 3: delta attention with a decay per channel, gated latent attention in one layer of six."""
    step = f.count("layer_group_size")
    f.must_be("q_lora_rank", None)
    heads, size = f.count("num_attention_heads"), f.optional("linear_head_dim") or f.count("head_dim")
    linear = DeltaAttention(heads, heads, size, size, f.count("short_conv_kernel_size"), "channel")
    full = f.latent_attention(gate="head")
    softmax = f.either("layer_types", LINEAR, lambda i: (i + 1) % step == 0)
    moe = f.with_shared(score_bias=True)
    ffns = f.ffns(f.sparse_from(f.natural("first_k_dense_replace")), moe)
    return f.decoder(paired(by_layer(softmax, full, linear), ffns))


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
