"""Every model type that can be read, and the one function that reads it."""

from collections.abc import Callable

from dragonscale.models.huggingface import classic, deepseek, dense, dense_first, hybrid, moe, statespace
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.transformer import Transformer

FAMILIES: dict[str, Callable[[Fields], Transformer]] = {
    **dense.FAMILIES,
    **classic.FAMILIES,
    **moe.FAMILIES,
    **dense_first.FAMILIES,
    **deepseek.FAMILIES,
    **hybrid.FAMILIES,
    **statespace.FAMILIES,
    "qwen2_vl_text": dense.qwen2,
    "qwen2_5_vl_text": dense.qwen2,
    "qwen3_vl_text": dense.qwen3,
    "qwen3_vl_moe_text": moe.qwen3_moe,
}
