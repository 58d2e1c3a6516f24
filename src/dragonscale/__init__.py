"""Dragonscale: how a Transformer behaves on TPUs and GPUs, and how to split it over many chips.

    import dragonscale as ds
    run = ds.train("llama3-70b", on="h100:512", batch="4M", seq=8192, tokens="15T")
    run.plot("time")

The names below load on first use, so that `import dragonscale` is fast and needs neither NumPy, SymPy nor JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; at run time `__getattr__` loads it
    from dragonscale.library.chips import chips as chips
    from dragonscale.library.collective import collective as collective
    from dragonscale.library.compare import compare as compare
    from dragonscale.library.estimate import estimate as estimate
    from dragonscale.library.explain import explain as explain
    from dragonscale.library.model import model as model
    from dragonscale.library.roofline import roofline as roofline
    from dragonscale.library.serve import serve as serve
    from dragonscale.library.shard import shard as shard
    from dragonscale.library.simulate import simulate as simulate
    from dragonscale.library.sweep import sweep as sweep
    from dragonscale.library.train import train as train
    from dragonscale.library.validate import validate as validate
    from dragonscale.library.verify import verify as verify

_HOMES = {
    "dragonscale.library.compare": ("compare",),
    "dragonscale.library.estimate": ("estimate",),
    "dragonscale.library.model": ("model",),
    "dragonscale.library.sweep": ("sweep",),
    "dragonscale.library.serve": ("serve",),
    "dragonscale.library.simulate": ("simulate",),
    "dragonscale.library.train": ("train",),
    "dragonscale.library.validate": ("validate",),
    "dragonscale.library.verify": ("verify",),
    "dragonscale.library.roofline": ("roofline",),
    "dragonscale.library.shard": ("shard",),
    "dragonscale.library.collective": ("collective",),
    "dragonscale.library.explain": ("explain",),
    "dragonscale.library.chips": ("chips",),
    "dragonscale.errors": ("InputError",),
    "dragonscale.hardware": ("Chip", "Slice", "chip_names", "load_chip", "parse_slice"),
    "dragonscale.notation": ("Array", "Einsum", "parse_array", "parse_chain", "parse_einsum"),
    "dragonscale.rooflines": ("Cost", "Rates", "attainable", "crossovers", "einsum_cost", "rates_of", "symbol"),
    "dragonscale.collectives": ("Options", "Ring", "Rings", "Switches", "Wide", "collective_time", "wire_bytes"),
    "dragonscale.sharding": ("Mesh", "backward", "make_mesh", "natural_mesh", "reshard", "strategies"),
    "dragonscale.models": ("Transformer", "count_parameters", "load_model", "model_names"),
    "dragonscale.units": ("parse", "render"),
}
_JAX_HOMES = {  # these need the extra `jax`, and a star import must not: they are not in __all__
    "dragonscale.runtime.checkpoint": ("load_weights",),
    "dragonscale.runtime.safetensors": ("SafeTensors",),
    "dragonscale.runtime.collective_matmul": ("collective_matmul",),
    "dragonscale.runtime.ring_attention": ("balanced_order", "ring_attention"),
    "dragonscale.runtime.weight_stationary": ("weight_stationary_mlp",),
}
_HOME = {name: home for home, names in (*_HOMES.items(), *_JAX_HOMES.items()) for name in names}
__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "closed_forms":  # a package of its own: the book's formulas by name
        return import_module("dragonscale.closed_forms")
    if name not in _HOME:
        raise AttributeError(f"module 'dragonscale' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "closed_forms"])
