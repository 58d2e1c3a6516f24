"""Readers of dense decoders whose form is no row of `families.toml`."""

from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.gemma4 import LayerInput, MlpAndMoe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import Reader, attention, biased_attention, d_model, decoder, full_heads, mlp
from dragonscale.models.huggingface.windows import all_but_every, windows
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def helium(f: Fields) -> Transformer:
    """Helium: no bias on the output projection, whose input must be as wide as the model."""
    mixer = attention(f, qkv_bias=f.flag("attention_bias"))
    f.must_be("head_dim", d_model(f) // mixer.n_heads)
    return decoder(f, [Layer(mixer, mlp(f, bias=f.flag("mlp_bias")))] * f.n_layers())


def gemma4(f: Fields) -> Transformer:
    """Gemma 4: wider heads in the full layers, the last layers on earlier ones' keys, an input for every layer, and in
    one model experts beside the MLP."""
    n_layers, borrowed = f.n_layers(), f.natural("num_kv_shared_layers")
    width = f.natural("hidden_size_per_layer_input")
    spans = windows(f, n_layers, all_but_every(6))
    spans[-1] = None
    f.skip("per_layer_config")  # transformers 5 repeats the wide heads in it
    wide, global_kv = f.optional("global_head_dim") or 512, f.optional("num_global_key_value_heads")
    tied, doubled, sparse = f.flag("attention_k_eq_v"), f.flag("use_double_wide_mlp"), f.flag("enable_moe_block")
    if f.value("use_bidirectional_attention") not in (None, False, "vision"):
        f.must_be("use_bidirectional_attention", None, False, "vision")
    n_experts, chosen, d_ff = (f.natural(name) for name in ("num_experts", "top_k_experts", "moe_intermediate_size"))
    kv = global_kv if tied and global_kv else f.count("num_key_value_heads")
    layers = []
    for number, span in enumerate(spans):
        shared = number >= n_layers - borrowed
        own = "tied" if tied and span is None else "own"
        full = {} if span else {"head_dim": wide, "n_kv_heads": kv}
        mixer = biased_attention(f, qk_norm="head", v_norm=True, window=span, kv="borrowed" if shared else own, **full)
        ffn = Mlp(f.count("intermediate_size") * (2 if doubled and shared else 1))
        both = MlpAndMoe(ffn, Moe(n_experts, chosen, d_ff, expert_scale=True)) if sparse else ffn
        layers.append(Layer(mixer, both, "sandwich", extra=LayerInput(width)))
    return decoder(f, layers, layer_input=width, layer_vocab=f.natural("vocab_size_per_layer_input"))


def qwen(f: Fields) -> Transformer:
    """The first Qwen: biases on queries, keys and values; its `intermediate_size` counts gate and value together."""
    f.must_be("no_bias", True)
    f.skip("use_cache_quantization", "bf16", "fp16", "fp32")
    n_heads = f.count("num_attention_heads")
    mixer = Attention(n_heads, n_heads, f.count("kv_channels"), qkv_bias=True)
    return decoder(f, [Layer(mixer, Mlp(f.count("intermediate_size") // 2))] * f.n_layers())


def chatglm(f: Fields) -> Transformer:
    """ChatGLM 2 and 3 and GLM-4-9B as first released."""
    bias, n_heads = f.flag("add_bias_linear"), f.count("num_attention_heads")
    kv = f.count("multi_query_group_num") if f.flag("multi_query_attention") else n_heads
    f.skip("multi_query_group_num", "original_rope", "seq_length", "pre_seq_len", "prefix_projection", "vocab_size")
    f.skip("apply_query_key_layer_scaling", "bias_dropout_fusion", "fp32_residual_connection")
    f.must_be("rmsnorm", True)
    f.must_be("apply_residual_connection_post_layernorm", False)
    f.must_be("num_hidden_layers", f.value("num_layers"))
    mixer = Attention(n_heads, kv, f.count("kv_channels"), qkv_bias=f.flag("add_qkv_bias") or bias, out_bias=bias)
    layer = Layer(mixer, Mlp(f.count("ffn_hidden_size"), bias=bias))
    frame = {"vocab": f.count("padded_vocab_size"), "final_norm": f.flag("post_layer_norm")}
    return decoder(f, [layer] * f.n_layers("num_layers"), **frame)


def _plain(f: Fields, size: str = "", bias: bool = True) -> Mlp:
    """An MLP without a gate, four times as wide as the model unless a field says otherwise."""
    return Mlp((f.optional(size) if size else None) or 4 * d_model(f), gated=False, bias=bias)


def gpt_neo(f: Fields) -> Transformer:
    """GPT-Neo: no biases on queries, keys and values; the local layers' window is read from `attention_types`."""
    n_layers, window = f.n_layers("num_layers"), f.optional("window_size")
    kinds = f.value("attention_layers") or _unrolled(f.value("attention_types"), n_layers)
    f.skip("attention_layers", "attention_types")
    spans = [window if kind == "local" else None for kind in kinds]
    ffn = _plain(f, "intermediate_size")
    layers = [Layer(full_heads(f, out_bias=True, window=span), ffn, norm_bias=True) for span in spans]
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


def opt(f: Fields) -> Transformer:
    """OPT: learnt positions (two of them spare), a narrow embedding and norms after in the 350M one."""
    d, n_layers = d_model(f), f.n_layers()
    bias, affine = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    before = f.flag("do_layer_norm_before")
    narrow = f.optional("word_embed_proj_dim") or d
    layer = Layer(
        full_heads(f, qkv_bias=bias, out_bias=bias),
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


def falcon(f: Fields) -> Transformer:
    """Falcon: one KV head (7B) or groups of them (40B, 180B), side by side with one norm or two, or in
    sequence (RW)."""
    n_layers = f.n_layers("num_hidden_layers", "n_layer")
    new, parallel, bias = f.flag("new_decoder_architecture"), f.flag("parallel_attn"), f.flag("bias")
    n_heads = f.count("num_attention_heads", "n_head")
    kv_heads = f.optional("num_kv_heads", "n_head_kv") or n_heads
    multi_query, norms = f.flag("multi_query"), f.optional("num_ln_in_parallel_attn")
    f.skip("alibi")
    kv = kv_heads if new else (1 if multi_query else n_heads)
    two = norms == 2 or (norms is None and new)
    layer = Layer(
        full_heads(f, n_kv_heads=kv, qkv_bias=bias, out_bias=bias),
        _plain(f, "ffn_hidden_size", bias),
        "pre-shared" if parallel and not two else "pre",
        norm_bias=True,
        parallel=parallel or new,
    )
    return decoder(f, [layer] * n_layers, final_norm_bias=True)


def mpt(f: Fields) -> Transformer:
    """MPT: no biases anywhere, layer norms without them either."""
    f.skip("init_config", "init_device", "embedding_fraction", "verbose", "norm_type", "learned_pos_emb")
    f.must_be("no_bias", True)
    inner = f.inner("attn_config")
    if inner is not None:
        inner.must_be("attn_type", "multihead_attention")
        inner.must_be("alibi", True)
        inner.skip("attn_impl", "softmax_scale", "prefix_lm", "attn_uses_sequence_id")
        inner.settle()
    layer = Layer(full_heads(f), Mlp((f.natural("expansion_ratio") or 4) * d_model(f), gated=False))
    return decoder(f, [layer] * f.n_layers("n_layers"))


FAMILIES: dict[str, Reader] = {
    "helium": helium,
    "gemma4_text": gemma4,
    "qwen": qwen,
    "chatglm": chatglm,
    "gpt_neo": gpt_neo,
    "opt": opt,
    "falcon": falcon,
    "mpt": mpt,
}
