"""Readers of dense decoders in the manner of LLaMA: pre-norm RMS, rotary positions, a gated MLP."""

from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.gemma4 import LayerInput, MlpAndMoe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import (
    all_but_every,
    attention,
    biased_attention,
    d_model,
    decoder,
    mlp,
    window_everywhere,
    windows,
)
from dragonscale.models.layer import Layer
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.transformer import Transformer


def llama(f: Fields) -> Transformer:
    """LLaMA 1 to 3 and the many that are it by another name (Yi, Granite's dense ones, SmolLM)."""
    layer = Layer(biased_attention(f), mlp(f, bias=f.flag("mlp_bias")))
    return decoder(f, [layer] * f.n_layers())


def helium(f: Fields) -> Transformer:
    """Helium: no bias on the output projection, whose input must be as wide as the model."""
    mixer = attention(f, qkv_bias=f.flag("attention_bias"))
    f.must_be("head_dim", d_model(f) // mixer.n_heads)
    return decoder(f, [Layer(mixer, mlp(f, bias=f.flag("mlp_bias")))] * f.n_layers())


def internlm(f: Fields) -> Transformer:
    """InternLM 2 and 3: `bias` on all four projections; InternLM 3 has `qkv_bias` apart."""
    bias = f.flag("bias")
    layer = Layer(attention(f, qkv_bias=f.flag("qkv_bias") or bias, out_bias=bias), mlp(f, bias=bias))
    return decoder(f, [layer] * f.n_layers())


def mistral(f: Fields) -> Transformer:
    """One sliding window for all layers, or none."""
    layer = Layer(attention(f, window=window_everywhere(f)), mlp(f))
    return decoder(f, [layer] * f.n_layers())


def ministral(f: Fields) -> Transformer:
    """A window on the layers that `layer_types` says, else on all."""
    n_layers = f.n_layers()
    spans = windows(f, n_layers, lambda _: True)
    return decoder(f, [Layer(attention(f, window=span), mlp(f)) for span in spans])


def _qwen_windows(f: Fields, n_layers: int) -> list[int | None]:
    """Qwen's rule: with `use_sliding_window`, a window from layer `max_window_layers` on."""
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")
    spans = windows(f, n_layers, lambda number: used and number >= first)
    return spans if used else [None] * n_layers


def qwen2(f: Fields) -> Transformer:
    """Qwen 1.5, 2 and 2.5: biases on queries, keys and values."""
    n_layers = f.n_layers()
    f.skip("qkv_bias")
    spans = _qwen_windows(f, n_layers)
    return decoder(f, [Layer(attention(f, qkv_bias=True, window=span), mlp(f)) for span in spans])


def qwen3(f: Fields) -> Transformer:
    """Qwen 3: no biases, a norm on each head's queries and keys."""
    n_layers = f.n_layers()
    spans = _qwen_windows(f, n_layers)
    return decoder(f, [Layer(biased_attention(f, qk_norm="head", window=span), mlp(f)) for span in spans])


def mimo(f: Fields) -> Transformer:
    """MiMo 7B: Qwen 2's block with multi-token modules beside it."""
    n_layers, modules = f.n_layers(), f.natural("num_nextn_predict_layers")
    spans = _qwen_windows(f, n_layers)
    layer = Layer(attention(f, qkv_bias=f.flag("attention_bias")), mlp(f))
    layers = [Layer(attention(f, qkv_bias=f.flag("attention_bias"), window=span), mlp(f)) for span in spans]
    extras = mtp_sections([layer], d_model(f), f.count("vocab_size"), modules)
    return decoder(f, layers, extras=extras)


def gemma(f: Fields) -> Transformer:
    """Gemma 1."""
    return decoder(f, [Layer(biased_attention(f), mlp(f))] * f.n_layers())


def gemma2(f: Fields) -> Transformer:
    """Gemma 2: norms before and after each half, a window on every other layer."""
    f.skip("sliding_window_size")
    return _gemma(f, f.n_layers(), 2, "")


def gemma3(f: Fields) -> Transformer:
    """Gemma 3: as Gemma 2, with norms on queries and keys and a window on five layers of six."""
    return _gemma(f, f.n_layers(), f.natural("sliding_window_pattern") or 6, "head")


def _gemma(f: Fields, n_layers: int, step: int, qk_norm: str) -> Transformer:
    spans = windows(f, n_layers, all_but_every(step))
    layers = [Layer(biased_attention(f, qk_norm=qk_norm, window=span), mlp(f), "sandwich") for span in spans]
    return decoder(f, layers)


def olmo(f: Fields) -> Transformer:
    """OLMo 1: layer norms without weights."""
    layer = Layer(biased_attention(f), mlp(f), norm_weight=False)
    return decoder(f, [layer] * f.n_layers(), final_norm_weight=False)


def olmo2(f: Fields) -> Transformer:
    """OLMo 2: norms after each half, and over all queries and keys together."""
    layer = Layer(biased_attention(f, qk_norm="all"), mlp(f), "post")
    return decoder(f, [layer] * f.n_layers())


def olmo3(f: Fields) -> Transformer:
    """OLMo 3: OLMo 2 with a window on three layers of four."""
    spans = windows(f, f.n_layers(), all_but_every(4))
    layers = [Layer(biased_attention(f, qk_norm="all", window=span), mlp(f), "post") for span in spans]
    return decoder(f, layers)


def glm(f: Fields) -> Transformer:
    """GLM 4, first form: biases on queries, keys and values only."""
    return decoder(f, [Layer(attention(f, qkv_bias=f.flag("attention_bias")), mlp(f))] * f.n_layers())


def glm4(f: Fields) -> Transformer:
    """GLM 4 of 2025: norms before and after each half."""
    layer = Layer(attention(f, qkv_bias=f.flag("attention_bias")), mlp(f), "sandwich")
    return decoder(f, [layer] * f.n_layers())


def phi3(f: Fields) -> Transformer:
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


def seed_oss(f: Fields) -> Transformer:
    """Seed-OSS: the output projection's bias has a switch of its own."""
    mixer = attention(f, qkv_bias=f.flag("attention_bias"), out_bias=f.flag("attention_out_bias"))
    return decoder(f, [Layer(mixer, mlp(f, bias=f.flag("mlp_bias")))] * f.n_layers())


def exaone4(f: Fields) -> Transformer:
    """EXAONE 4: norms after each half; the larger one has a window on three layers of four."""
    n_layers = f.n_layers()
    pattern = f.value("sliding_window_pattern")
    step = len(pattern) if isinstance(pattern, str) else f.natural("sliding_window_pattern")
    spans = windows(f, n_layers, all_but_every(step))
    layers = [Layer(attention(f, qk_norm="head", window=span), mlp(f), "post") for span in spans]
    return decoder(f, layers)


def hunyuan(f: Fields) -> Transformer:
    """Hunyuan dense: LLaMA with norms on queries and keys."""
    f.must_be("use_qk_norm", True)
    f.skip("dense_list", "cla_share_factor", "norm_type")
    return decoder(f, [Layer(biased_attention(f, qk_norm="head"), mlp(f))] * f.n_layers())


def ernie(f: Fields) -> Transformer:
    """ERNIE 4.5 dense: `use_bias` on every projection."""
    bias = f.flag("use_bias")
    layer = Layer(attention(f, qkv_bias=bias, out_bias=bias), mlp(f, bias=bias))
    return decoder(f, [layer] * f.n_layers())


def arcee(f: Fields) -> Transformer:
    """Arcee: an MLP without a gate."""
    layer = Layer(biased_attention(f), mlp(f, gated=False, bias=f.flag("mlp_bias")))
    return decoder(f, [layer] * f.n_layers())


def apertus(f: Fields) -> Transformer:
    """Apertus: no gate, a nonlinearity with two learnt numbers, norms on queries and keys."""
    layer = Layer(biased_attention(f, qk_norm="head"), mlp(f, gated=False, act_weights=2))
    f.must_be("qk_norm", True)
    f.must_be("post_norm", False)
    return decoder(f, [layer] * f.n_layers())


def nanochat(f: Fields) -> Transformer:
    """nanochat: norms without weights, no gate."""
    layer = Layer(biased_attention(f, qk_norm="plain"), mlp(f, gated=False), norm_weight=False)
    return decoder(f, [layer] * f.n_layers(), final_norm_weight=False)


def baichuan(f: Fields) -> Transformer:
    """Baichuan 1 and 2: full heads, one packed projection."""
    n_heads = f.count("num_attention_heads")
    layer = Layer(Attention(n_heads, n_heads, d_model(f) // n_heads), mlp(f))
    f.skip("z_loss_weight")
    return decoder(f, [layer] * f.n_layers())


def cwm(f: Fields) -> Transformer:
    """CWM: LLaMA with a window on three layers of four."""
    spans = windows(f, f.n_layers(), lambda number: number % 4 != 0)
    return decoder(f, [Layer(attention(f, window=span), mlp(f)) for span in spans])


def gemma4(f: Fields) -> Transformer:
    """Gemma 4: wider heads in the full layers, the last layers on earlier ones' keys, an input for every layer, and in one
    model experts beside the MLP."""
    n_layers, borrowed, width = (
        f.n_layers(),
        f.natural("num_kv_shared_layers"),
        f.natural("hidden_size_per_layer_input"),
    )
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


def bitnet(f: Fields) -> Transformer:
    """BitNet b1.58: further norms before each output projection."""
    layer = Layer(biased_attention(f, out_norm=True), mlp(f, norm=True))
    return decoder(f, [layer] * f.n_layers())


def qwen(f: Fields) -> Transformer:
    """The first Qwen: biases on queries, keys and values; its `intermediate_size` counts gate and value together."""
    n_heads, size = f.count("num_attention_heads"), f.count("kv_channels")
    f.must_be("no_bias", True)
    f.skip("use_cache_quantization", "bf16", "fp16", "fp32")
    mixer = Attention(n_heads, n_heads, size, qkv_bias=True)
    layer = Layer(mixer, Mlp(f.count("intermediate_size") // 2))
    return decoder(f, [layer] * f.n_layers())


def chatglm(f: Fields) -> Transformer:
    """ChatGLM 2 and 3 and GLM-4-9B as first released."""
    bias, n_heads = f.flag("add_bias_linear"), f.count("num_attention_heads")
    kv = f.count("multi_query_group_num") if f.flag("multi_query_attention") else n_heads
    f.skip("multi_query_group_num", "original_rope", "seq_length", "pre_seq_len", "prefix_projection")
    f.skip("apply_query_key_layer_scaling", "bias_dropout_fusion", "fp32_residual_connection")
    f.must_be("rmsnorm", True)
    f.must_be("apply_residual_connection_post_layernorm", False)
    mixer = Attention(n_heads, kv, f.count("kv_channels"), qkv_bias=f.flag("add_qkv_bias") or bias, out_bias=bias)
    layer = Layer(mixer, Mlp(f.count("ffn_hidden_size"), bias=bias))
    f.skip("vocab_size")
    frame = {"vocab": f.count("padded_vocab_size"), "final_norm": f.flag("post_layer_norm")}
    f.must_be("num_hidden_layers", f.value("num_layers"))
    return decoder(f, [layer] * f.n_layers("num_layers"), **frame)


def exaone3(f: Fields) -> Transformer:
    """EXAONE 3: LLaMA under other names."""
    return decoder(f, [Layer(attention(f), mlp(f))] * f.n_layers("num_layers"))


FAMILIES = {
    "gemma4_text": gemma4,
    "bitnet": bitnet,
    "qwen": qwen,
    "chatglm": chatglm,
    "exaone": exaone3,
    "minicpm": llama,
    "llama": llama,
    "granite": llama,
    "helium": helium,
    "internlm": internlm,
    "internlm2": internlm,
    "internlm3": internlm,
    "mistral": mistral,
    "ministral3": mistral,
    "ministral": ministral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "mimo": mimo,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "glm": glm,
    "glm4": glm4,
    "phi3": phi3,
    "smollm3": smollm3,
    "seed_oss": seed_oss,
    "exaone4": exaone4,
    "hunyuan_v1_dense": hunyuan,
    "ernie4_5": ernie,
    "arcee": arcee,
    "apertus": apertus,
    "nanochat": nanochat,
    "baichuan": baichuan,
    "cwm": cwm,
}
