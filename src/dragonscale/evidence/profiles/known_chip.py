"""The chip of our data that a profile was recorded on: from the name that its driver or profiler gives it.

>>> [chip_of(DeviceText(name, "gpu")) for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla V100")]
['h200', 'h100', 'v100']
>>> [chip_of(DeviceText(name, "tpu")) for name in ("TPU v6 Lite", "TPU v5 lite", "TPU v5p", "TPU v4", "TPU7x")]
['v6e', 'v5e', 'v5p', 'v4', 'tpu7x']
>>> chip_of(DeviceText("NVIDIA A100-SXM4", "gpu", memory_bytes=40e9))
'a100-40gb'
"""

import re

from dragonscale.evidence.profiles.recording import DeviceText
from dragonscale.hardware import chip_names, load_chip

_TPU = re.compile(r"(?i)tpu\s*v?(\d+)\s*(lite|e|p|i|x)?")
_TPU_ALIASES = {"5": "v5p", "6": "v6e", "7": "tpu7x", "7x": "tpu7x", "5lite": "v5e", "6lite": "v6e", "4lite": "v4i"}


def chip_of(device: DeviceText) -> str:
    """The chip's name; empty where it is none of ours."""
    found = _TPU.search(device.name)
    if device.kind == "tpu" or found:
        return _tpu(device.name)
    text = re.sub(r"[\s_]", "", device.name.lower()).replace("-", "")
    known = [name for name in chip_names() if all(part in text for part in name.split("-"))]
    best = max(known, key=len, default="")
    if not best or not device.memory_bytes:
        return best
    # the same name with several memories: the one whose capacity is nearest
    kin = [name for name in chip_names() if name.split("-")[0] == best.split("-")[0]]
    wanted = device.memory_bytes
    nearest = min(kin, key=lambda name: abs(load_chip(name).hbm.capacity - wanted))
    # drivers report a little less than what is sold
    return nearest if abs(load_chip(nearest).hbm.capacity / wanted - 1) < 0.15 else best


def _tpu(name: str) -> str:
    found = _TPU.search(name)
    if found is None:
        return ""
    number, ending = found.group(1), (found.group(2) or "").lower()
    for guess in (_TPU_ALIASES.get(number + ending, ""), f"v{number}{ending}", f"v{number}"):
        if guess in chip_names():
            return guess
    return ""
