"""Readers of the decoders before LLaMA and their heirs: layer norms with biases, plain MLPs, parallel blocks."""

from typing import Any

from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    Reader,
    alike,
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


def _full_heads(f: Fields, n_kv_heads: int | None = None, **options: Any) -> Attention:
    n_heads = f.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    size = split_evenly(f, d_model(f), n_heads, "a hidden size")
    return Attention(n_heads, n_kv_heads or n_heads, size, **options)


def _plain(f: Fields, size: str = "", bias: bool = True) -> Mlp:
    """An MLP without a gate, four times as wide as the model unless a field says otherwise."""
    return Mlp((f.optional(size) if size else None) or 4 * d_model(f), gated=False, bias=bias)


def gpt2(f: Fields) -> Transformer:
    """GPT-2, and GPT-3, whose banded attention in every other layer was never published in full; StarCoder 1 with one KV
    head."""
    n_layers, kv = f.n_layers("n_layer", "num_hidden_layers"), 1 if f.flag("multi_query") else None
    layer = Layer(_full_heads(f, kv, qkv_bias=True, out_bias=True), _plain(f, "n_inner"), norm_bias=True)
    return decoder(f, [layer] * n_layers, positions=f.count("n_positions", "n_ctx"), final_norm_bias=True)


def gpt_neo(f: Fields) -> Transformer:
    """GPT-Neo: no biases on queries, keys and values; the local layers' window is read from `attention_types`."""
    n_layers, window = f.n_layers("num_layers"), f.optional("window_size")
    kinds = f.value("attention_layers") or _unrolled(f.value("attention_types"), n_layers)
    f.skip("attention_layers", "attention_types")
    spans = [window if kind == "local" else None for kind in kinds]
    ffn = _plain(f, "intermediate_size")
    layers = [Layer(_full_heads(f, out_bias=True, window=span), ffn, norm_bias=True) for span in spans]
    return decoder(f, layers, positions=f.count("max_position_embeddings"), final_norm_bias=True)


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


def gpt_neox(f: Fields) -> Layer:
    """GPT-NeoX and Pythia: attention and MLP side by side, each with its norm."""
    bias, parallel = f.flag("attention_bias"), f.flag("use_parallel_residual")
    mixer = _full_heads(f, qkv_bias=bias, out_bias=bias)
    return Layer(mixer, mlp(f, gated=False, bias=True), norm_bias=True, parallel=parallel)


def gptj(f: Fields) -> Layer:
    """GPT-J and CodeGen: side by side under one norm; the head has a bias."""
    return Layer(_full_heads(f), _plain(f, "n_inner"), "pre-shared", norm_bias=True, parallel=True)


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


def bloom(f: Fields) -> Layer:
    """BLOOM: a norm right after the embedding, positions by a bias on the scores."""
    f.skip("apply_residual_connection_post_layernorm", "slow_but_exact", "offset_alibi", "skip_bias_add_qkv")
    f.skip("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "n_inner", "seq_length")
    f.skip("skip_bias_add", "unk_token_id")
    return Layer(_full_heads(f, qkv_bias=True, out_bias=True), _plain(f), norm_bias=True)


def falcon(f: Fields) -> Transformer:
    """Falcon: one KV head (7B) or groups of them (40B, 180B), side by side with one norm or two, or in sequence (RW)."""
    n_layers = f.n_layers("num_hidden_layers", "n_layer")
    new, parallel, bias = f.flag("new_decoder_architecture"), f.flag("parallel_attn"), f.flag("bias")
    n_heads = f.count("num_attention_heads", "n_head")
    kv_heads = f.optional("num_kv_heads", "n_head_kv") or n_heads
    multi_query, norms = f.flag("multi_query"), f.optional("num_ln_in_parallel_attn")
    f.skip("alibi")
    kv = kv_heads if new else (1 if multi_query else n_heads)
    two = norms == 2 or (norms is None and new)
    layer = Layer(
        _full_heads(f, kv, qkv_bias=bias, out_bias=bias),
        _plain(f, "ffn_hidden_size", bias),
        "pre-shared" if parallel and not two else "pre",
        norm_bias=True,
        parallel=parallel or new,
    )
    return decoder(f, [layer] * n_layers, final_norm_bias=True)


def mpt(f: Fields) -> Layer:
    """MPT: no biases anywhere, layer norms without them either."""
    f.skip("init_config", "init_device", "embedding_fraction", "verbose", "norm_type", "learned_pos_emb")
    f.must_be("no_bias", True)
    inner = f.inner("attn_config")
    if inner is not None:
        inner.must_be("attn_type", "multihead_attention")
        inner.must_be("alibi", True)
        inner.skip("attn_impl", "softmax_scale", "prefix_lm", "attn_uses_sequence_id")
        inner.refuse_unread()
    return Layer(_full_heads(f), Mlp((f.natural("expansion_ratio") or 4) * d_model(f), gated=False))


def phi(f: Fields) -> Layer:
    """Phi 1 to 2: side by side under one norm, biases everywhere and on the head."""
    norm = "head" if f.flag("qk_layernorm") else ""
    mixer = attention(f, qkv_bias=True, out_bias=True, qk_norm=norm, qk_norm_bias=True)
    return Layer(mixer, mlp(f, gated=False, bias=True), "pre-shared", norm_bias=True, parallel=True)


def stablelm(f: Fields) -> Layer:
    """StableLM: layer norms with biases, optionally side by side and with a norm for every head."""
    parallel, norm = f.flag("use_parallel_residual"), "all" if f.flag("qk_layernorm") else ""
    mixer = attention(f, qkv_bias=f.flag("use_qkv_bias"), qk_norm=norm)
    return Layer(mixer, mlp(f), "pre-shared" if parallel else "pre", norm_bias=True, parallel=parallel)


def starcoder2(f: Fields) -> Layer:
    """StarCoder 2: GQA with biases everywhere."""
    f.must_be("mlp_type", "default")
    f.must_be("norm_type", "layer_norm")
    bias = f.flag("use_bias")
    mixer = attention(f, qkv_bias=bias, out_bias=bias, window=window_everywhere(f))
    return Layer(mixer, mlp(f, gated=False, bias=bias), norm_bias=True)


def nemotron(f: Fields) -> Layer:
    """Nemotron 3, 4, Minitron and Jais 2: layer norms with biases, no gate (squared ReLU)."""
    return Layer(biased_attention(f), mlp(f, gated=False, bias=f.flag("mlp_bias")), norm_bias=True)


def persimmon(f: Fields) -> Layer:
    """Persimmon: biases everywhere and on the norms of queries and keys."""
    norm = "head" if f.flag("qk_layernorm") else ""
    mixer = _full_heads(f, qkv_bias=True, out_bias=True, qk_norm=norm, qk_norm_bias=True)
    return Layer(mixer, mlp(f, gated=False, bias=True), norm_bias=True)


def cohere(f: Fields) -> Layer:
    """Command-R: side by side under one norm without bias, optional norms for every head."""
    norm = "all" if f.flag("use_qk_norm") else ""
    return Layer(biased_attention(f, qk_norm=norm), mlp(f), "pre-shared", parallel=True)


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


_EMBED_NORM = {"embed_norm": True, "embed_norm_bias": True}
FAMILIES: dict[str, Reader] = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt2,
    "gpt_neo": gpt_neo,
    "gpt_neox": alike(gpt_neox, final_norm_bias=True),
    "gptj": alike(gptj, "n_layer", head_bias=True, final_norm_bias=True),
    "codegen": alike(gptj, "n_layer", head_bias=True, final_norm_bias=True),
    "opt": opt,
    "bloom": alike(bloom, "n_layer", "num_hidden_layers", final_norm_bias=True, **_EMBED_NORM),
    "falcon": falcon,
    "mpt": alike(mpt, "n_layers"),
    "phi": alike(phi, head_bias=True, final_norm_bias=True),
    "stablelm": alike(stablelm, final_norm_bias=True),
    "starcoder2": alike(starcoder2, final_norm_bias=True),
    "nemotron": alike(nemotron, final_norm_bias=True),
    "jais2": alike(nemotron, final_norm_bias=True),
    "persimmon": alike(persimmon, final_norm_bias=True),
    "cohere": alike(cohere),
    "cohere2": cohere2,
    # PaLM, a type of Dragonscale's own as it was never released: side by side under one norm, one KV head, a gated MLP
    "palm": alike(lambda f: Layer(attention(f), mlp(f), "pre-shared", parallel=True)),
}
