"""Readers of the decoders before LLaMA and their heirs: layer norms with biases, plain MLPs, parallel blocks."""

from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    all_but_every,
    attention,
    biased_attention,
    d_model,
    decoder,
    mlp,
    split_evenly,
    window_everywhere,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def _full_heads(f: Fields, n_kv_heads: int | None = None, **options: object) -> Attention:
    n_heads = f.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    size = split_evenly(f, d_model(f), n_heads, "a hidden size")
    return Attention(n_heads, n_kv_heads or n_heads, size, **options)  # pyright: ignore[reportArgumentType]


def gpt2(f: Fields) -> Transformer:
    """GPT-2, and GPT-3, whose banded attention in every other layer was never published in full."""
    n_layers, d = f.n_layers("n_layer", "num_hidden_layers"), d_model(f)
    mixer = _full_heads(f, qkv_bias=True, out_bias=True)
    layer = Layer(mixer, Mlp(f.optional("n_inner") or 4 * d, gated=False, bias=True), norm_bias=True)
    return decoder(f, [layer] * n_layers, positions=f.count("n_positions", "n_ctx"), final_norm_bias=True)


def gpt_bigcode(f: Fields) -> Transformer:
    """StarCoder 1: GPT-2 with one KV head."""
    n_layers, d = f.n_layers("n_layer"), d_model(f)
    kv = 1 if f.flag("multi_query") else None
    mixer = _full_heads(f, kv, qkv_bias=True, out_bias=True)
    layer = Layer(mixer, Mlp(f.optional("n_inner") or 4 * d, gated=False, bias=True), norm_bias=True)
    return decoder(f, [layer] * n_layers, positions=f.count("n_positions"), final_norm_bias=True)


def gpt_neo(f: Fields) -> Transformer:
    """GPT-Neo: no biases on queries, keys and values; the local layers' window is read from `attention_types`."""
    n_layers, d = f.n_layers("num_layers"), d_model(f)
    window = f.optional("window_size")
    kinds = f.value("attention_layers") or _unrolled(f.value("attention_types"), n_layers)
    f.skip("attention_layers", "attention_types")
    d_ff = f.optional("intermediate_size") or 4 * d
    layers = [
        Layer(
            _full_heads(f, out_bias=True, window=window if kind == "local" else None),
            Mlp(d_ff, gated=False, bias=True),
            norm_bias=True,
        )
        for kind in kinds
    ]
    positions = f.count("max_position_embeddings")
    return decoder(f, layers, positions=positions, final_norm_bias=True)


def _unrolled(types: object, n_layers: int) -> list[str]:
    """`[[["global", "local"], 12]]` as one name per layer; anything else as alternating."""
    if isinstance(types, list) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and isinstance(entry[1], int)
        for entry in types
    ):
        names = [str(name) for kinds, times in types for _ in range(min(times, n_layers)) for name in kinds]
        if len(names) == n_layers:
            return names
    return ["local" if number % 2 else "global" for number in range(n_layers)]


def gpt_neox(f: Fields) -> Transformer:
    """GPT-NeoX and Pythia: attention and MLP side by side, each with its norm."""
    bias = f.flag("attention_bias")
    layer = Layer(
        _full_heads(f, qkv_bias=bias, out_bias=bias),
        mlp(f, gated=False, bias=True),
        norm_bias=True,
        parallel=f.flag("use_parallel_residual"),
    )
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def gptj(f: Fields) -> Transformer:
    """GPT-J and CodeGen: side by side under one norm; the head has a bias."""
    n_layers, d = f.n_layers("n_layer"), d_model(f)
    layer = Layer(
        _full_heads(f),
        Mlp(f.optional("n_inner") or 4 * d, gated=False, bias=True),
        "pre-shared",
        norm_bias=True,
        parallel=True,
    )
    return decoder(f, [layer] * n_layers, head_bias=True, final_norm_bias=True)


def opt(f: Fields) -> Transformer:
    """OPT: learnt positions (two of them spare), a narrow embedding and norms after in the 350M one."""
    d, n_layers = d_model(f), f.n_layers()
    bias, affine = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    before = f.flag("do_layer_norm_before")
    narrow = f.optional("word_embed_proj_dim") or d
    layer = Layer(
        _full_heads(f, qkv_bias=bias, out_bias=bias),
        Mlp(f.count("ffn_dim"), gated=False, bias=bias),
        "pre" if before else "post",
        norm_bias=True,
        norm_weight=affine,
    )
    final = before and not f.flag("_remove_final_layer_norm")
    return decoder(
        f,
        [layer] * n_layers,
        positions=f.count("max_position_embeddings") + 2,
        d_embed=narrow if narrow != d else None,
        final_norm=final,
        final_norm_bias=True,
        final_norm_weight=affine,
    )


def bloom(f: Fields) -> Transformer:
    """BLOOM: a norm right after the embedding, positions by a bias on the scores."""
    n_layers, d = f.n_layers("n_layer", "num_hidden_layers"), d_model(f)
    f.skip("apply_residual_connection_post_layernorm", "slow_but_exact", "offset_alibi")
    f.skip("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "n_inner", "seq_length")
    f.skip("skip_bias_add", "skip_bias_add_qkv", "unk_token_id")
    layer = Layer(_full_heads(f, qkv_bias=True, out_bias=True), Mlp(4 * d, gated=False, bias=True), norm_bias=True)
    frame = {"embed_norm": True, "embed_norm_bias": True, "final_norm_bias": True}
    return decoder(f, [layer] * n_layers, **frame)


def falcon(f: Fields) -> Transformer:
    """Falcon: one KV head (7B) or groups of them (40B, 180B), side by side with one norm or two, or in sequence (RW)."""
    n_layers, d = f.n_layers("num_hidden_layers", "n_layer"), d_model(f)
    new, parallel, bias = f.flag("new_decoder_architecture"), f.flag("parallel_attn"), f.flag("bias")
    n_heads = f.count("num_attention_heads", "n_head")
    kv_heads = f.optional("num_kv_heads", "n_head_kv") or n_heads
    multi_query, norms = f.flag("multi_query"), f.optional("num_ln_in_parallel_attn")
    f.skip("alibi")
    kv = kv_heads if new else (1 if multi_query else n_heads)
    two = norms == 2 or (norms is None and new)
    layer = Layer(
        _full_heads(f, kv, qkv_bias=bias, out_bias=bias),
        Mlp(f.optional("ffn_hidden_size") or 4 * d, gated=False, bias=bias),
        "pre-shared" if parallel and not two else "pre",
        norm_bias=True,
        parallel=parallel or new,
    )
    return decoder(f, [layer] * n_layers, final_norm_bias=True)


def mpt(f: Fields) -> Transformer:
    """MPT: no biases anywhere, layer norms without them either."""
    d, ratio = d_model(f), f.natural("expansion_ratio") or 4
    f.skip("init_config", "init_device", "embedding_fraction", "verbose", "norm_type", "learned_pos_emb")
    f.must_be("no_bias", True)
    inner = f.inner("attn_config")
    if inner is not None:
        inner.must_be("attn_type", "multihead_attention")
        inner.must_be("alibi", True)
        inner.skip("attn_impl", "softmax_scale", "prefix_lm", "attn_uses_sequence_id")
        inner.refuse_unread()
    layer = Layer(_full_heads(f), Mlp(ratio * d, gated=False))
    return decoder(f, [layer] * f.n_layers("n_layers"))


def phi(f: Fields) -> Transformer:
    """Phi 1 to 2: side by side under one norm, biases everywhere and on the head."""
    norm = "head" if f.flag("qk_layernorm") else ""
    layer = Layer(
        attention(f, qkv_bias=True, out_bias=True, qk_norm=norm, qk_norm_bias=True),
        mlp(f, gated=False, bias=True),
        "pre-shared",
        norm_bias=True,
        parallel=True,
    )
    return decoder(f, [layer] * f.n_layers(), head_bias=True, final_norm_bias=True)


def stablelm(f: Fields) -> Transformer:
    """StableLM: layer norms with biases, optionally side by side and with a norm for every head."""
    parallel = f.flag("use_parallel_residual")
    norm = "all" if f.flag("qk_layernorm") else ""
    layer = Layer(
        attention(f, qkv_bias=f.flag("use_qkv_bias"), qk_norm=norm),
        mlp(f),
        "pre-shared" if parallel else "pre",
        norm_bias=True,
        parallel=parallel,
    )
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def starcoder2(f: Fields) -> Transformer:
    """StarCoder 2: GQA with biases everywhere."""
    bias = f.flag("use_bias")
    f.must_be("mlp_type", "default")
    f.must_be("norm_type", "layer_norm")
    layer = Layer(
        attention(f, qkv_bias=bias, out_bias=bias, window=window_everywhere(f)),
        mlp(f, gated=False, bias=bias),
        norm_bias=True,
    )
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def nemotron(f: Fields) -> Transformer:
    """Nemotron 3, 4 and Minitron: layer norms with biases, squared ReLU without a gate."""
    layer = Layer(biased_attention(f), mlp(f, gated=False, bias=f.flag("mlp_bias")), norm_bias=True)
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def persimmon(f: Fields) -> Transformer:
    """Persimmon: biases everywhere and on the norms of queries and keys."""
    norm = "head" if f.flag("qk_layernorm") else ""
    layer = Layer(
        _full_heads(f, qkv_bias=True, out_bias=True, qk_norm=norm, qk_norm_bias=True),
        mlp(f, gated=False, bias=True),
        norm_bias=True,
    )
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def cohere(f: Fields) -> Transformer:
    """Command-R: side by side under one norm without bias, optional norms for every head."""
    norm = "all" if f.flag("use_qk_norm") else ""
    layer = Layer(biased_attention(f, qk_norm=norm), mlp(f), "pre-shared", parallel=True)
    return decoder(f, [layer] * f.n_layers())


def cohere2(f: Fields) -> Transformer:
    """Command-R7B and Command A: a window on three layers of four."""
    f.skip("use_parallel_embedding", "position_embedding_type")
    f.must_be("layer_switch", f.natural("sliding_window_pattern") or 4)
    f.must_be("order_of_interleaved_layers", "local_attn_first")
    for name in ("use_gated_activation", "use_parallel_block", "use_embedding_sharing"):
        f.must_be(name, True)
    spans = windows(f, f.n_layers(), all_but_every(f.natural("sliding_window_pattern") or 4))
    layers = [Layer(biased_attention(f, window=span), mlp(f), "pre-shared", parallel=True) for span in spans]
    return decoder(f, layers)


def jais2(f: Fields) -> Transformer:
    """Jais 2: GPT-like biases with rotary positions."""
    layer = Layer(biased_attention(f), mlp(f, gated=False, bias=f.flag("mlp_bias")), norm_bias=True)
    return decoder(f, [layer] * f.n_layers(), final_norm_bias=True)


def palm(f: Fields) -> Transformer:
    """PaLM: side by side under one norm, one KV head, a gated MLP. A type of Dragonscale's own: it was never released."""
    layer = Layer(attention(f), mlp(f), "pre-shared", parallel=True)
    return decoder(f, [layer] * f.n_layers())


FAMILIES = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "codegen": gptj,
    "opt": opt,
    "bloom": bloom,
    "falcon": falcon,
    "mpt": mpt,
    "phi": phi,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "nemotron": nemotron,
    "persimmon": persimmon,
    "cohere": cohere,
    "cohere2": cohere2,
    "jais2": jais2,
    "palm": palm,
}
