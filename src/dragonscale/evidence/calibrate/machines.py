"""What the machine at hand is: versions of its software, its driver, the chip of ours that it is."""

import subprocess
from importlib import metadata

from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.driver_names import chip_named


def versions(*packages: str) -> dict[str, str]:
    """Versions of what is installed, and of NVIDIA's driver where there is one."""
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    driver = _driver()
    return {**found, "driver": driver} if driver else found


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().split("\n")[0][:40]


def chip_of(device: str) -> Chip | None:
    """The chip that a driver's name of a device means, if it is one of ours.

    >>> [found.name if (found := chip_of(name)) else None for name in ("NVIDIA H200", "TPU v5 lite", "cpu")]
    ['h200', 'v5e', None]
    """
    named = chip_named(device)
    return load_chip(named) if named else None
