"""Fields that no reader asked for and that cannot change a count, told by their names and values.

`inert.toml` lists the fields that are in every other config; these rules are for the ones that
nobody has listed yet. What they let pass is noted, so that a person can object. A rule must be
narrow: `rope_theta_swa` turns positions, but `qk_rope_head_dim` is a width.

>>> why_harmless("swa_rope_theta", 10000.0), why_harmless("shared_expert_size", 0)
('RoPE', 'off')
>>> why_harmless("qk_rope_head_dim", 64), why_harmless("num_experts_per_token", 8)
('', '')
"""

import re
from typing import Any

_SIZES = re.compile(r"(?:_dims?|_size|_rank|_heads|_width|_experts|per_tok\w*)$|^(?:num|n)_")
"""Names of sizes, which matter whatever else the name says."""

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (why, re.compile(pattern))
    for why, pattern in (
        ("RoPE", r"rope|rotary|(?:^|_)yarn|(?:^|_)ntk|theta|base_freq|xdrope|longrope"),
        ("a token id", r"_token_(?:ids?|index|idx|indices)$|_token_id_|_(?:start|end|pad|eos|bos)_ids?$"),
        ("how it was trained", r"drop_?(?:out|path)|_loss|loss_|_coeff?s?$|jitter|^init|_init(?:_|$)|initializer"),
        ("how it was trained", r"_std$|learning_rate|warmup|_seed$|optimizer|checkpointing|curriculum|^train|label"),
        ("a small constant", r"_eps(?:ilon)?$|softcap|_clip(?:ping)?$|^clip_|clamp|_temperature$"),
        (
            "a version or a kernel",
            r"dtype|version|_impl(?:ementation)?$|fused?_|_kernels?$|_backend$|flash|deterministic",
        ),
        ("how text is drawn", r"penalty|beam|^do_sample|^top_[pk]$|^min_p$|generation|max_new|stop_"),
        ("a name", r"(?:^|_)names?$|_name_or_path|_class$|_path$|_file$|_url$|license|^author|^description|_repo$"),
        ("the draft head", r"^mtp_|_mtp(?:_|$)|nextn|^eagle|^medusa|draft"),
    )
)
_SCALES = re.compile(r"(?:_scale|_scaling|_scaling_factor|_multipliers?|_alpha|_beta|_limit)$")
_WIDTH_SCALES = re.compile(r"dim_mult|expan|ratio|ffn|ff_|hidden")
_FUNCTIONS = re.compile(r"(?:_act|_act_fn|activation|activation_func(?:tion)?)$")
_SEEN = re.compile(
    r"(?:^|_)(?:vision|visual|image|img|video|audio|patch|pixel|frame|mm|multimodal|vit|projector|tile|crop)"
)


def why_harmless(name: str, value: Any, text_only: bool = False) -> str:
    """Why a field cannot change a count, in a word or two; empty if it could. With `text_only`
    nothing but the language model is counted, so what is said of images does not matter."""
    if is_off(value):
        return "off"
    lower = name.lower()
    if text_only and _SEEN.search(lower):
        return "of what it sees or hears"
    if _SIZES.search(lower) and not lower.endswith("rotary_dim"):
        return ""
    for why, pattern in _RULES:
        if pattern.search(lower):
            return why
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and _SCALES.search(lower) and not _WIDTH_SCALES.search(lower):
        return "a constant factor"
    if isinstance(value, str) and _FUNCTIONS.search(lower):
        return "a nonlinearity"
    return ""


def is_off(value: Any) -> bool:
    """Null, false, zero, empty, or holding nothing but these.

    >>> is_off({"a": None, "b": [0, False]}), is_off([0, 1])
    (True, False)
    """
    if isinstance(value, dict):
        return all(is_off(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_off(inner) for inner in value)
    return not value
