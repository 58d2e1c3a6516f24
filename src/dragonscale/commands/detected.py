"""The slice of this machine's devices, by the names and memories that their drivers give.

>>> slice_of([Device("NVIDIA GeForce RTX 3090", 25769803776.0)] * 2)
DetectedSlice(on='rtx3090:2', sentence='Detected 2 x NVIDIA GeForce RTX 3090, read as rtx3090:2.')
>>> slice_of([Device("Apple M2 Pro", 17179869184.0)]).on
'm2pro-16gb:1'
"""

import importlib.util
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.commands.doctor import devices
from dragonscale.errors import InputError
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.driver_names import chip_named, nearest_chip

NAME_IT = "name a chip instead: dscale models --on 'RTX 4090'"


@dataclass(frozen=True)
class Device:
    """A device as its driver names it, and its bytes of memory; None where that is not said."""

    name: str
    memory_bytes: float | None = None


@dataclass(frozen=True)
class DetectedSlice:
    """A slice as `--on` takes it, and what was seen."""

    on: str
    sentence: str


def detected_slice() -> DetectedSlice:
    """The slice of this machine; one sentence where none can be told."""
    return slice_of(_nvidia() or _apple() or _by_jax())


def slice_of(reported: Sequence[Device]) -> DetectedSlice:
    """The slice of the devices that were seen. Of several kinds those count that have the most memory together."""
    if not reported:
        raise InputError(
            "No accelerator was detected (nvidia-smi lists none, this is no Mac with Apple's silicon, and JAX has no "
            f"device); {NAME_IT}."
        )
    groups: dict[str, list[Device]] = {}
    for device in reported:
        groups.setdefault(chip_named(device.name, device.memory_bytes), []).append(device)
    groups.pop("", None)
    if not groups:
        nearest = nearest_chip(reported[0].name)
        close = f" (the nearest is {nearest})" if nearest else ""
        raise InputError(f"Detected {reported[0].name!r}, which is no chip of the catalogue{close}; {NAME_IT}.")
    chip, alike = max(groups.items(), key=lambda group: len(group[1]) * load_chip(group[0]).visible)
    on = f"{chip}:{len(alike)}"
    number = f"{len(alike)} x " if len(alike) > 1 else ""
    sentence = f"Detected {number}{alike[0].name}, read as {on}"
    if len(alike) < len(reported):
        others = dict.fromkeys(device.name for device in reported if device not in alike)
        sentence += f"; {', '.join(others)} beside it is left out"
    return DetectedSlice(on, f"{sentence}.")


def _nvidia() -> list[Device]:
    """What nvidia-smi lists, as `dscale doctor` shows it: a name and MiB."""
    reported = []
    for line in devices():
        name, comma, memory = line.rpartition(", ")
        number, _, unit = memory.partition(" ")
        if comma and unit == "MiB":
            reported.append(Device(name, float(number) * 2**20))
        elif comma:  # a device that shares the host's memory has no size of its own
            reported.append(Device(name))
    return reported


def _apple() -> list[Device]:
    """The chip of a Mac and its memory, which the GPU shares."""
    if platform.system() != "Darwin":
        return []
    command = ["sysctl", "-n", "machdep.cpu.brand_string", "hw.memsize"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        name, memory = answer.stdout.split("\n")[:2]
        return [Device(name.strip(), float(memory))]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def _by_jax() -> list[Device]:
    """The accelerators that JAX sees, where it is installed: TPUs, and GPUs without NVIDIA's tool. JAX is asked in a
    process of its own, since it logs as it starts and keeps the devices for itself."""
    if importlib.util.find_spec("jax") is None:
        return []
    script = "import jax; print(*(d.device_kind for d in jax.local_devices() if d.platform != 'cpu'), sep='\\n')"
    try:
        answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):  # a backend that does not start
        return []
    return [Device(name) for name in filter(None, answer.stdout.split("\n"))]
