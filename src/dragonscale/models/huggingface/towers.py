"""Towers of models that see, beyond those of the families in `vision.py`: LLaVA, InternVL, GLM-V, mllama, MiniMax,
Step."""

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import split_evenly
from dragonscale.models.huggingface.vision import Tower, plain_blocks, tower_blocks
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import layer_section
from dragonscale.models.vision import bridge, norm, numbers, patches


def uncounted(_v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """A tower that is no Transformer, or whose form is not published."""
    raise InputError("towers of this kind are not counted, only the language model is.")


def _side(v: Fields) -> tuple[int, int]:
    """The side of a patch, and how many of them an image's side has."""
    sizes: list[int] = []
    for name in ("patch_size", "image_size"):
        listed = v.value(name)
        one = listed[0] if isinstance(listed, list) and listed and listed.count(listed[0]) == len(listed) else listed
        sizes.append(Fields({name: one}, {}, v.what).count(name))
    return sizes[0], sizes[1] // sizes[0]  # what is over is not seen


def _clip(v: Fields, d: int) -> tuple[Section, ...]:
    patch, side = _side(v)
    pixels = v.count("num_channels") * patch**2
    return (
        patches(d, pixels, positions=side**2 + 1, class_token=True, norm=True, norm_bias=True),
        plain_blocks(v, d),
        norm(d, "after", bias=True),
    )


def _siglip(v: Fields, d: int) -> tuple[Section, ...]:
    patch, side = _side(v)
    v.must_be("vision_use_head", False)
    return (
        patches(d, v.count("num_channels") * patch**2, bias=True, positions=side**2),
        plain_blocks(v, d),
        norm(d, "after", bias=True),
    )


_EYES = {"clip_vision_model": _clip, "siglip_vision_model": _siglip}


def llava_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """LLaVA 1.5: CLIP or SigLIP, and two matrices over the features of one layer or several."""
    kind = v.text("model_type") or "clip_vision_model"
    if kind not in _EYES:
        raise InputError(f"its vision_config is a {kind}, which is not one of {', '.join(_EYES)}.")
    d, layers = v.count("hidden_size"), outer.value("vision_feature_layer")
    wide = d * (len(layers) if isinstance(layers, list) else 1)
    bias = True if outer.value("multimodal_projector_bias") is None else outer.flag("multimodal_projector_bias")
    outer.skip(
        "vision_feature_select_strategy", "image_grid_pinpoints", "vision_aspect_ratio", "use_image_newline_parameter"
    )
    return (*_EYES[kind](v, d), bridge((wide, text, text), bias=bias))


def llava_next_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """LLaVA-NeXT and OneVision: also a learnt end of a row of patches."""
    return (*llava_tower(v, outer, text), numbers("newline", text))


def internvl_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """InternViT, its halves scaled by learnt vectors, patches shuffled four to one; of InternVL's own files and of
    transformers'."""
    d, heads, (patch, side) = v.count("hidden_size"), v.count("num_attention_heads"), _side(v)
    v.must_be("use_mask_token", False)
    v.must_be("use_absolute_position_embeddings", True)
    v.skip("layer_scale_init_value")
    outer.must_be("downsample_ratio", 0.5)
    outer.skip(
        "dynamic_image_size",
        "force_image_size",
        "max_dynamic_patch",
        "min_dynamic_patch",
        "pad2square",
        "ps_version",
        "select_layer",
        "template",
        "use_thumbnail",
        "hidden_size",
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "system_message",
        "image_fold",
        "output_attentions",
    )
    mixer = Attention(
        heads,
        heads,
        split_evenly(v, d, heads, "a tower"),
        qkv_bias=v.flag("attention_bias", "qkv_bias"),
        out_bias=True,
        qk_norm="all" if v.flag("use_qk_norm", "qk_normalization") else "",
    )
    layered = v.value("norm_type") in (None, "layer_norm")
    layer = Layer(mixer, Mlp(v.count("intermediate_size"), gated=False, bias=True), norm_bias=layered)
    depth, pooled = v.count("num_hidden_layers"), v.value("use_mean_pooling") in (None, True)
    return (
        patches(d, v.count("num_channels") * patch**2, bias=True, positions=side**2 + 1, class_token=True),
        layer_section(layer, d, "vision.blocks", depth),
        numbers("scales", 2 * d, depth),
        *([] if pooled else [norm(d, "after", bias=True)]),
        bridge((4 * d, text, text), norm_size=4 * d),
    )


def glm4v_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """GLM-4.1V and 4.5V: a gated tower as wide inside as the text, patches merged by a convolution, a gated merger."""
    d, out, (patch, side) = v.count("hidden_size"), v.count("out_hidden_size"), _side(v)
    pixels = v.count("in_channels") * v.count("temporal_patch_size") * patch**2
    merge, heads, wide = v.count("spatial_merge_size"), v.count("num_heads"), v.count("intermediate_size")
    mixer = Attention(heads, heads, split_evenly(v, d, heads, "a tower"), qkv_bias=v.flag("attention_bias"))
    return (
        patches(d, pixels, bias=True, positions=side**2, norm=True),
        layer_section(Layer(mixer, Mlp(out)), d, "vision.blocks", v.count("depth")),
        norm(d, "after", bias=False),
        bridge((merge**2 * d, out), "downsample"),
        bridge((out, out), "merger", bias=False),
        norm(out, "merged", bias=True),
        layer_section(Layer(None, Mlp(wide), norm_weight=False), out, "vision.gated", 1),
    )


def mllama_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Llama 3.2 Vision: learnt positions of patches, of tiles and of tiles' shapes, layers of a tile
    and of all tiles."""
    d, tiles, (patch, side) = v.count("hidden_size"), v.count("max_num_tiles"), _side(v)
    shapes = v.value("supported_aspect_ratios")
    count = (len(shapes) if isinstance(shapes, list) else 8) + 1
    v.skip("intermediate_layers_indices", "max_aspect_ratio_id")
    places, heads = side**2 + 1, v.count("attention_heads", "num_attention_heads")
    mixer = Attention(heads, heads, split_evenly(v, d, heads, "a tower"))
    layer = Layer(mixer, Mlp(v.count("intermediate_size"), gated=False, bias=True), norm_bias=True)
    everywhere = v.count("num_global_layers")
    return (
        patches(d, v.count("num_channels") * patch**2, positions=places, class_token=True, norm=True, norm_bias=True),
        numbers("tiles", count * tiles * d * (places + 2) + 3),
        layer_section(layer, d, "vision.blocks", v.count("num_hidden_layers")),
        norm(d, "after", bias=True),
        layer_section(layer, d, "vision.global", everywhere),
        numbers("gates", 2, everywhere),
        bridge((v.count("vision_output_dim"), text)),
    )


def minimax_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """MiniMax M3: patches over two frames, each projected to the text's width and then merged four to one."""
    d, inside, merge = v.count("hidden_size"), outer.count("projector_hidden_size"), v.count("spatial_merge_size") ** 2
    pixels = v.count("num_channels") * v.count("temporal_patch_size") * v.count("patch_size") ** 2
    v.skip("image_size")
    outer.skip("merged_hidden_size")
    return (
        patches(d, pixels, norm=True, norm_bias=True),
        plain_blocks(v, d),
        bridge((d, inside, text)),
        bridge((merge * text, inside, text), "merge"),
    )


def step_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """Step 3.7: halves scaled by learnt vectors, two convolutions of three by three that halve the sides."""
    d, (patch, side) = v.count("hidden_size", "width"), _side(v)
    depth, heads = v.count("num_hidden_layers", "layers"), v.count("num_attention_heads", "heads")
    ratio = v.value("mlp_ratio")
    if not isinstance(ratio, int | float) or not 0 < ratio < 1000:
        raise InputError("its vision_config has no mlp_ratio.")
    v.skip("layer_scale_init_value", "ls_init_value", "max_position_embeddings", "intermediate_size")
    mlp = Mlp(int(d * ratio), gated=False, bias=True)
    return (
        patches(d, v.count("num_channels") * patch**2, positions=side**2, norm=True, norm_bias=True),
        tower_blocks(v, d, depth, heads, mlp),
        numbers("scales", 2 * d, depth),
        bridge((9 * d, 2 * d), "downsample1"),
        bridge((18 * d, 4 * d), "downsample2"),
        bridge((4 * d, text), bias=outer.flag("projector_bias")),
    )


# The outer type: the text model inside it if not said there, its tower, and the tower's own type for defaults.
WRAPPERS: dict[str, tuple[str, Tower, str]] = {
    "llava": ("llama", llava_tower, "clip_vision_model"),
    "llava_next": ("llama", llava_next_tower, "clip_vision_model"),
    "llava_onevision": ("qwen2", llava_next_tower, "siglip_vision_model"),
    "internvl": ("qwen2", internvl_tower, "internvl_vision"),
    "internvl_chat": ("internlm2", internvl_tower, "internvl_vision"),
    "glm4v": ("glm4v_text", glm4v_tower, "glm4v_vision"),
    "glm4v_moe": ("glm4v_moe_text", glm4v_tower, "glm4v_vision"),
    "mllama": ("mllama_text_model", mllama_tower, "mllama_vision_model"),
    "minimax_m3_vl": ("minimax_m3_vl_text", minimax_tower, "minimax_m3_vl_vision"),
    "step3p7": ("step3p5", step_tower, "step3p7_vision"),
    "step3_vl": ("step3_text", uncounted, ""),
    "gemma3n": ("gemma3n_text", uncounted, ""),
}
