"""A TPU core from the inside: what its parts do in each cycle, and the peak rates that follow.

A core's matrix units are systolic arrays: every cell of an MXU multiplies and adds once a cycle, so an array of R x C
cells does 2·R·C FLOPs a cycle and takes in one row of the left operand. Its vector unit is a grid of sublanes and lanes
with a few ALUs at each point. The rates of a datasheet should follow from these parts and the clock, and where they do
not, one of the two is misread: the v6e and the TPU7x publish twice what their two MXUs a core would give (see the notes in
their files).
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.hardware.chip import Chip
from dragonscale.hardware.slices import Slice
from dragonscale.numbers import Number, product


def _parts(chip: Chip) -> Mapping[str, Any]:
    """The chip's structure, if it is that of a TPU."""
    if "mxu" not in chip.structure:
        raise InputError(f"{chip.title} is not described as cores with systolic arrays (structure.mxu); a TPU is.")
    return chip.structure


def systolic_flops(rows: Number, columns: Number) -> Number:
    """FLOPs of a systolic array in one cycle: each cell multiplies and adds.

    >>> systolic_flops(128, 128)
    32768
    """
    return 2 * rows * columns


def matrix_tile(chip: Chip) -> tuple[int, ...]:
    """The sides of one MXU. A weight matrix with a smaller side is padded up to it.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> matrix_tile(load_chip("v5e")), matrix_tile(load_chip("v6e"))
    ((128, 128), (256, 256))
    """
    return tuple(int(side) for side in _parts(chip)["mxu"])


def filling_side(chip: Chip) -> int:
    """The side that a tile of a matmul needs in order to keep every MXU of a core busy.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> filling_side(load_chip("v3")), filling_side(load_chip("v5p"))
    (256, 512)
    """
    return max(matrix_tile(chip)) * int(_parts(chip)["mxus_per_core"])


def vector_alus(chip: Chip) -> int:
    """ALUs of one core's vector unit.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> vector_alus(load_chip("v5p"))
    4096
    """
    parts = _parts(chip)
    return int(product(parts[name] for name in ("sublanes", "lanes", "alus_per_lane")))


def core_peak(chip: Chip, unit: str = "matrix") -> float:
    """FLOP/s of one core from its parts: bf16 of its matrix units, or fp32 of its vector unit.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> core_peak(load_chip("v5p")), core_peak(load_chip("v5p"), "vector")
    (229376000000000.0, 7168000000000.0)
    """
    parts = _parts(chip)
    if unit == "vector":
        return vector_alus(chip) * parts["clock"]
    return systolic_flops(*matrix_tile(chip)) * parts["mxus_per_core"] * parts["clock"]


def structural_peak(chip: Chip, unit: str = "matrix") -> float:
    """FLOP/s of all cores of a chip from their parts, to hold against `chip.peak`.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> structural_peak(load_chip("v5e")), load_chip("v5e").peak("bf16")
    (196608000000000.0, 197000000000000.0)
    """
    return core_peak(chip, unit) * _parts(chip)["cores"]


def slice_cores(piece: Slice) -> int:
    """Cores of all chips of a slice. Cloud names of v2 to v4 and v5p count these: `v5p-8` is 4 chips.

    >>> from dragonscale.hardware.slices import parse_slice
    >>> slice_cores(parse_slice("v5p:2x2x1"))
    8
    """
    return piece.chips * int(_parts(piece.chip)["cores"])


def reduction_shifts(width: int) -> tuple[int, ...]:
    """How far to rotate before each addition so that every one of `width` lanes ends with the sum of all.

    A vector unit has no adder across its sublanes: it rotates by half, adds, and halves again.

    >>> reduction_shifts(8)
    (4, 2, 1)
    """
    if width < 1 or width & (width - 1):
        raise InputError(f"A reduction by rotations needs a power of two; {width} is not one.")
    return tuple(1 << place for place in reversed(range(width.bit_length() - 1)))
