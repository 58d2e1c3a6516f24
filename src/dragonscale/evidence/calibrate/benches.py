"""Which software times: JAX where it is installed, PyTorch where that is, or what was asked for."""

import importlib.util

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.timing import Bench

BENCHES = ("jax", "torch")


def bench_with(name: str = "", small: bool = False) -> Bench:
    """The bench of a software; empty takes JAX if it is there, else PyTorch."""
    there = [one for one in BENCHES if importlib.util.find_spec(one)]
    if name and name not in there:
        raise InputError(f"--with {name} needs {'PyTorch' if name == 'torch' else 'JAX'} to be installed here.")
    if not there:
        raise InputError("To measure, JAX or PyTorch has to be installed: pip install 'dragonscale[jax]'.")
    if (name or there[0]) == "torch":
        from dragonscale.evidence.calibrate.torch_timing import TorchBench

        return TorchBench(small)
    from dragonscale.evidence.calibrate.jax_timing import JaxBench

    return JaxBench(small)
