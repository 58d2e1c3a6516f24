"""Chips by the names that drivers give them, and slices of so many.

>>> chip_called("NVIDIA H100 80GB HBM3"), chip_called("NVIDIA A100-SXM4-40GB"), chip_called("AMD Instinct MI300X")
('h100', 'a100-40gb', 'mi300x')
>>> slice_for("h100", "", 16), slice_for("h100:8", "", 16), slice_for("", "NVIDIA GB200", 4), slice_for("", "", 4)
('h100:16', 'h100:8', 'gb200:4', '')
"""

from typing import Any

from dragonscale.physics.hardware import chip_names
from dragonscale.physics.hardware.catalogue import is_chip


def chip_called(device: str) -> str:
    """The chip of the catalogue that a device is; empty where it is none."""
    text = device.lower().replace(" ", "").replace("-", "")
    found = [name for name in chip_names() if all(part in text for part in name.split("-"))]
    return max(found, key=len, default="")


def slice_for(on: Any, device: str, chips: int) -> Any:
    """The slice that was given; a chip alone, or the log's device, with the run's number of chips."""
    where = on or chip_called(device)
    if isinstance(where, str) and chips and is_chip(where.strip()):
        return f"{where.strip()}:{chips}"
    return where
