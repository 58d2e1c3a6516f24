"""What the machine at hand is: versions of its software, its driver, the chip of ours that it is."""

import subprocess
from importlib import metadata

from dragonscale.errors import InputError
from dragonscale.hardware.catalogue import chip_names, load_chip
from dragonscale.hardware.chip import Chip


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
    spelled = device.lower().replace("nvidia", "").replace("amd instinct", "").strip()
    spelled = {"tpu v5 lite": "v5e", "tpu v6 lite": "v6e", "tpu v5": "v5p", "tpu v5p": "v5p", "tpu v4": "v4",
               "tpu v3": "v3", "tpu v2": "v2"}.get(spelled, spelled)  # fmt: skip
    words = spelled.replace("-", " ").replace("_", " ").split()
    for count in range(len(words), 0, -1):
        for start in range(len(words) - count + 1):
            name = "-".join(words[start : start + count])
            if name in chip_names():
                return load_chip(name)
    for word in words:
        try:
            return load_chip(word)
        except InputError:
            continue
    return None
