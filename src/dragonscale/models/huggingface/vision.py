"""Readers of models that see: a language model inside `text_config`, a tower inside `vision_config` as extras."""

from collections.abc import Callable
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import split_evenly
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import layer_section
from dragonscale.models.vision import bridge, norm, patches

Tower = Callable[[Fields, Fields, int], tuple[Section, ...]]
"""Reads a tower from `vision_config`, the outer config and the text model's width."""


def tower_blocks(
    v: Fields, d: int, depth: int, heads: int, mlp: Mlp, bias: bool = True, norm_bias: bool = True
) -> Section:
    """The tower's layers."""
    mixer = Attention(heads, heads, split_evenly(v, d, heads, "a tower"), qkv_bias=bias, out_bias=bias)
    return layer_section(Layer(mixer, mlp, norm_bias=norm_bias), d, "vision.blocks", depth)


def plain_blocks(v: Fields, d: int) -> Section:
    """The most common form: layer norms and an MLP without a gate, biases everywhere."""
    mlp = Mlp(v.count("vt_intermediate_size", "intermediate_size"), gated=False, bias=True)
    heads = v.count("vt_num_attention_heads", "num_attention_heads", "num_heads")
    return tower_blocks(v, d, v.count("vt_num_hidden_layers", "num_hidden_layers", "depth"), heads, mlp)


def _qwen_patches(v: Fields, d: int, **options: Any) -> Section:
    """Qwen's patches span some frames."""
    side = v.count("patch_size", "spatial_patch_size")
    pixels = v.count("in_channels", "in_chans") * v.count("temporal_patch_size") * side**2
    return patches(d, pixels, **options)


def qwen3_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen3-VL and Qwen 3.5: learnt positions, layer norms, a merger, and further mergers for deep features."""
    d, merge, out = v.count("hidden_size"), v.count("spatial_merge_size") ** 2, v.count("out_hidden_size")
    deep, sizes = len(v.numbers("deepstack_visual_indexes") or []), (merge * d, merge * d, out)
    return (
        _qwen_patches(v, d, bias=True, positions=v.count("num_position_embeddings")),
        plain_blocks(v, d),
        bridge(sizes, norm_size=d),
        *([bridge(sizes, "deep", norm_size=merge * d, repeat=deep)] if deep else []),
    )


def qwen25_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen2.5-VL: RMS norms and a gated MLP."""
    d, merge = v.count("hidden_size"), v.count("spatial_merge_size") ** 2
    v.skip("tokens_per_second", "window_size", "fullatt_block_indexes")
    mlp = Mlp(v.count("intermediate_size"), bias=True)
    return (
        _qwen_patches(v, d),
        tower_blocks(v, d, v.count("depth"), v.count("num_heads"), mlp, norm_bias=False),
        bridge((merge * d, merge * d, v.count("out_hidden_size")), norm_size=d, norm_bias=False),
    )


def qwen2_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen2-VL: the tower's width is `embed_dim`, the text's `hidden_size`."""
    d, merge = v.count("embed_dim"), v.count("spatial_merge_size") ** 2
    mlp = Mlp(v.count("mlp_ratio") * d, gated=False, bias=True)
    return (
        _qwen_patches(v, d),
        tower_blocks(v, d, v.count("depth"), v.count("num_heads"), mlp),
        bridge((merge * d, merge * d, v.count("hidden_size")), norm_size=d),
    )


def siglip_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Gemma 3: SigLIP without its head, pooled and projected."""
    d, patch = v.count("hidden_size"), v.count("patch_size")
    v.must_be("vision_use_head", False)
    side = split_evenly(v, v.count("image_size"), patch, "an image")
    return (
        patches(d, v.count("num_channels") * patch**2, bias=True, positions=side**2),
        plain_blocks(v, d),
        norm(d, "after", bias=True),
        bridge((d, text), bias=False, norm_size=d, norm_bias=False),
    )


def pixtral_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """Mistral 3: Pixtral's gated tower, its patches merged four to one."""
    d, patch = v.count("hidden_size"), v.count("patch_size")
    n_heads, merge = v.count("num_attention_heads"), outer.count("spatial_merge_size") ** 2
    v.must_be("head_dim", d // n_heads)
    v.skip("image_size")
    bias = outer.flag("multimodal_projector_bias")
    outer.must_be("vision_feature_layer", -1)
    outer.skip("projector_hidden_act")
    depth, mlp = v.count("num_hidden_layers"), Mlp(v.count("intermediate_size"))
    return (
        patches(d, v.count("num_channels") * patch**2, norm=True),
        tower_blocks(v, d, depth, n_heads, mlp, bias=False, norm_bias=False),
        bridge((merge * d, d), "merger", bias=False),
        bridge((d, text, text), bias=bias, norm_size=d, norm_bias=False),
    )


def llama4_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Llama 4: a class token, learnt positions, patches shuffled together."""
    d, patch = v.count("hidden_size"), v.count("patch_size")
    side = split_evenly(v, v.count("image_size"), patch, "an image")
    v.skip("vision_feature_select_strategy", "vision_feature_layer", "projector_dropout", "norm_eps")
    v.must_be("pixel_shuffle_ratio", 0.5)
    out = v.count("projector_output_dim")
    v.must_be("projector_input_dim", out)
    bias = v.flag("multi_modal_projector_bias")
    return (
        patches(
            d, v.count("num_channels") * patch**2, positions=side**2 + 1, class_token=True, norm=True, norm_bias=True
        ),
        plain_blocks(v, d),
        norm(d, "after", bias=True),
        bridge((v.count("intermediate_size"), out, out), "adapter", bias=False),
        bridge((v.count("vision_output_dim"), text), bias=bias),
    )


def moonvit_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """Kimi K2.5's MoonViT: learnt positions in a square, fixed ones in time, a merging bridge."""
    d = v.count("vt_hidden_size", "hidden_size")
    sides = v.count("init_pos_emb_height", "pos_emb_height") * v.count("init_pos_emb_width", "pos_emb_width")
    merge = v.numbers("merge_kernel_size") or [2, 2]
    if len(merge) != 2:
        raise InputError(f"{v.what} has a merge_kernel_size of {len(merge)} numbers; 2 are understood.")
    v.must_be("merge_type", "sd2_tpool")
    v.must_be("mm_projector_type", "patchmerger")
    v.must_be("pos_emb_type", "divided_fixed")
    v.must_be("video_attn_type", "spatial_temporal")
    v.must_be("mm_hidden_size", d)
    outer.must_be("projection_hidden_size", d)
    outer.skip("projection_layer_norm_eps", "projection_hidden_act")
    v.skip("init_pos_emb_time", "pos_emb_time", "projector_hidden_act", "projector_ln_eps", "text_hidden_size")
    wide = merge[0] * merge[1] * d
    return (
        patches(d, 3 * v.count("patch_size") ** 2, bias=True, positions=sides),
        plain_blocks(v, d),
        norm(d, "after", bias=True),
        bridge((wide, wide, text), norm_size=d),
    )


def gemma4_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Gemma 4: learnt positions along both sides, gated blocks with norms all around, a plain projection."""
    d, patch, bias = v.count("hidden_size"), v.count("patch_size"), v.flag("attention_bias")
    mixer = Attention(
        v.count("num_attention_heads"),
        v.count("num_key_value_heads"),
        v.count("head_dim"),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        v_norm=True,
    )
    v.skip(
        "max_position_embeddings", "pooling_kernel_size", "use_clipped_linears", "standardize", "default_output_length"
    )
    layer = Layer(mixer, Mlp(v.count("intermediate_size")), "sandwich")
    return (
        patches(d, 3 * patch**2, positions=2 * v.count("position_embedding_size")),
        layer_section(layer, d, "vision.blocks", v.count("num_hidden_layers")),
        bridge((d, text), bias=False),
    )


# The outer type: the text model inside it if not said there, its tower, and the tower's own type for defaults.
WRAPPERS: dict[str, tuple[str, Tower, str]] = {
    "qwen2_vl": ("qwen2_vl_text", qwen2_tower, "qwen2_vl_vision"),
    "qwen2_5_vl": ("qwen2_5_vl_text", qwen25_tower, "qwen2_5_vl_vision"),
    "qwen3_vl": ("qwen3_vl_text", qwen3_tower, "qwen3_vl_vision"),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", qwen3_tower, "qwen3_vl_vision"),
    "qwen3_5": ("qwen3_5_text", qwen3_tower, "qwen3_5_vision"),
    "qwen3_5_moe": ("qwen3_5_moe_text", qwen3_tower, "qwen3_5_vision"),
    "gemma3": ("gemma3_text", siglip_tower, "siglip_vision_model"),
    "gemma4": ("gemma4_text", gemma4_tower, "gemma4_vision"),
    "mistral3": ("mistral", pixtral_tower, "pixtral"),
    "llama4": ("llama4_text", llama4_tower, "llama4_vision_model"),
    "kimi_k25": ("kimi_k2", moonvit_tower, "kimi_k25_vision"),
}
