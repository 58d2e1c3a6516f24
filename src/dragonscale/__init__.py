"""Dragonscale: how a Transformer behaves on TPUs and GPUs, and how to split it over many chips.

    import dragonscale as ds
    run = ds.train("llama3-70b", on="h100:512", batch="4M", seq=8192, tokens="15T")
    run.plot("time")

The names below load on first use, so that `import dragonscale` is fast and needs neither NumPy, SymPy nor JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; at run time `__getattr__` loads it
    from dragonscale.course import closed_forms as closed_forms
    from dragonscale.errors import InputError as InputError
    from dragonscale.faces.commands import facts, physics, planning, proof
    from dragonscale.faces.library.compare import compare as compare
    from dragonscale.faces.library.explain import explain as explain
    from dragonscale.models import Transformer as Transformer
    from dragonscale.models import count_parameters as count_parameters
    from dragonscale.models import load_model as load_model
    from dragonscale.models import model_names as model_names
    from dragonscale.physics.collectives import Options as Options
    from dragonscale.physics.collectives import Ring as Ring
    from dragonscale.physics.collectives import Rings as Rings
    from dragonscale.physics.collectives import Switches as Switches
    from dragonscale.physics.collectives import Wide as Wide
    from dragonscale.physics.collectives import collective_time as collective_time
    from dragonscale.physics.collectives import wire_bytes as wire_bytes
    from dragonscale.physics.hardware import Chip as Chip
    from dragonscale.physics.hardware import Slice as Slice
    from dragonscale.physics.hardware import chip_names as chip_names
    from dragonscale.physics.hardware import load_chip as load_chip
    from dragonscale.physics.hardware import parse_slice as parse_slice
    from dragonscale.physics.notation import Array as Array
    from dragonscale.physics.notation import Einsum as Einsum
    from dragonscale.physics.notation import parse_array as parse_array
    from dragonscale.physics.notation import parse_chain as parse_chain
    from dragonscale.physics.notation import parse_einsum as parse_einsum
    from dragonscale.physics.rooflines import Cost as Cost
    from dragonscale.physics.rooflines import Rates as Rates
    from dragonscale.physics.rooflines import attainable as attainable
    from dragonscale.physics.rooflines import crossovers as crossovers
    from dragonscale.physics.rooflines import einsum_cost as einsum_cost
    from dragonscale.physics.rooflines import rates_of as rates_of
    from dragonscale.physics.rooflines import symbol as symbol
    from dragonscale.physics.sharding import Mesh as Mesh
    from dragonscale.physics.sharding import backward as backward
    from dragonscale.physics.sharding import make_mesh as make_mesh
    from dragonscale.physics.sharding import natural_mesh as natural_mesh
    from dragonscale.physics.sharding import reshard as reshard
    from dragonscale.physics.sharding import strategies as strategies
    from dragonscale.physics.units import parse as parse
    from dragonscale.physics.units import render as render
    from dragonscale.runtime.checkpoint import load_weights as load_weights
    from dragonscale.runtime.collective_matmul import collective_matmul as collective_matmul
    from dragonscale.runtime.ring_attention import balanced_order as balanced_order
    from dragonscale.runtime.ring_attention import ring_attention as ring_attention
    from dragonscale.runtime.safetensors import SafeTensors as SafeTensors
    from dragonscale.runtime.weight_stationary import weight_stationary_mlp as weight_stationary_mlp

    __version__: str
    train = planning.train.function
    serve = planning.serve.function
    rl = planning.rl.function
    simulate = planning.simulate.function
    sweep = planning.sweep.function
    traffic = planning.traffic.function
    collective = physics.collective.function
    estimate = physics.estimate.function
    hlo = proof.hlo.function
    learn = physics.learn.function
    roofline = physics.roofline.function
    shard = physics.shard.function
    calc = facts.calc.function
    chips = facts.chips.function
    model = facts.model.function
    calibrate = proof.calibrate.function
    export = proof.export.function
    import_plan = proof.import_plan.function
    profile = proof.profile.function
    validate = proof.validate.function
    verify = proof.verify.function

_NAMES = {
    "dragonscale.faces.commands": (
        "calc calibrate chips collective estimate export hlo import_plan learn model profile rl roofline serve "
        "shard simulate sweep traffic train validate verify"
    ),
    "dragonscale.faces.library.compare": "compare",
    "dragonscale.faces.library.explain": "explain",
    "dragonscale.errors": "InputError",
    "dragonscale.physics.hardware": "Chip Slice chip_names load_chip parse_slice",
    "dragonscale.physics.notation": "Array Einsum parse_array parse_chain parse_einsum",
    "dragonscale.physics.rooflines": "Cost Rates attainable crossovers einsum_cost rates_of symbol",
    "dragonscale.physics.collectives": "Options Ring Rings Switches Wide collective_time wire_bytes",
    "dragonscale.physics.sharding": "Mesh backward make_mesh natural_mesh reshard strategies",
    "dragonscale.models": "Transformer count_parameters load_model model_names",
    "dragonscale.physics.units": "parse render",
}
_JAX_NAMES = {  # these need the extra `jax`, and a star import must not: they are not in __all__
    "dragonscale.runtime.checkpoint": "load_weights",
    "dragonscale.runtime.safetensors": "SafeTensors",
    "dragonscale.runtime.collective_matmul": "collective_matmul",
    "dragonscale.runtime.ring_attention": "balanced_order ring_attention",
    "dragonscale.runtime.weight_stationary": "weight_stationary_mlp",
}
_HOMES = {home: tuple(names.split()) for home, names in _NAMES.items()}
_JAX_HOMES = {home: tuple(names.split()) for home, names in _JAX_NAMES.items()}
_HOME = {name: home for home, names in (*_HOMES.items(), *_JAX_HOMES.items()) for name in names}
__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # to a type checker a name that is not above is an error

    def __getattr__(name: str) -> Any:
        if name == "closed_forms":  # a package of its own: the book's formulas by name
            return import_module("dragonscale.course.closed_forms")
        if name == "__version__":
            return import_module("importlib.metadata").version("dragonscale")
        if name not in _HOME:
            raise AttributeError(f"module 'dragonscale' has no attribute {name!r}")
        home = import_module(_HOME[name])
        return home.FUNCTIONS[name].function if home.__name__ == "dragonscale.faces.commands" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "closed_forms", "__version__"])
