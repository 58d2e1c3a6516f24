"""The chip of the catalogue that a driver's or profiler's name of a device means.

A name is read word by word: `RTX A1000` is no A100 and `H20-3e` no H20. Some words tell another form of a chip than the
one in the catalogue (a PCIe card, an NVL pair, a laptop's GPU, a slice of a GPU): such a device has other rates and is
not that chip; `nearest_chip` names the one that it is a form of, for whoever wants to take it.

>>> [
...     chip_named(name)
...     for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "AMD Instinct MI300X OAM")
... ]
['h200', 'h100', 'v100', 'mi300x']
>>> [
...     chip_named(name)
...     for name in ("TPU v6 Lite", "TPU v5 lite", "TPU v5p", "TPU v4", "TPU7x", "NVIDIA GeForce RTX 4090")
... ]
['v6e', 'v5e', 'v5p', 'v4', 'tpu7x', 'rtx4090']
>>> [chip_named(name) for name in ("NVIDIA RTX A1000", "NVIDIA H20-3e", "NVIDIA H100 PCIe", "NVIDIA H800 PCIe", "cpu")]
['', 'h20-3e', 'h100-pcie', '', '']
>>> [nearest_chip(name) for name in ("NVIDIA RTX A1000", "NVIDIA H20-3e", "NVIDIA H800 PCIe", "NVIDIA H200")]
['', 'h20-3e', 'h800', 'h200']
>>> [
...     chip_named(name)
...     for name in ("NVIDIA GH200 480GB", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla T4", "NVIDIA A10G")
... ]
['gh200', 'rtxpro6000', 't4', 'a10g']
>>> [
...     chip_named(name)
...     for name in (
...         "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
...         "NVIDIA RTX 6000 Ada Generation",
...         "Apple M3 Ultra",
...     )
... ]
['rtxpro6000-ws', 'rtx6000ada', 'm3ultra']
>>> chip_named("NVIDIA A100-SXM4", 40e9), chip_named("NVIDIA A100-SXM4-80GB"), chip_named("NVIDIA A100-SXM4-40GB")
('a100-40gb', 'a100', 'a100-40gb')
"""

import itertools
import re

from dragonscale.physics.hardware.catalogue import chip_names, load_chip

_TPU = re.compile(r"(?i)\btpu\s*v?(\d+)\s*(lite|e|p|i|x)?")
_TPU_ALIASES = {"5": "v5p", "6": "v6e", "7": "tpu7x", "7x": "tpu7x", "5lite": "v5e", "6lite": "v6e", "4lite": "v4i"}
_FORMS = frozenset({"pcie", "nvl", "laptop", "mobile", "max", "mig", "d", "fhhl", "ada", "sff", "grid", "super", "3e"})
"""Words of a name that make it another device than the chip that the rest of the name means."""
_SHORT = {"workstation": "ws"}
_SIZED = re.compile(r"-\d+gb$")
_LONGEST = 200


def chip_named(name: str, memory_bytes: float | None = None) -> str:
    """The name of the chip in the catalogue; empty where the device is none of it. Chips of one name with several
    memories are told by their capacity."""
    if _TPU.search(name[:_LONGEST]):
        return _tpu(name[:_LONGEST])
    words = _words(name)
    best = _best(words)
    best = "" if any(form not in best for form in _FORMS.intersection(words)) else best
    if not best or not memory_bytes:
        return best
    plain = _SIZED.sub("", best)
    kin = [other for other in chip_names() if _SIZED.sub("", other) == plain]
    nearest = min(kin, key=lambda other: abs(load_chip(other).hbm.capacity - memory_bytes))
    # drivers report a little less than what is sold
    return nearest if abs(load_chip(nearest).hbm.capacity / memory_bytes - 1) < 0.15 else best


def nearest_chip(name: str) -> str:
    """The chip that a device is a form of; empty where there is none."""
    return chip_named(name) or _best(_words(name))


def _words(name: str) -> list[str]:
    """The words of a name, and two or three that follow each other as one (`RTX 4090`, `RTX PRO 6000`)."""
    words = [_SHORT.get(word, word) for word in re.split(r"[^a-z0-9.]+", name[:_LONGEST].lower()) if word]
    pairs = [first + second for first, second in itertools.pairwise(words)]
    return [*words, *pairs, *(pair + word for pair, word in zip(pairs, words[2:], strict=False))]


def _best(words: list[str]) -> str:
    known = [name for name in chip_names() if all(part in words for part in name.split("-"))]
    return max(known, key=len, default="")


def _tpu(name: str) -> str:
    found = _TPU.search(name)
    if found is None:
        return ""
    number, ending = found.group(1), (found.group(2) or "").lower()
    for guess in (_TPU_ALIASES.get(number + ending, ""), f"v{number}{ending}", f"v{number}"):
        if guess in chip_names():
            return guess
    return ""
