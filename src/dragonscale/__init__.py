"""Dragonscale: how a Transformer behaves on TPUs and GPUs, and how to split it over many chips.

    import dragonscale as ds
    run = ds.train("llama3-70b", on="h100:512", batch="4M", seq=8192, tokens="15T")
    run.plot("time")

The names below load on first use, so that `import dragonscale` is fast and needs neither NumPy, SymPy nor JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; at run time `__getattr__` loads it
    from dragonscale import closed_forms as closed_forms
    from dragonscale.collectives import Options as Options
    from dragonscale.collectives import Ring as Ring
    from dragonscale.collectives import Rings as Rings
    from dragonscale.collectives import Switches as Switches
    from dragonscale.collectives import Wide as Wide
    from dragonscale.collectives import collective_time as collective_time
    from dragonscale.collectives import wire_bytes as wire_bytes
    from dragonscale.errors import InputError as InputError
    from dragonscale.hardware import Chip as Chip
    from dragonscale.hardware import Slice as Slice
    from dragonscale.hardware import chip_names as chip_names
    from dragonscale.hardware import load_chip as load_chip
    from dragonscale.hardware import parse_slice as parse_slice
    from dragonscale.library.calc import calc as calc
    from dragonscale.library.calibrate import calibrate as calibrate
    from dragonscale.library.chips import chips as chips
    from dragonscale.library.collective import collective as collective
    from dragonscale.library.compare import compare as compare
    from dragonscale.library.estimate import estimate as estimate
    from dragonscale.library.explain import explain as explain
    from dragonscale.library.export import export as export
    from dragonscale.library.export import import_plan as import_plan
    from dragonscale.library.hlo import hlo as hlo
    from dragonscale.library.learn import learn as learn
    from dragonscale.library.model import model as model
    from dragonscale.library.profile import profile as profile
    from dragonscale.library.roofline import roofline as roofline
    from dragonscale.library.serve import serve as serve
    from dragonscale.library.shard import shard as shard
    from dragonscale.library.simulate import simulate as simulate
    from dragonscale.library.sweep import sweep as sweep
    from dragonscale.library.train import train as train
    from dragonscale.library.validate import validate as validate
    from dragonscale.library.verify import verify as verify
    from dragonscale.models import Transformer as Transformer
    from dragonscale.models import count_parameters as count_parameters
    from dragonscale.models import load_model as load_model
    from dragonscale.models import model_names as model_names
    from dragonscale.notation import Array as Array
    from dragonscale.notation import Einsum as Einsum
    from dragonscale.notation import parse_array as parse_array
    from dragonscale.notation import parse_chain as parse_chain
    from dragonscale.notation import parse_einsum as parse_einsum
    from dragonscale.rooflines import Cost as Cost
    from dragonscale.rooflines import Rates as Rates
    from dragonscale.rooflines import attainable as attainable
    from dragonscale.rooflines import crossovers as crossovers
    from dragonscale.rooflines import einsum_cost as einsum_cost
    from dragonscale.rooflines import rates_of as rates_of
    from dragonscale.rooflines import symbol as symbol
    from dragonscale.runtime.checkpoint import load_weights as load_weights
    from dragonscale.runtime.collective_matmul import collective_matmul as collective_matmul
    from dragonscale.runtime.ring_attention import balanced_order as balanced_order
    from dragonscale.runtime.ring_attention import ring_attention as ring_attention
    from dragonscale.runtime.safetensors import SafeTensors as SafeTensors
    from dragonscale.runtime.weight_stationary import weight_stationary_mlp as weight_stationary_mlp
    from dragonscale.sharding import Mesh as Mesh
    from dragonscale.sharding import backward as backward
    from dragonscale.sharding import make_mesh as make_mesh
    from dragonscale.sharding import natural_mesh as natural_mesh
    from dragonscale.sharding import reshard as reshard
    from dragonscale.sharding import strategies as strategies
    from dragonscale.units import parse as parse
    from dragonscale.units import render as render

    __version__: str

_HOMES = {
    "dragonscale.library.calc": ("calc",),
    "dragonscale.library.calibrate": ("calibrate",),
    "dragonscale.library.compare": ("compare",),
    "dragonscale.library.estimate": ("estimate",),
    "dragonscale.library.export": ("export", "import_plan"),
    "dragonscale.library.learn": ("learn",),
    "dragonscale.library.model": ("model",),
    "dragonscale.library.sweep": ("sweep",),
    "dragonscale.library.serve": ("serve",),
    "dragonscale.library.simulate": ("simulate",),
    "dragonscale.library.train": ("train",),
    "dragonscale.library.validate": ("validate",),
    "dragonscale.library.verify": ("verify",),
    "dragonscale.library.profile": ("profile",),
    "dragonscale.library.roofline": ("roofline",),
    "dragonscale.library.shard": ("shard",),
    "dragonscale.library.collective": ("collective",),
    "dragonscale.library.explain": ("explain",),
    "dragonscale.library.chips": ("chips",),
    "dragonscale.library.hlo": ("hlo",),
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


if not TYPE_CHECKING:  # to a type checker a name that is not above is an error

    def __getattr__(name: str) -> Any:
        if name == "closed_forms":  # a package of its own: the book's formulas by name
            return import_module("dragonscale.closed_forms")
        if name == "__version__":
            return import_module("importlib.metadata").version("dragonscale")
        if name not in _HOME:
            raise AttributeError(f"module 'dragonscale' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "closed_forms", "__version__"])
