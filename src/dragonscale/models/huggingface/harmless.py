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

from dragonscale.tables import beside

_SIZES = re.compile(r"(?:_dims?|_size|_rank|_heads|_width|_experts|per_tok\w*)$|^(?:num|n)_")
"""Names of sizes, which matter whatever else the name says."""

_RULES = {why: re.compile(names) for why, names in beside(__file__, "harmless.toml").items()}
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
    for why, pattern in _RULES.items():
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
