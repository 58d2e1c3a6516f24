"""Model architectures as programs of named einsums, and what can be read from them.

Names are loaded when first used, so that importing this package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragonscale.models.activations import REMAT, activation_bytes, saved_tensors
    from dragonscale.models.attention import Attention
    from dragonscale.models.cache import cache_bytes
    from dragonscale.models.catalogue import load_model, model_names
    from dragonscale.models.count import parameters
    from dragonscale.models.ffn import Mlp, Moe
    from dragonscale.models.flops import Workload, forward_flops, training_flops
    from dragonscale.models.huggingface.load import load_config
    from dragonscale.models.latent import LatentAttention
    from dragonscale.models.layer import Layer
    from dragonscale.models.letters import simple
    from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token

_HOMES = {
    "REMAT": "activations",
    "activation_bytes": "activations",
    "saved_tensors": "activations",
    "Attention": "attention",
    "cache_bytes": "cache",
    "load_model": "catalogue",
    "model_names": "catalogue",
    "parameters": "count",
    "Mlp": "ffn",
    "Moe": "ffn",
    "Workload": "flops",
    "forward_flops": "flops",
    "training_flops": "flops",
    "load_config": "huggingface.load",
    "LatentAttention": "latent",
    "Layer": "layer",
    "simple": "letters",
    "Transformer": "transformer",
    "count_parameters": "transformer",
    "kv_bytes_per_token": "transformer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "REMAT",
    "Attention",
    "LatentAttention",
    "Layer",
    "Mlp",
    "Moe",
    "Transformer",
    "Workload",
    "activation_bytes",
    "cache_bytes",
    "count_parameters",
    "forward_flops",
    "kv_bytes_per_token",
    "load_config",
    "load_model",
    "model_names",
    "parameters",
    "saved_tensors",
    "simple",
    "training_flops",
]
