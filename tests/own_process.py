"""Python in a process of its own, for what JAX reads only once: its flags and its devices."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.xla.gpu_target import FAST


def virtual_devices(count: int) -> dict[str, str]:
    """The environment of a process that runs on so many virtual CPU devices."""
    flags = (f"--xla_force_host_platform_device_count={count}", "--xla_cpu_parallel_codegen_split_count=1", *FAST)
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}


@dataclass(frozen=True)
class Ended:
    """What a process printed, and how it ended: 0 well, above with an error, below killed (XLA aborts where it finds
    itself in the wrong)."""

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
