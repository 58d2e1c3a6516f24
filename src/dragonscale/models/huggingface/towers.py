"""Readers of models that see: a language model inside `text_config`, a tower inside `vision_config` as extras.

`towers.toml` says which text model and which defaults belong to an outer type, what fields must be and which do not
matter; a function reads the tower's form.

Vision towers as sections of a program, for the `extras` of a model: patches, blocks, and the bridge to the text.

A tower's tokens are patches, not words, so its sections stand apart from the model's own and are counted apart.
"""

from collections.abc import Callable
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.component import written
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import layer_section

Tower = Callable[[Fields, Fields, int], tuple[Section, ...]]
"""Reads a tower from `vision_config`, the outer config and the text model's width."""


def patches(d_model: int, pixels: int, positions: int = 0, **options: bool) -> Section:
    """Patches of `pixels` numbers each, projected to the tower's width; `options` are a bias, a class_token, a norm and
    a norm_bias."""
    lines = written("patches", (options | {"positions": positions}).get)
    return Section("vision.patches", parsed(lines), {"d": d_model, "i": pixels, "o": positions or 1})


def norm(d_model: int, name: str, bias: bool) -> Section:
    """A norm by itself."""
    weights = "w_norm[d], w_norm_bias[d]" if bias else "w_norm[d]"
    ops = parsed([f"vision: R[b,t,d] = norm(R[b,t,d]; {weights})"])
    return Section(f"vision.{name}", ops, {"d": d_model})


def numbers(name: str, count: int, repeat: int = 1) -> Section:
    """Learnt numbers that are added or multiplied: scales, gates, tables of positions."""
    return Section(
        f"vision.{name}", parsed(["vision: R[b,t,d] = mix(R[b,t,d]; w_numbers[o])"]), {"d": 1, "o": count}, repeat
    )


def bridge(
    sizes: tuple[int, ...],
    name: str = "bridge",
    bias: bool = True,
    norm_size: int = 0,
    norm_bias: bool = True,
    repeat: int = 1,
) -> Section:
    """Matrices in a row, of these widths from first to last, after a norm over `norm_size` if there is one."""
    dims = {f"j{number}": size for number, size in enumerate(sizes)} | {"m0": norm_size}
    lines: list[str] = []
    if norm_size:
        weights = "w_norm[m0], w_norm_bias[m0]" if norm_bias else "w_norm[m0]"
        lines.append(f"vision: H0[b,t,j0] = norm(H0[b,t,j0]; {weights})")
    # H0 is (patches, sizes[0]), H1 (patches, sizes[1]) ...
    for number in range(len(sizes) - 1):
        before, after = f"H{number}[b,t,j{number}]", f"H{number + 1}[b,t,j{number + 1}]"
        lines.append(f"vision: {after} = {before} · W_{number}[j{number},j{number + 1}]")
        if bias:
            lines.append(f"vision: {after} = bias({after}; w_{number}[j{number + 1}])")
    return Section(f"vision.{name}", parsed(lines), dims, repeat)


def uncounted(_v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """A tower that is no Transformer, or whose form is not published."""
    raise InputError("towers of this kind are not counted, only the language model is.")


def _blocks(
    v: Fields, d: int, heads: int, mlp: Mlp, depth: int, name: str = "blocks", norm_bias: bool = True, **attention: Any
) -> Section:
    """The tower's layers; its attention has biases unless `attention` says otherwise."""
    options: dict[str, Any] = {"qkv_bias": True, "out_bias": True} | attention
    mixer = Attention(heads, heads, v.split_evenly(d, heads, "a tower"), **options)
    return layer_section(Layer(mixer, mlp, norm_bias=norm_bias), d, f"vision.{name}", depth)


def _plain_mlp(d_ff: int) -> Mlp:
    return Mlp(d_ff, gated=False, bias=True)


def _plain_blocks(v: Fields, d: int) -> Section:
    """The most common form: layer norms and an MLP without a gate, biases everywhere."""
    heads = v.count("vt_num_attention_heads", "num_attention_heads", "num_heads")
    d_ff = v.count("vt_intermediate_size", "intermediate_size")
    return _blocks(v, d, heads, _plain_mlp(d_ff), v.count("vt_num_hidden_layers", "num_hidden_layers", "depth"))


def _side(v: Fields) -> tuple[int, int]:
    """The side of a patch, and how many of them an image's side has."""
    sizes: list[int] = []
    for name in ("patch_size", "image_size"):
        size = v.value(name)
        if isinstance(size, list) and size and size.count(size[0]) == len(size):  # [448, 448]: height and width
            size = size[0]
        sizes.append(Fields({name: size}, {}, v.what).count(name))
    return sizes[0], sizes[1] // sizes[0]  # what is over is not seen


def _whole_side(v: Fields) -> tuple[int, int]:
    """The same where patches must cover the image."""
    patch = v.count("patch_size")
    return patch, v.split_evenly(v.count("image_size"), patch, "an image")


def _clip(v: Fields, d: int, sides: tuple[int, int]) -> tuple[Section, ...]:
    """A class token, learnt positions, norms around the layers."""
    patch, side = sides
    pixels = v.count("num_channels") * patch**2
    return (
        # a position for each patch and one for the class token
        patches(d, pixels, positions=side**2 + 1, class_token=True, norm=True, norm_bias=True),
        _plain_blocks(v, d),
        norm(d, "after", bias=True),
    )


def _siglip(v: Fields, d: int, sides: tuple[int, int]) -> tuple[Section, ...]:
    """SigLIP without its head."""
    patch, side = sides
    v.must_be("vision_use_head", False)
    return (
        patches(d, v.count("num_channels") * patch**2, bias=True, positions=side**2),
        _plain_blocks(v, d),
        norm(d, "after", bias=True),
    )


_EYES = {"clip_vision_model": _clip, "siglip_vision_model": _siglip}


def _qwen_patches(v: Fields, d: int, **options: Any) -> Section:
    """Qwen's patches span some frames."""
    side = v.count("patch_size", "spatial_patch_size")
    pixels = v.count("in_channels", "in_chans") * v.count("temporal_patch_size") * side**2
    return patches(d, pixels, **options)


def qwen3_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen3-VL and Qwen 3.5: learnt positions, layer norms, a merger, and further mergers for deep features."""
    d, merge, out = v.count("hidden_size"), v.count("spatial_merge_size") ** 2, v.count("out_hidden_size")
    deep, sizes = len(v.numbers("deepstack_visual_indexes") or []), (merge * d, merge * d, out)
    sections = (
        _qwen_patches(v, d, bias=True, positions=v.count("num_position_embeddings")),
        _plain_blocks(v, d),
        bridge(sizes, norm_size=d),
    )
    if not deep:
        return sections
    # DeepStack: features of these layers go to the text's first layers, each through a merger of its own, whose norm
    # is after the merge and so `merge` times as wide
    return (*sections, bridge(sizes, "deep", norm_size=merge * d, repeat=deep))


def qwen25_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen2.5-VL: RMS norms and a gated MLP."""
    d, merge = v.count("hidden_size"), v.count("spatial_merge_size") ** 2
    mlp = Mlp(v.count("intermediate_size"), bias=True)
    return (
        _qwen_patches(v, d),
        _blocks(v, d, v.count("num_heads"), mlp, v.count("depth"), norm_bias=False),
        bridge((merge * d, merge * d, v.count("out_hidden_size")), norm_size=d, norm_bias=False),
    )


def qwen2_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """Qwen2-VL: the tower's width is `embed_dim`, the text's `hidden_size`."""
    # merge x merge patches become one token of the text
    d, merge = v.count("embed_dim"), v.count("spatial_merge_size") ** 2
    return (
        _qwen_patches(v, d),
        _blocks(v, d, v.count("num_heads"), _plain_mlp(v.count("mlp_ratio") * d), v.count("depth")),
        bridge((merge * d, merge * d, v.count("hidden_size")), norm_size=d),
    )


def siglip_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Gemma 3: SigLIP without its head, pooled and projected."""
    d = v.count("hidden_size")
    return (*_siglip(v, d, _whole_side(v)), bridge((d, text), bias=False, norm_size=d, norm_bias=False))


def pixtral_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """Mistral 3: Pixtral's gated tower, its patches merged four to one."""
    d, patch = v.counts("hidden_size", "patch_size")
    n_heads, merge = v.count("num_attention_heads"), outer.count("spatial_merge_size") ** 2
    v.must_be("head_dim", d // n_heads)
    bias = outer.flag("multimodal_projector_bias")
    depth, mlp = v.count("num_hidden_layers"), Mlp(v.count("intermediate_size"))
    return (
        patches(d, v.count("num_channels") * patch**2, norm=True),
        _blocks(v, d, n_heads, mlp, depth, norm_bias=False, qkv_bias=False, out_bias=False),
        bridge((merge * d, d), "merger", bias=False),
        bridge((d, text, text), bias=bias, norm_size=d, norm_bias=False),
    )


def llama4_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Llama 4: a class token, learnt positions, patches shuffled together."""
    d, out = v.counts("hidden_size", "projector_output_dim")
    v.must_be("projector_input_dim", out)
    bias = v.flag("multi_modal_projector_bias")
    return (
        *_clip(v, d, _whole_side(v)),
        bridge((v.count("intermediate_size"), out, out), "adapter", bias=False),
        bridge((v.count("vision_output_dim"), text), bias=bias),
    )


def moonvit_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """Kimi K2.5's MoonViT: learnt positions in a square, fixed ones in time, a merging bridge."""
    d = v.count("vt_hidden_size", "hidden_size")
    # the learnt grid has as many positions as height times width
    sides = v.count("init_pos_emb_height", "pos_emb_height") * v.count("init_pos_emb_width", "pos_emb_width")
    merge = v.numbers("merge_kernel_size") or [2, 2]
    if len(merge) != 2:
        raise InputError(f"{v.what} has a merge_kernel_size of {len(merge)} numbers; 2 are understood.")
    v.must_be("mm_hidden_size", d)
    outer.must_be("projection_hidden_size", d)
    wide = merge[0] * merge[1] * d
    return (
        patches(d, 3 * v.count("patch_size") ** 2, bias=True, positions=sides),
        _plain_blocks(v, d),
        norm(d, "after", bias=True),
        bridge((wide, wide, text), norm_size=d),
    )


def gemma4_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Gemma 4: learnt positions along both sides, gated blocks with norms all around, a plain projection."""
    d, patch, bias = v.count("hidden_size"), v.count("patch_size"), v.flag("attention_bias")
    sizes = v.counts("num_attention_heads", "num_key_value_heads", "head_dim")
    v.must_be("global_head_dim", None, sizes[-1])
    mixer = Attention(*sizes, qkv_bias=bias, out_bias=bias, qk_norm="head", v_norm=True)
    layer = Layer(mixer, Mlp(v.count("intermediate_size")), "sandwich")
    return (
        # one table for rows and one for columns
        patches(d, 3 * patch**2, positions=2 * v.count("position_embedding_size")),
        layer_section(layer, d, "vision.blocks", v.count("num_hidden_layers")),
        bridge((d, text), bias=False),
    )


def llava_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """LLaVA 1.5: CLIP or SigLIP, and two matrices over the features of one layer or several."""
    kind = v.text("model_type") or "clip_vision_model"
    if kind not in _EYES:
        raise InputError(f"its vision_config is a {kind}, which is not one of {', '.join(_EYES)}.")
    d, layers = v.count("hidden_size"), outer.value("vision_feature_layer")
    # the features of several layers are concatenated
    wide = d * len(layers) if isinstance(layers, list) else d
    bias = outer.value("multimodal_projector_bias") is None or outer.flag("multimodal_projector_bias")
    return (*_EYES[kind](v, d, _side(v)), bridge((wide, text, text), bias=bias))


def llava_next_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """LLaVA-NeXT and OneVision: also a learnt end of a row of patches."""
    return (*llava_tower(v, outer, text), numbers("newline", text))


def internvl_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """InternViT, its halves scaled by learnt vectors, patches shuffled four to one; of InternVL's own files and of
    transformers'."""
    d, heads, (patch, side) = v.count("hidden_size"), v.count("num_attention_heads"), _side(v)
    norms = "all" if v.flag("use_qk_norm", "qk_normalization") else ""
    layered, bias = v.value("norm_type") in (None, "layer_norm"), v.flag("attention_bias", "qkv_bias")
    mlp = _plain_mlp(v.count("intermediate_size"))
    depth, pooled = v.count("num_hidden_layers"), v.value("use_mean_pooling") in (None, True)
    sections = [
        # a position for each patch and one for the class token
        patches(d, v.count("num_channels") * patch**2, bias=True, positions=side**2 + 1, class_token=True),
        _blocks(v, d, heads, mlp, depth, norm_bias=layered, qkv_bias=bias, qk_norm=norms),
        numbers("scales", 2 * d, depth),  # ls1 and ls2: one vector for each half of a layer
    ]
    if not pooled:  # with mean pooling, the last norm is replaced by an identity
        sections.append(norm(d, "after", bias=True))
    return (*sections, bridge((4 * d, text, text), norm_size=4 * d))


def glm4v_tower(v: Fields, _outer: Fields, _text: int) -> tuple[Section, ...]:
    """GLM-4.1V and 4.5V: a gated tower as wide inside as the text, patches merged by a convolution, a gated merger."""
    d, out, (patch, side) = v.count("hidden_size"), v.count("out_hidden_size"), _side(v)
    pixels = v.count("in_channels") * v.count("temporal_patch_size") * patch**2
    merge, heads, wide = v.counts("spatial_merge_size", "num_heads", "intermediate_size")
    depth, bias = v.count("depth"), v.flag("attention_bias")
    return (
        patches(d, pixels, bias=True, positions=side**2, norm=True),
        _blocks(v, d, heads, Mlp(out), depth, norm_bias=False, qkv_bias=bias, out_bias=False),
        norm(d, "after", bias=False),
        bridge((merge**2 * d, out), "downsample"),  # a convolution with stride `merge`
        bridge((out, out), "merger", bias=False),
        norm(out, "merged", bias=True),
        layer_section(Layer(None, Mlp(wide), norm_weight=False), out, "vision.gated", 1),
    )


def mllama_tower(v: Fields, _outer: Fields, text: int) -> tuple[Section, ...]:
    """Llama 3.2 Vision: learnt positions of patches, of tiles and of tiles' shapes, layers of a tile
    and of all tiles."""
    d, tiles, (patch, side) = v.count("hidden_size"), v.count("max_num_tiles"), _side(v)
    shapes = v.value("supported_aspect_ratios")
    # 8 shapes of up to 4 tiles; one row more stands for padding
    count = (len(shapes) if isinstance(shapes, list) else 8) + 1
    positions, heads = side**2 + 1, v.count("attention_heads", "num_attention_heads")
    mlp, everywhere = _plain_mlp(v.count("intermediate_size")), v.count("num_global_layers")
    bare: dict[str, Any] = {"qkv_bias": False, "out_bias": False}
    return (
        patches(
            d, v.count("num_channels") * patch**2, positions=positions, class_token=True, norm=True, norm_bias=True
        ),
        # for each shape and tile: one vector per position and one before and one after the layers; three gates
        numbers("tiles", count * tiles * d * (positions + 2) + 3),
        _blocks(v, d, heads, mlp, v.count("num_hidden_layers"), **bare),
        norm(d, "after", bias=True),
        _blocks(v, d, heads, mlp, everywhere, "global", **bare),
        numbers("gates", 2, everywhere),
        bridge((v.count("vision_output_dim"), text)),
    )


def minimax_tower(v: Fields, outer: Fields, text: int) -> tuple[Section, ...]:
    """MiniMax M3: patches over two frames, each projected to the text's width and then merged four to one."""
    d, inside, merge = v.count("hidden_size"), outer.count("projector_hidden_size"), v.count("spatial_merge_size") ** 2
    pixels = v.count("num_channels") * v.count("temporal_patch_size") * v.count("patch_size") ** 2
    return (
        patches(d, pixels, norm=True, norm_bias=True),
        _plain_blocks(v, d),
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
    return (
        patches(d, v.count("num_channels") * patch**2, positions=side**2, norm=True, norm_bias=True),
        _blocks(v, d, heads, _plain_mlp(int(d * ratio)), depth),
        numbers("scales", 2 * d, depth),
        # a convolution of 3 x 3 as a matrix from nine patches to one
        bridge((9 * d, 2 * d), "downsample1"),
        bridge((18 * d, 4 * d), "downsample2"),
        bridge((4 * d, text), bias=outer.flag("projector_bias")),
    )


TOWERS: dict[str, Tower] = {
    "qwen2": qwen2_tower,
    "qwen25": qwen25_tower,
    "qwen3": qwen3_tower,
    "siglip": siglip_tower,
    "uncounted": uncounted,
    "gemma4": gemma4_tower,
    "pixtral": pixtral_tower,
    "llama4": llama4_tower,
    "moonvit": moonvit_tower,
    "llava": llava_tower,
    "llava_next": llava_next_tower,
    "internvl": internvl_tower,
    "glm4v": glm4v_tower,
    "mllama": mllama_tower,
    "minimax": minimax_tower,
    "step": step_tower,
}
"""By the names of `towers.toml`."""
