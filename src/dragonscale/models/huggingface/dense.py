"""Readers of dense decoders whose form is no row of `families.toml`."""

from dataclasses import replace
from typing import Any

from dragonscale.models.attention import Attention, CrossAttention
from dragonscale.models.ffn import AltUp, LayerInput, Mlp, MlpAndMoe, Moe
from dragonscale.models.huggingface.parts import ModelConfig, Reader, all_but_every, by_layer, paired
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def helium(f: ModelConfig) -> Transformer:
    """Helium: no bias on the output projection, whose input must be as wide as the model."""
    mixer = f.attention(qkv_bias=f.flag("attention_bias"))
    f.must_be("head_dim", f.d_model() // mixer.n_heads)
    return f.decoder([Layer(mixer, f.mlp(bias=f.flag("mlp_bias")))] * f.n_layers())


def gemma4(f: ModelConfig) -> Transformer:
    """Gemma 4: wider heads in the full layers, the last layers on earlier ones' keys, an input for every layer, and in
    one model experts beside the MLP."""
    n_layers, borrowed = f.n_layers(), f.natural("num_kv_shared_layers")
    width = f.natural("hidden_size_per_layer_input")
    spans = f.windows(n_layers, all_but_every(6))
    spans[-1] = None  # the last layer always sees the whole sequence
    wide, global_kv = f.optional("global_head_dim") or 512, f.optional("num_global_key_value_heads")
    tied, doubled, sparse = f.flag("attention_k_eq_v"), f.flag("use_double_wide_mlp"), f.flag("enable_moe_block")
    if f.value("use_bidirectional_attention") not in (None, False, "vision"):
        f.must_be("use_bidirectional_attention", None, False, "vision")
    n_experts, chosen, d_ff = (f.natural(name) for name in ("num_experts", "top_k_experts", "moe_intermediate_size"))
    if tied and global_kv:  # num_global_key_value_heads holds only where keys serve as values
        kv = global_kv
    else:
        kv = f.count("num_key_value_heads")
    layers = []
    for number, span in enumerate(spans):
        options: dict[str, Any] = {"window": span}
        if span is None:
            options |= {"head_dim": wide, "n_kv_heads": kv, "kv": "tied" if tied else "own"}
        shared = number >= n_layers - borrowed  # reads the cache of an earlier layer
        if shared:
            options["kv"] = "borrowed"
        mixer = f.biased_attention(qk_norm="head", v_norm=True, **options)
        hidden = f.count("intermediate_size")
        if doubled and shared:  # twice as wide, in place of the projections that the layer lacks
            hidden *= 2
        ffn = Mlp(hidden)
        if sparse:
            ffn = MlpAndMoe(ffn, Moe(n_experts, chosen, d_ff, expert_scale=True))
        layers.append(Layer(mixer, ffn, "sandwich", extra=LayerInput(width)))
    return f.decoder(layers, layer_input=width, layer_vocab=f.natural("vocab_size_per_layer_input"))


def qwen(f: ModelConfig) -> Transformer:
    """The first Qwen: biases on queries, keys and values; its `intermediate_size` counts gate and value together."""
    n_heads = f.count("num_attention_heads")
    mixer = Attention(n_heads, n_heads, f.count("kv_channels"), qkv_bias=True)
    # w1 and w2 are half as wide as the field says
    return f.decoder([Layer(mixer, Mlp(f.count("intermediate_size") // 2))] * f.n_layers())


def chatglm(f: ModelConfig) -> Transformer:
    """ChatGLM 2 and 3 and GLM-4-9B as first released."""
    bias, n_heads = f.flag("add_bias_linear"), f.count("num_attention_heads")
    kv = n_heads
    if f.flag("multi_query_attention"):  # grouped queries, despite the field's name
        kv = f.count("multi_query_group_num")
    f.must_be("num_hidden_layers", f.value("num_layers"))
    mixer = Attention(n_heads, kv, f.count("kv_channels"), qkv_bias=f.flag("add_qkv_bias") or bias, out_bias=bias)
    layer = Layer(mixer, Mlp(f.count("ffn_hidden_size"), bias=bias))
    frame = {"vocab": f.count("padded_vocab_size"), "final_norm": f.flag("post_layer_norm")}
    return f.decoder([layer] * f.n_layers("num_layers"), **frame)


def _plain(f: ModelConfig, size: str, bias: bool = True) -> Mlp:
    """An MLP without a gate, four times as wide as the model unless a field says otherwise."""
    return Mlp(f.optional(size) or 4 * f.d_model(), gated=False, bias=bias)


def gpt_neo(f: ModelConfig) -> Transformer:
    """GPT-Neo: no biases on queries, keys and values; the local layers' window is read from `attention_types`."""
    n_layers, window = f.n_layers("num_layers"), f.optional("window_size")
    kinds = f.value("attention_layers") or _unrolled(f.value("attention_types"), n_layers)
    ffn = _plain(f, "intermediate_size")
    full = Layer(f.full_heads(out_bias=True), ffn, norm_bias=True)
    local = replace(full, mixer=f.full_heads(out_bias=True, window=window))
    layers = by_layer((kind == "local" for kind in kinds), local, full)
    return f.decoder(layers, positions=f.count("max_position_embeddings"), final_norm_bias=True)


def _unrolled(types: object, n_layers: int) -> list[str]:
    """`[[["global", "local"], 12]]` as one name per layer; anything else as alternating."""
    if isinstance(types, list) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and isinstance(entry[1], int)
        for entry in types
    ):
        names = [str(name) for kinds, times in types for _ in range(min(times, n_layers)) for name in kinds]
        if len(names) == n_layers:
            return names
    return (["global", "local"] * n_layers)[:n_layers]


def opt(f: ModelConfig) -> Transformer:
    """OPT: learnt positions (two of them spare), a narrow embedding and norms after in the 350M one."""
    d, n_layers = f.d_model(), f.n_layers()
    bias, affine = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    before = f.flag("do_layer_norm_before")  # all but the 350M model
    d_embed = f.optional("word_embed_proj_dim")
    if d_embed == d:  # only the 350M model projects its embedding
        d_embed = None
    layer = Layer(
        f.full_heads(qkv_bias=bias, out_bias=bias),
        Mlp(f.count("ffn_dim"), gated=False, bias=bias),
        "pre" if before else "post",
        norm_bias=True,
        norm_weight=affine,
    )
    # norms after each half leave nothing for a last one to do
    final = before and not f.flag("_remove_final_layer_norm")
    return f.decoder(
        [layer] * n_layers,
        positions=f.count("max_position_embeddings") + 2,  # OPTLearnedPositionalEmbedding's offset
        d_embed=d_embed,
        final_norm=final,
        final_norm_bias=True,
        final_norm_weight=affine,
    )


def falcon(f: ModelConfig) -> Transformer:
    """Falcon: one KV head (7B) or groups of them (40B, 180B), side by side with one norm or two, or in
    sequence (RW)."""
    n_layers = f.n_layers("num_hidden_layers", "n_layer")
    new, parallel, bias = f.flag("new_decoder_architecture"), f.flag("parallel_attn"), f.flag("bias")
    n_heads = f.count("num_attention_heads", "n_head")
    kv_heads = f.optional("num_kv_heads", "n_head_kv") or n_heads
    multi_query, norms = f.flag("multi_query"), f.optional("num_ln_in_parallel_attn")
    if new:
        kv = kv_heads
    else:
        kv = 1 if multi_query else n_heads  # num_kv_heads is of the new architecture alone
    two = norms == 2 or (norms is None and new)  # one norm for attention and another for the MLP beside it
    layer = Layer(
        f.full_heads(n_kv_heads=kv, qkv_bias=bias, out_bias=bias),
        _plain(f, "ffn_hidden_size", bias),
        "pre-shared" if parallel and not two else "pre",
        norm_bias=True,
        parallel=parallel or new,
    )
    return f.decoder([layer] * n_layers, final_norm_bias=True)


def mpt(f: ModelConfig) -> Transformer:
    """MPT: no biases anywhere, layer norms without them either."""
    inner = f.inner("attn_config")
    inner.must_be("attn_type", "multihead_attention")
    inner.must_be("alibi", True)  # without it there would be a table of learnt positions
    inner.skip("attn_impl", "softmax_scale", "prefix_lm", "attn_uses_sequence_id")
    inner.settle()
    layer = Layer(f.full_heads(), Mlp((f.natural("expansion_ratio") or 4) * f.d_model(), gated=False))
    return f.decoder([layer] * f.n_layers("n_layers"))


SPARE_ROWS = 8
"""Rows of the embedding beyond the vocabulary, for the image's tokens (transformers' MllamaTextModel)."""


def mllama(f: ModelConfig) -> Transformer:
    """Llama 3.2 Vision: a LLaMA with layers of cross-attention between, whose keys and values are made of the image
    once."""
    crossed = f.numbers("cross_attention_layers")
    if crossed is None:
        crossed = [3, 8, 13, 18, 23, 28, 33, 38]  # the default of transformers' MllamaTextConfig, for 40 layers
    self_attention = f.attention()
    looking = CrossAttention(self_attention.n_heads, self_attention.n_kv_heads, self_attention.head_dim)
    mixers = by_layer(f.layers_in(crossed), looking, self_attention)
    return f.decoder(paired(mixers, [f.mlp()] * len(mixers)), embed_rows=f.count("vocab_size") + SPARE_ROWS)


def gemma3n(f: ModelConfig) -> Transformer:
    """Gemma 3n: alternating updates, keys and values of earlier layers in the last ones, an input for each layer.
    Activations that are mostly zero are counted as if they were not."""
    n_layers, borrowed = f.n_layers(), f.natural("num_kv_shared_layers")
    width, streams = f.counts("hidden_size_per_layer_input", "altup_num_inputs")
    extra = AltUp(streams, f.count("laurel_rank"), width)
    layers: list[Layer] = []
    # MatFormer slices may have layers of several widths
    spans, widths = f.windows(n_layers, all_but_every(5)), f.per_layer("intermediate_size")
    for number, (span, d_ff) in enumerate(zip(spans, widths, strict=True)):
        kv = "borrowed" if number >= n_layers - borrowed > 0 else "own"
        mixer = f.biased_attention(qk_norm="head", v_norm=True, window=span, kv=kv)
        layers.append(Layer(mixer, Mlp(d_ff), "sandwich", extra=extra))
    return f.decoder(layers, layer_input=width, layer_vocab=f.count("vocab_size_per_layer_input"), altup=streams - 1)


FAMILIES: dict[str, Reader] = {
    "helium": helium,
    "gemma4_text": gemma4,
    "qwen": qwen,
    "chatglm": chatglm,
    "gpt_neo": gpt_neo,
    "opt": opt,
    "falcon": falcon,
    "mpt": mpt,
    "mllama_text_model": mllama,
    "gemma3n_text": gemma3n,
}
