"""The parts of a chip, counted, and the peak rates that follow from them.

A GPU has a hundred small cores (SMs) and a TPU one or two large ones, but both are built alike: cores with vector units
made of ALUs, matrix units, a scratchpad and registers, around one main memory. A datasheet's rate should follow from
the counts and a clock. Where it does not, one of the two is misread: v6e and TPU7x publish twice what their two MXUs a
core would give (see the notes in their files).

>>> from dragonscale.physics.hardware.catalogue import load_chip
>>> alus(load_chip("h100")), alus(load_chip("v5p"))
(16896, 8192)
>>> structural_peak(load_chip("v5e")), load_chip("v5e").peak("bf16")
(196608000000000.0, 197000000000000.0)
"""

from dragonscale.errors import InputError
from dragonscale.physics.hardware.chip import Chip
from dragonscale.tables import beside

PARTS: dict[str, dict[str, str]] = beside(__file__, "parts.toml")
"""What each kind of chip calls its parts, by what they do."""
# The counts of [structure] in a chip's file whose product is the number of a part: of cores in a chip, of the others in
# a core. Chips that are no GPUs are described like TPUs.
_GPU_COUNTS = {
    "cores": ("sms",),
    "vector units": ("schedulers_per_sm",),
    "matrix units": ("tensor_cores_per_sm",),
    "alus": ("alus_per_sm",),
}
_TPU_COUNTS = {
    "cores": ("cores",),
    "vector units": ("alus_per_lane",),
    "matrix units": ("mxus_per_core",),
    "alus": ("sublanes", "lanes", "alus_per_lane"),
}


def _count(chip: Chip, *names: str) -> int:
    """The product of some counts of the chip's file."""
    total = 1
    for name in names:
        if name not in chip.structure:
            raise InputError(f"The file of {chip.title} does not say structure.{name}.")
        total *= int(chip.structure[name])
    return total


def _parts(chip: Chip, part: str) -> int:
    counts = _GPU_COUNTS if chip.kind == "gpu" else _TPU_COUNTS
    return _count(chip, *counts[part])


def cores(chip: Chip) -> int:
    """Cores that run their own instructions: SMs of a GPU, TensorCores of a TPU. Cloud names of v2
    to v4 and v5p count these: `v5p-8` is 4 chips."""
    return _parts(chip, "cores")


def vector_units(chip: Chip) -> int:
    """Vector instructions that the chip issues in one cycle, each over its own lanes: warp schedulers, or VPU slots."""
    return cores(chip) * _parts(chip, "vector units")


def alus(chip: Chip) -> int:
    """fp32 ALUs of the whole chip."""
    return cores(chip) * _parts(chip, "alus")


def matrix_units(chip: Chip) -> int:
    """Tensor Cores or MXUs of the whole chip."""
    return cores(chip) * _parts(chip, "matrix units")


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
        # a CUDA core's fused multiply-add is two FLOPs a cycle; a VPU slot does one
        flops_per_cycle = 2 if chip.kind == "gpu" else 1
        return alus(chip) * flops_per_cycle * clock
    if chip.kind == "gpu":
        flops_per_cycle = _count(chip, "flops_per_cycle_per_tensor_core")
        return matrix_units(chip) * flops_per_cycle * chip.structure.get("tensor_clock", clock)
    rows, columns = matrix_tile(chip)
    # every cell of a systolic array multiplies and adds once a cycle
    return matrix_units(chip) * 2 * rows * columns * clock
