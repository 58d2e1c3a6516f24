"""Readers of dense decoders in the manner of LLaMA: pre-norm RMS, rotary positions, a gated MLP."""

from collections.abc import Callable

from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.gemma4 import LayerInput, MlpAndMoe
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
    qkv_biased,
    window_everywhere,
    windowed,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.transformer import Transformer


def helium(f: Fields) -> Layer:
    """Helium: no bias on the output projection, whose input must be as wide as the model."""
    mixer = qkv_biased(f)
    f.must_be("head_dim", d_model(f) // mixer.n_heads)
    return Layer(mixer, mlp(f, bias=f.flag("mlp_bias")))


def internlm(f: Fields) -> Layer:
    """InternLM 2 and 3: `bias` on all four projections; InternLM 3 has `qkv_bias` apart."""
    bias = f.flag("bias")
    return Layer(attention(f, qkv_bias=f.flag("qkv_bias") or bias, out_bias=bias), mlp(f, bias=bias))


def mistral(f: Fields) -> Layer:
    """One sliding window for all layers, or none."""
    return Layer(attention(f, window=window_everywhere(f)), mlp(f))


def _qwen_windows(f: Fields) -> list[int | None]:
    """Qwen's rule: with `use_sliding_window`, a window from layer `max_window_layers` on."""
    n_layers = f.n_layers()
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")
    spans = windows(f, n_layers, lambda number: used and number >= first)
    return spans if used else [None] * n_layers


def qwen2(f: Fields) -> Transformer:
    """Qwen 1.5, 2 and 2.5: biases on queries, keys and values."""
    f.skip("qkv_bias")
    return decoder(f, [Layer(attention(f, qkv_bias=True, window=span), mlp(f)) for span in _qwen_windows(f)])


def qwen3(f: Fields) -> Transformer:
    """Qwen 3: no biases, a norm on each head's queries and keys."""
    spans = _qwen_windows(f)
    return decoder(f, [Layer(biased_attention(f, qk_norm="head", window=span), mlp(f)) for span in spans])


def mimo(f: Fields) -> Transformer:
    """MiMo 7B: Qwen 2's block with multi-token modules beside it."""
    layers = [Layer(qkv_biased(f, window=span), mlp(f)) for span in _qwen_windows(f)]
    modules = f.natural("num_nextn_predict_layers")
    extras = mtp_sections([Layer(qkv_biased(f), mlp(f))], d_model(f), f.count("vocab_size"), modules)
    return decoder(f, layers, extras=extras)


def _gemma(f: Fields, step: int, qk_norm: str) -> Transformer:
    """Norms before and after each half, and a window on all but every `step`-th layer."""
    if not qk_norm:  # Gemma 2 says its window twice
        f.skip("sliding_window_size")
    layer = lambda f, span: Layer(biased_attention(f, qk_norm=qk_norm, window=span), mlp(f), "sandwich")  # noqa: E731
    return windowed(all_but_every(step), layer)(f)


def phi3(f: Fields) -> Layer:
    """Phi 3 and 4: LLaMA's block, with a window in some."""
    f.must_be("full_attn_mod", 1)
    return mistral(f)


def smollm3(f: Fields) -> Transformer:
    """SmolLM 3; which layers rotate does not change the counts unless a window is used."""
    n_layers, used = f.n_layers(), f.flag("use_sliding_window")
    step = f.natural("no_rope_layer_interval")
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % step != 0) if step else 1 for i in range(n_layers)]
    spans = windows(f, n_layers, lambda number: used and number < len(rotates) and not rotates[number])
    f.skip("max_window_layers")
    bias = f.flag("mlp_bias")
    return decoder(f, [Layer(biased_attention(f, window=span), mlp(f, bias=bias)) for span in spans])


def pattern_step(f: Fields) -> int:
    """EXAONE's `sliding_window_pattern`: a string of kinds, or how many layers it spans."""
    pattern = f.value("sliding_window_pattern")
    return len(pattern) if isinstance(pattern, str) else f.natural("sliding_window_pattern")


def exaone4(f: Fields) -> Transformer:
    """EXAONE 4: norms after each half; the larger one has a window on three layers of four."""
    spans = windows(f, f.n_layers(), all_but_every(pattern_step(f)))
    return decoder(f, [Layer(attention(f, qk_norm="head", window=span), mlp(f), "post") for span in spans])


def hunyuan(f: Fields) -> Layer:
    """Hunyuan dense: LLaMA with norms on queries and keys."""
    f.must_be("use_qk_norm", True)
    f.skip("dense_list", "cla_share_factor", "norm_type")
    return Layer(biased_attention(f, qk_norm="head"), mlp(f))


def ernie(f: Fields) -> Layer:
    """ERNIE 4.5 dense: `use_bias` on every projection."""
    bias = f.flag("use_bias")
    return Layer(attention(f, qkv_bias=bias, out_bias=bias), mlp(f, bias=bias))


def apertus(f: Fields) -> Layer:
    """Apertus: no gate, a nonlinearity with two learnt numbers, norms on queries and keys."""
    f.must_be("qk_norm", True)
    f.must_be("post_norm", False)
    return Layer(biased_attention(f, qk_norm="head"), mlp(f, gated=False, act_weights=2))


def baichuan(f: Fields) -> Layer:
    """Baichuan 1 and 2: full heads, one packed projection."""
    f.skip("z_loss_weight")
    n_heads = f.count("num_attention_heads")
    return Layer(Attention(n_heads, n_heads, d_model(f) // n_heads), mlp(f))


def gemma4(f: Fields) -> Transformer:
    """Gemma 4: wider heads in the full layers, the last layers on earlier ones' keys, an input for every layer, and in one
    model experts beside the MLP."""
    n_layers, borrowed = f.n_layers(), f.natural("num_kv_shared_layers")
    width = f.natural("hidden_size_per_layer_input")
    spans = windows(f, n_layers, all_but_every(6))
    spans[-1] = None
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


def qwen(f: Fields) -> Layer:
    """The first Qwen: biases on queries, keys and values; its `intermediate_size` counts gate and value together."""
    f.must_be("no_bias", True)
    f.skip("use_cache_quantization", "bf16", "fp16", "fp32")
    n_heads = f.count("num_attention_heads")
    mixer = Attention(n_heads, n_heads, f.count("kv_channels"), qkv_bias=True)
    return Layer(mixer, Mlp(f.count("intermediate_size") // 2))


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


_LAYERS: dict[str, Callable[[Fields], Layer]] = {
    # LLaMA 1 to 3 and the many that are it by another name (Yi, SmolLM, Granite's and MiniCPM's dense ones)
    **dict.fromkeys(
        ("llama", "granite", "minicpm"), lambda f: Layer(biased_attention(f), mlp(f, bias=f.flag("mlp_bias")))
    ),
    "helium": helium,
    **dict.fromkeys(("internlm", "internlm2", "internlm3"), internlm),
    **dict.fromkeys(("mistral", "ministral3"), mistral),
    "gemma": lambda f: Layer(biased_attention(f), mlp(f)),
    # norms after each half, and over all queries and keys together
    "olmo2": lambda f: Layer(biased_attention(f, qk_norm="all"), mlp(f), "post"),
    # GLM 4, first form: biases on queries, keys and values only; of 2025: norms before and after each half
    "glm": lambda f: Layer(qkv_biased(f), mlp(f)),
    "glm4": lambda f: Layer(qkv_biased(f), mlp(f), "sandwich"),
    "phi3": phi3,
    # the output projection's bias has a switch of its own
    "seed_oss": lambda f: Layer(qkv_biased(f, out_bias=f.flag("attention_out_bias")), mlp(f, bias=f.flag("mlp_bias"))),
    "hunyuan_v1_dense": hunyuan,
    "ernie4_5": ernie,
    "arcee": lambda f: Layer(biased_attention(f), mlp(f, gated=False, bias=f.flag("mlp_bias"))),
    "apertus": apertus,
    "baichuan": baichuan,
    # BitNet b1.58: further norms before each output projection
    "bitnet": lambda f: Layer(biased_attention(f, out_norm=True), mlp(f, norm=True)),
    "qwen": qwen,
}
FAMILIES: dict[str, Reader] = {
    **{name: alike(layer) for name, layer in _LAYERS.items()},
    "exaone": alike(lambda f: Layer(attention(f), mlp(f)), "num_layers"),  # EXAONE 3: LLaMA under other names
    # OLMo 1 and nanochat: norms without weights
    "olmo": alike(lambda f: Layer(biased_attention(f), mlp(f), norm_weight=False), final_norm_weight=False),
    "nanochat": alike(
        lambda f: Layer(biased_attention(f, qk_norm="plain"), mlp(f, gated=False), norm_weight=False),
        final_norm_weight=False,
    ),
    # a window on the layers that `layer_types` says, else on all, or on three of four
    "ministral": windowed(lambda _: True, lambda f, span: Layer(attention(f, window=span), mlp(f))),
    "cwm": windowed(lambda number: number % 4 != 0, lambda f, span: Layer(attention(f, window=span), mlp(f))),
    "olmo3": windowed(
        all_but_every(4), lambda f, span: Layer(biased_attention(f, qk_norm="all", window=span), mlp(f), "post")
    ),
    "gemma2": lambda f: _gemma(f, 2, ""),
    "gemma3_text": lambda f: _gemma(f, f.natural("sliding_window_pattern") or 6, "head"),
    "gemma4_text": gemma4,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "mimo": mimo,
    "smollm3": smollm3,
    "exaone4": exaone4,
    "chatglm": chatglm,
}
