"""Readers of hybrids: softmax attention in some layers, a state of fixed size in the others."""

from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.mixtures import SPARSE, is_sparse, routed
from dragonscale.models.huggingface.parts import (
    attention,
    biased_attention,
    d_model,
    decoder,
    latent_attention,
    mlp,
    window_everywhere,
)
from dragonscale.models.layer import Both, Component, Layer
from dragonscale.models.linear import DeltaAttention, LightningAttention
from dragonscale.models.mamba import Mamba, Mamba2, ShortConv
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.transformer import Transformer

LINEAR = ("linear_attention", "full_attention")
HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias")
"""Fields that say nothing where no layer has softmax attention."""


def _delta(f: Fields) -> DeltaAttention:
    return DeltaAttention(
        n_heads=f.count("linear_num_value_heads"),
        n_kv_heads=f.count("linear_num_key_heads"),
        head_dim=f.count("linear_key_head_dim"),
        v_head_dim=f.count("linear_value_head_dim"),
        kernel=f.count("linear_conv_kernel_dim"),
    )


def _qwen_hybrid(f: Fields, sparse: bool) -> Transformer:
    """Gated delta net in most layers and gated softmax attention in the rest."""
    step = f.natural("full_attention_interval") or 4
    n_layers = f.n_layers()
    kinds = f.kinds("layer_types", n_layers, LINEAR, lambda i: LINEAR[0] if (i + 1) % step else LINEAR[1])
    f.must_be("attn_output_gate", True)
    f.must_be("mtp_use_dedicated_embeddings", False)
    f.skip("mlp_only_layers", "decoder_sparse_step", "max_window_layers")
    full = biased_attention(f, qk_norm="head", gate="full")
    ffn: Mlp | Moe = _gated_mixture(f) if sparse else mlp(f)
    f.skip("intermediate_size")
    layers = [Layer(full if kind == LINEAR[1] else _delta(f), ffn) for kind in kinds]
    if sparse and f.value("decoder_sparse_step"):  # Qwen3-Next may keep some layers dense
        layers = [
            layer if choice else Layer(layer.mixer, mlp(f)) for layer, choice in zip(layers, is_sparse(f), strict=True)
        ]
    modules = f.natural("mtp_num_hidden_layers")
    extras = mtp_sections([Layer(full, ffn)], d_model(f), f.count("vocab_size"), modules)
    return decoder(f, layers, extras=extras)


def _gated_mixture(f: Fields) -> Moe:
    shared = f.count("shared_expert_intermediate_size")
    return routed(f, f.count("moe_intermediate_size"), shared_d_ff=shared, shared_gate=True)


def qwen3_next(f: Fields) -> Transformer:
    """Qwen3-Next and Qwen 3.5's mixtures."""
    return _qwen_hybrid(f, sparse=True)


def qwen3_5(f: Fields) -> Transformer:
    """Qwen 3.5's dense models."""
    return _qwen_hybrid(f, sparse=False)


def kimi_linear(f: Fields) -> Transformer:
    """Kimi Linear: delta attention with a decay per channel, latent attention in one layer of four."""
    n_layers, full = f.n_layers(), latent_attention(f)
    inner = f.inner("linear_attn_config") or Fields({}, {}, f.what)
    listed = inner.numbers("full_attn_layers")
    size = inner.optional("head_dim") or f.count("linear_head_dim")
    heads = inner.optional("num_heads") or f.count("linear_num_heads")
    kernel = inner.optional("short_conv_kernel_size") or f.count("linear_conv_kernel_dim")
    inner.skip("kda_layers")
    inner.refuse_unread()
    kinds = f.kinds(
        "layer_types",
        n_layers,
        LINEAR,
        lambda i: LINEAR[1] if (i + 1 in listed if listed is not None else i and i % 4 == 0) else LINEAR[0],
    )
    linear = DeltaAttention(heads, heads, size, size, kernel, "channel", rank=size)
    d_ff = f.count("moe_intermediate_size")
    shared = f.natural("n_shared_experts", "num_shared_experts") * d_ff
    moe = routed(f, d_ff, shared_d_ff=shared, score_bias=True)
    dense = f.value("first_k_dense_replace")
    first = 1 if dense is None else f.natural("first_k_dense_replace")
    f.must_be("moe_layer_freq", 1)
    f.must_be("mla_use_nope", True)
    f.skip("use_grouped_topk")
    f.must_be("tie_word_embeddings", False)
    sparse = f.kinds("mlp_layer_types", n_layers, SPARSE, lambda i: "dense" if i < first else "sparse")
    layers = [
        Layer(full if kind == LINEAR[1] else linear, moe if choice == "sparse" else mlp(f))
        for kind, choice in zip(kinds, sparse, strict=True)
    ]
    return decoder(f, layers)


def minimax(f: Fields) -> Transformer:
    """MiniMax-Text-01 and M1: lightning attention with softmax attention in one layer of eight."""
    n_layers = f.n_layers()
    listed = f.numbers("attn_type_list")
    kinds = f.kinds(
        "layer_types",
        n_layers,
        LINEAR,
        lambda i: LINEAR[int(bool(listed[i]))] if listed and i < len(listed) else LINEAR[1 if (i + 1) % 2 else 0],
    )
    full = attention(f, window=window_everywhere(f))
    linear = LightningAttention(full.n_heads, full.head_dim)
    f.must_be("shared_intermediate_size", 0)
    f.must_be("postnorm", True)
    moe = routed(f, f.count("intermediate_size"))
    return decoder(f, [Layer(full if kind == LINEAR[1] else linear, moe) for kind in kinds])


def jamba(f: Fields) -> Transformer:
    """Jamba: Mamba with norms of its own, one attention in eight, a mixture in every other layer."""
    d, n_layers = d_model(f), f.n_layers()
    period, offset = f.count("attn_layer_period"), f.natural("attn_layer_offset")
    every, start = f.count("expert_layer_period"), f.natural("expert_layer_offset")
    rank = f.value("mamba_dt_rank")
    mamba = Mamba(
        inner=f.count("mamba_expand") * d,
        state=f.count("mamba_d_state"),
        rank=-(-d // 16) if rank == "auto" else f.count("mamba_dt_rank"),
        kernel=f.count("mamba_d_conv"),
        conv_bias=f.flag("mamba_conv_bias"),
        proj_bias=f.flag("mamba_proj_bias"),
        norms=True,
    )
    experts = f.natural("num_experts", "num_local_experts")
    f.skip("num_experts_per_tok", "mamba_inner_layernorms", "sliding_window")
    moe = routed(f, f.count("intermediate_size")) if experts > 1 else mlp(f)
    layers = [
        Layer(attention(f) if i % period == offset else mamba, moe if i % every == start else mlp(f))
        for i in range(n_layers)
    ]
    return decoder(f, layers)


def _mamba2(f: Fields, norm: bool, inner: int | None = None, out_bias: bool | None = None) -> Mamba2:
    """The Mamba-2 of Bamba, Granite 4 and Falcon-H1."""
    heads = f.count("mamba_n_heads")
    inner = inner or f.count("mamba_expand") * d_model(f)
    given = f.value("mamba_d_head")
    size = inner // heads if given in (None, "auto") else f.count("mamba_d_head")
    if heads * size != inner:
        raise InputError(f"{f.what} has {heads} Mamba heads of {size}, which are not its inner size of {inner}.")
    return Mamba2(
        n_heads=heads,
        head_dim=size,
        state=f.count("mamba_d_state"),
        n_groups=f.count("mamba_n_groups"),
        kernel=f.count("mamba_d_conv"),
        conv_bias=f.flag("mamba_conv_bias"),
        proj_bias=f.flag("mamba_proj_bias"),
        out_bias=f.flag("mamba_proj_bias") if out_bias is None else out_bias,
        norm=norm,
    )


def bamba(f: Fields) -> Transformer:
    """Bamba: attention in the layers listed, Mamba-2 in the rest."""
    listed = f.numbers("attn_layer_indices") or []
    f.skip("attn_rotary_emb")
    bias = f.flag("mlp_bias")
    mamba = _mamba2(f, norm=True)
    layers = [Layer(biased_attention(f) if i in listed else mamba, mlp(f, bias=bias)) for i in range(f.n_layers())]
    return decoder(f, layers)


def granite_hybrid(f: Fields) -> Transformer:
    """Granite 4: Mamba-2 in nine layers of ten, a shared MLP, and experts in the larger ones."""
    aliases = {"mamba": LINEAR[0], "attention": LINEAR[1]}
    allowed = (*LINEAR, *aliases)
    name = "layers_block_type" if "layers_block_type" in f.given else "layer_types"
    f.skip("layer_types", "layers_block_type", "position_embedding_type", "normalization_function")
    kinds = [aliases.get(k, k) for k in f.kinds(name, f.n_layers(), allowed, lambda _: LINEAR[0])]
    shared = f.natural("shared_intermediate_size")
    ffn: Component
    if f.natural("num_local_experts") > 0:
        ffn = routed(f, f.count("intermediate_size"), shared_d_ff=shared)
    else:
        ffn = Mlp(f.count("shared_intermediate_size"))
        f.skip("intermediate_size", "num_experts_per_tok")
    mamba = _mamba2(f, norm=True) if LINEAR[0] in kinds else None
    for field in ("expand", "d_state", "d_head", "d_conv", "n_heads", "n_groups", "conv_bias", "proj_bias"):
        f.skip(f"mamba_{field}")
    f.skip(*HEADS)
    layers = [Layer(biased_attention(f) if kind == LINEAR[1] else mamba, ffn) for kind in kinds]
    return decoder(f, layers)


def falcon_h1(f: Fields) -> Transformer:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    inner, norm = f.optional("mamba_d_ssm"), f.flag("mamba_rms_norm")
    f.skip("mamba_use_mlp", "attn_layer_indices", "mamba_expand")
    mixer = Both(biased_attention(f), _mamba2(f, norm, inner, f.flag("projectors_bias")))
    layer = Layer(mixer, mlp(f, bias=f.flag("mlp_bias")))
    return decoder(f, [layer] * f.n_layers())


_PATTERN = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}


def nemotron_h(f: Fields) -> Transformer:
    """Nemotron-H and Nemotron 3: every layer is one thing alone, Mamba-2, attention, an MLP or experts."""
    pattern = f.text("hybrid_override_pattern")
    aliases = {"mamba": "linear_attention", "attention": "full_attention"}
    given = f.value("layers_block_type", "layer_types")
    if pattern and any(letter not in _PATTERN for letter in pattern):
        raise InputError(f"{f.what} has a hybrid_override_pattern with letters other than M, E, * and -.")
    count = len(pattern) or (len(given) if isinstance(given, list) else f.n_layers())
    name = "layers_block_type" if "layers_block_type" in f.given else "layer_types"
    cycle = list(_PATTERN.values())
    kinds = f.kinds(
        name,
        count,
        (*cycle, *aliases),
        lambda i: _PATTERN[pattern[i]] if pattern else cycle[i % 4],
    )
    f.skip("num_hidden_layers", "layers_block_type", "layer_types")
    parts = _nemotron_parts(f)
    layers = []
    for kind in (aliases.get(kind, kind) for kind in kinds):
        part = parts[kind]()
        mixes = kind in LINEAR
        layers.append(Layer(part if mixes else None, None if mixes else part))
    f.skip(*HEADS, *_NEMOTRON_FIELDS)
    f.must_be("attention_bias", False)
    f.must_be("num_nextn_predict_layers", 0)
    return decoder(f, layers)


_NEMOTRON_FIELDS = ["mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "mamba_n_groups", "conv_kernel", "mamba_d_conv", "use_conv_bias", "mamba_conv_bias", "expand", "mamba_expand", "use_bias", "mamba_proj_bias", "intermediate_size", "mlp_bias", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size", "attention_bias", "num_key_value_heads", "head_dim", "attention_head_dim", "mtp_layers_block_type", "mtp_hybrid_override_pattern", "sliding_window"]


def _nemotron_parts(f: Fields) -> dict:  # pyright: ignore[reportMissingTypeArgument]
    """How to read each kind of layer, when there is one."""

    def experts() -> Moe:
        shared = f.count("moe_shared_expert_intermediate_size")
        latent = f.optional("moe_latent_size")
        f.must_be("mlp_bias", False)
        d_ff = f.count("moe_intermediate_size")
        return routed(f, d_ff, shared_d_ff=shared, gated=False, score_bias=True, latent=latent)

    def mamba() -> Mamba2:
        return Mamba2(
            n_heads=f.count("mamba_num_heads"),
            head_dim=f.count("mamba_head_dim"),
            state=f.count("ssm_state_size"),
            n_groups=f.count("mamba_n_groups", "n_groups"),
            kernel=f.count("mamba_d_conv", "conv_kernel"),
            conv_bias=f.flag("mamba_conv_bias", "use_conv_bias"),
            proj_bias=f.flag("use_bias"),
            out_bias=f.flag("use_bias"),
        )

    return {
        "linear_attention": mamba,
        "full_attention": lambda: biased_attention(f, window=f.optional("sliding_window")),
        "mlp": lambda: mlp(f, gated=False, bias=f.flag("mlp_bias")),
        "moe": experts,
    }


def mamba1(f: Fields) -> Transformer:
    """Mamba and Falcon-Mamba: nothing but the mixer."""
    d = d_model(f)
    rank = f.value("time_step_rank")
    mixer = Mamba(
        inner=f.optional("intermediate_size", "d_inner") or f.count("expand") * d,
        state=f.count("state_size"),
        rank=-(-d // 16) if rank in (None, "auto") else f.count("time_step_rank"),
        kernel=f.count("conv_kernel"),
        conv_bias=f.flag("use_conv_bias"),
        proj_bias=f.flag("use_bias"),
    )
    f.skip("expand", "n_layer", "d_model", "mixer_rms_eps")
    return decoder(f, [Layer(mixer, None)] * f.n_layers("num_hidden_layers", "n_layer"))


def mamba2(f: Fields) -> Transformer:
    """Mamba-2 alone."""
    mixer = Mamba2(
        n_heads=f.count("num_heads"),
        head_dim=f.count("head_dim"),
        state=f.count("state_size"),
        n_groups=f.count("n_groups"),
        kernel=f.count("conv_kernel"),
        conv_bias=f.flag("use_conv_bias"),
        proj_bias=f.flag("use_bias"),
        out_bias=f.flag("use_bias"),
    )
    f.skip("expand", "time_step_rank", "rms_norm", "norm_before_gate")
    return decoder(f, [Layer(mixer, None)] * f.n_layers())


def lfm2(f: Fields) -> Transformer:
    """LFM2: short convolutions with attention here and there; the MLP's size is rounded from a given one."""
    n_layers, d = f.n_layers(), d_model(f)
    listed = f.numbers("full_attn_idxs")
    kinds = f.kinds(
        "layer_types",
        n_layers,
        ("conv", "full_attention"),
        lambda i: "full_attention" if listed is None or i in listed else "conv",
    )
    conv = ShortConv(d, f.count("conv_L_cache"), f.flag("conv_bias"))
    full = attention(f, qk_norm="head")
    d_ff = f.count("block_ff_dim", "intermediate_size")
    adjusted = f.value("block_auto_adjust_ff_dim")
    f.skip("block_auto_adjust_ff_dim", "conv_dim", "conv_dim_out", "block_dim", "block_mlp_init_scale")
    f.skip(
        "block_norm_eps", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "conv_use_xavier_init"
    )
    f.skip("num_heads", "use_pos_enc", "theta")
    multiple, factor = f.optional("block_multiple_of") or 1, f.value("block_ffn_dim_multiplier")
    if adjusted:
        d_ff = 2 * d_ff // 3
        d_ff = int(factor * d_ff) if isinstance(factor, (int, float)) else d_ff
        d_ff = multiple * (-(-d_ff // multiple))
    layers = [Layer(full if kind == "full_attention" else conv, Mlp(d_ff)) for kind in kinds]
    tied = f.flag("tie_embedding", "tie_word_embeddings")
    return decoder(f, layers, tied=tied)


def olmo_hybrid(f: Fields) -> Transformer:
    """OLMo Hybrid: delta nets before norms, softmax attention with norms after."""
    n_layers, d = f.n_layers(), d_model(f)
    heads = f.count("num_attention_heads")
    keys = f.optional("linear_num_key_heads") or heads
    values = f.optional("linear_num_value_heads") or heads
    size = f.optional("linear_key_head_dim") or int(0.75 * d / keys)
    wide = f.optional("linear_value_head_dim") or 2 * size
    linear = DeltaAttention(values, keys, size, wide, f.count("linear_conv_kernel_dim"))
    f.skip("linear_allow_neg_eigval")
    kinds = f.kinds(
        "layer_types",
        n_layers,
        LINEAR,
        lambda i: LINEAR[1] if i % 4 == 3 or (n_layers < 4 and i == n_layers - 1) else LINEAR[0],
    )
    layers = [
        Layer(biased_attention(f, qk_norm="all"), mlp(f), "post") if kind == LINEAR[1] else Layer(linear, mlp(f))
        for kind in kinds
    ]
    return decoder(f, layers)


FAMILIES = {
    "qwen3_next": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_5,
    "kimi_linear": kimi_linear,
    "minimax": minimax,
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite_hybrid,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "mamba": mamba1,
    "falcon_mamba": mamba1,
    "mamba2": mamba2,
    "lfm2": lfm2,
    "olmo_hybrid": olmo_hybrid,
}
