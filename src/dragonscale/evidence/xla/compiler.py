"""XLA's GPU compiler without a GPU.

The `jax-cuda12-plugin` wheel holds the whole compiler; it needs neither a GPU nor a driver when told what to compile
for. JAX reads its environment once, so a process that compiles starts with `ENVIRONMENT` and stays apart from others:
see `einsum_worker` for one, and `run_worker` for how to start it. The plugin greets each start with a few lines about
missing drivers on stderr; they are kept and shown only if the process fails.
"""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.xla.gpu_target import target_config
from dragonscale.hardware import Chip

FAST = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
"""Kernels compiled quickly and badly; collectives do not change."""
GPU = (
    "--xla_gpu_autotune_level=0",  # autotuning would need the GPU
    "--xla_gpu_enable_triton_gemm=false",  # also only for speed
    *FAST,
)
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(GPU), "TF_CPP_MIN_LOG_LEVEL": "3"}


def virtual_devices(count: int) -> dict[str, str]:
    """The environment of a process that runs on so many virtual CPU devices."""
    flags = (f"--xla_force_host_platform_device_count={count}", "--xla_cpu_parallel_codegen_split_count=1", *FAST)
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}


@dataclass(frozen=True)
class Ended:
    """What a process printed, and how it ended: 0 well, above with an error, below killed (XLA aborts where it finds itself
    in the wrong)."""

    output: str
    notes: str
    code: int


def run_worker(arguments: Sequence[str], given: str, environment: dict[str, str], timeout: float = 600) -> Ended:
    """Run Python in a process of its own with this environment; only an error of its own is an error here."""
    command = [sys.executable, *arguments]
    environment = os.environ | environment
    try:
        done = subprocess.run(
            command, input=given, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"XLA was still working after {timeout:.0f} s; give it fewer or smaller programs.") from None
    if done.returncode > 0:
        raise InputError(f"XLA failed in its own process (exit {done.returncode}): {done.stderr.strip()[-2000:]}")
    return Ended(done.stdout, done.stderr, done.returncode)


def devices(chip: Chip, count: int) -> list[Any]:
    """As many GPUs to compile for, in whole nodes."""
    try:
        from jax.experimental import topologies
    except ImportError:
        raise InputError("Compiling needs JAX; install dragonscale[gpu-compiler].") from None
    node = min(count, chip.host_chips)
    shape = f"1x{math.ceil(count / node)}x{node}"
    try:
        found = topologies.get_topology_desc("", "cuda", target_config=target_config(chip), topology=shape)
    except Exception as error:
        raise InputError(
            f"XLA's GPU compiler did not start ({error}); install dragonscale[gpu-compiler] and start with {ENVIRONMENT}."
        ) from error
    return list(found.devices[:count])


def compiled_text(function: Callable[..., Any], shapes: Sequence[Any], in_shardings: Any, out_shardings: Any) -> str:
    """The optimised HLO text of a function on abstract arguments; shardings are JAX's."""
    import jax

    jitted = jax.jit(function, in_shardings=in_shardings, out_shardings=out_shardings)
    text = jitted.lower(*shapes).compile().as_text()
    assert text is not None
    return text
