# ruff: noqa: F401  the imports for type checkers are the names that __getattr__ finds
"""Model architectures as programs of named einsums, and what can be read from them.

Names are loaded when first used, so that importing this package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragonscale.models.activations import REMAT, activation_bytes, saved_tensors
    from dragonscale.models.attention import Attention
    from dragonscale.models.catalogue import model_names
    from dragonscale.models.count import cache_bytes, parameters
    from dragonscale.models.ffn import Mlp, Moe
    from dragonscale.models.flops import Workload, forward_flops, training_flops
    from dragonscale.models.huggingface.load import load_config
    from dragonscale.models.latent import LatentAttention
    from dragonscale.models.layer import Layer
    from dragonscale.models.letters import simple
    from dragonscale.models.load import load_model
    from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token

_HOMES = {
    "activations": "REMAT activation_bytes saved_tensors",
    "attention": "Attention",
    "catalogue": "model_names",
    "count": "cache_bytes parameters",
    "ffn": "Mlp Moe",
    "flops": "Workload forward_flops training_flops",
    "huggingface.load": "load_config",
    "latent": "LatentAttention",
    "layer": "Layer",
    "letters": "simple",
    "load": "load_model",
    "transformer": "Transformer count_parameters kv_bytes_per_token",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
