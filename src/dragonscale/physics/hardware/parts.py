"""The parts of a chip, counted, and the peak rates that follow from them.

A GPU is a hundred small cores (SMs) and a TPU one or two large ones, but each has the same organs: cores with vector
units made of ALUs, matrix units, a scratchpad and registers, around one main memory. A rate of a datasheet should
follow from the counts and a clock, and where it does not, one of the two is misread: the v6e and the TPU7x publish
twice what their two MXUs a core would give (see the notes in their files).

>>> from dragonscale.physics.hardware.catalogue import load_chip
>>> alus(load_chip("h100")), alus(load_chip("v5p"))
(16896, 8192)
>>> structural_peak(load_chip("v5e")), load_chip("v5e").peak("bf16")
(196608000000000.0, 197000000000000.0)
"""

import math

from dragonscale.errors import InputError
from dragonscale.physics.hardware.chip import Chip
from dragonscale.tables import beside

PARTS: dict[str, dict[str, str]] = beside(__file__, "parts.toml")
"""What each kind of chip calls its parts, by what they do."""


def _count(chip: Chip, *names: str) -> int:
    missing = [name for name in names if name not in chip.structure]
    if missing:
        raise InputError(f"The file of {chip.title} does not say structure.{missing[0]}.")
    return math.prod(int(chip.structure[name]) for name in names)


def cores(chip: Chip) -> int:
    """Cores that run their own instructions: SMs of a GPU, TensorCores of a TPU. Cloud names of v2
    to v4 and v5p count these: `v5p-8` is 4 chips."""
    return _count(chip, "sms" if chip.kind == "gpu" else "cores")


def vector_units(chip: Chip) -> int:
    """Vector instructions that the chip issues in one cycle, each over its own lanes: warp schedulers, or VPU slots."""
    return cores(chip) * _count(chip, "schedulers_per_sm" if chip.kind == "gpu" else "alus_per_lane")


def alus(chip: Chip) -> int:
    """fp32 ALUs of the whole chip."""
    each = ("alus_per_sm",) if chip.kind == "gpu" else ("sublanes", "lanes", "alus_per_lane")
    return cores(chip) * _count(chip, *each)


def matrix_units(chip: Chip) -> int:
    """Tensor Cores or MXUs of the whole chip."""
    return cores(chip) * _count(chip, "tensor_cores_per_sm" if chip.kind == "gpu" else "mxus_per_core")


def matrix_tile(chip: Chip) -> tuple[int, ...]:
    """The sides of one MXU: every cell multiplies and adds once a cycle, and smaller weights are padded up to it.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> matrix_tile(load_chip("v5e")), matrix_tile(load_chip("v6e"))
    ((128, 128), (256, 256))
    """
    if "mxu" not in chip.structure:
        raise InputError(f"{chip.title} is not described as systolic arrays (structure.mxu); a TPU is.")
    return tuple(int(side) for side in chip.structure["mxu"])


def structural_peak(chip: Chip, unit: str = "matrix") -> float:
    """FLOP/s of all parts at their clock, to hold against `chip.peak`: bf16 of the matrix units or
    fp32 of the ALUs (a GPU's multiply and add at once)."""
    clock = chip.structure.get("clock", 0.0)
    if unit == "vector":
        return alus(chip) * clock * (2 if chip.kind == "gpu" else 1)
    if chip.kind == "gpu":
        each = _count(chip, "flops_per_cycle_per_tensor_core")
        return matrix_units(chip) * each * chip.structure.get("tensor_clock", clock)
    rows, columns = matrix_tile(chip)
    return matrix_units(chip) * 2 * rows * columns * clock
