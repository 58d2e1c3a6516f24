"""The chip of the catalogue that a driver's or profiler's name of a device means.

A name is read word by word: `RTX A1000` is no A100 and `H20-3e` no H20. Some words mark a variant of a chip that is
not in the catalogue (a PCIe card, an NVL pair, a laptop's GPU, a MIG partition). It has other rates, so it is not that
chip; `nearest_chip` names the one that it is a variant of.

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
>>> [chip_named(f"NVIDIA GeForce RTX {name}") for name in ("4070 Ti SUPER", "4090 Laptop GPU", "3060", "2050")]
['rtx4070ti-super', 'rtx4090-laptop', 'rtx3060', '']
>>> chip_named("Apple M3 Max", 64 * 2**30), chip_named("Apple M3 Max"), chip_named("AMD Radeon 8060S")
('m3max-64gb', 'm3max', 'strix-halo')
>>> [chip_named(name, 139.8 * 2**30) for name in ("NVIDIA H200", "NVIDIA H200 NVL")]
['h200', 'h200-nvl']
"""

import itertools
import re

from dragonscale.physics.hardware.catalogue import chip_names, is_chip, load_chip

_TPU = re.compile(r"(?i)\btpu\s*v?(\d+)\s*(lite|e|p|i|x)?")
_TPU_ALIASES = {"5": "v5p", "6": "v6e", "7": "tpu7x", "7x": "tpu7x", "5lite": "v5e", "6lite": "v6e", "4lite": "v4i"}
# Words that make a name mean another device than the chip that its other words name.
_VARIANTS = frozenset(
    {"pcie", "nvl", "laptop", "mobile", "max", "mig", "d", "fhhl", "ada", "sff", "grid", "super", "3e"}
)
_ABBREVIATIONS = {"workstation": "ws"}
_CAPACITY = re.compile(r"-\d+gb$")
_MAX_NAME = 200
# Drivers report a little less than the capacity that is sold, so capacities within this fraction are the same.
_CAPACITY_TOLERANCE = 0.15


def chip_named(name: str, memory_bytes: float | None = None) -> str:
    """The name of the device's chip in the catalogue; empty where it is not there. Chips that are sold with several
    memories are distinguished by their capacity."""
    name = name[:_MAX_NAME]
    if tpu := _TPU.search(name):
        return _tpu(tpu[1], (tpu[2] or "").lower())
    tokens = _tokens(name)
    chip = _longest_match(tokens)
    if not chip and is_chip(name):
        chip = load_chip(name).name
    if any(variant not in chip for variant in _VARIANTS.intersection(tokens)):
        return ""
    if not chip or not memory_bytes:
        return chip
    siblings = [chip]
    siblings += [other for other in chip_names() if _CAPACITY.sub("", other) == _CAPACITY.sub("", chip)]
    siblings += [f"{chip}-{capacity.lower()}" for capacity in load_chip(chip).capacities[:-1]]
    nearest = min(siblings, key=lambda sibling: abs(load_chip(sibling).hbm.capacity - memory_bytes))
    if abs(load_chip(nearest).hbm.capacity / memory_bytes - 1) < _CAPACITY_TOLERANCE:
        return nearest
    return chip


def nearest_chip(name: str) -> str:
    """The chip that a device is or is a variant of; empty where there is none."""
    return chip_named(name) or _longest_match(_tokens(name[:_MAX_NAME]))


def _tokens(name: str) -> list[str]:
    """The words of a name, and two or three that follow each other as one (`RTX 4090`, `RTX PRO 6000`)."""
    tokens = [_ABBREVIATIONS.get(word, word) for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]
    pairs = [first + second for first, second in itertools.pairwise(tokens)]
    triples = [pair + third for pair, third in zip(pairs, tokens[2:], strict=False)]
    return [*tokens, *pairs, *triples]


def _longest_match(tokens: list[str]) -> str:
    """The chip with the longest name whose every part is among the tokens: h200-nvl before h200."""
    matches = [name for name in chip_names() if set(name.split("-")) <= set(tokens)]
    return max(matches, key=len, default="")


def _tpu(generation: str, suffix: str) -> str:
    """The TPU of a generation and what follows it: `5` and `lite` are v5e."""
    for guess in (_TPU_ALIASES.get(generation + suffix, ""), f"v{generation}{suffix}", f"v{generation}"):
        if guess in chip_names():
            return guess
    return ""
