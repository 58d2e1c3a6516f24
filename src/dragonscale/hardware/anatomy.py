"""The parts of a chip, counted: cores, vector units, ALUs, matrix units, and what the parts imply.

A GPU is a hundred small cores (SMs) and a TPU one or two large ones, but each has the same organs: cores with vector
units made of ALUs, matrix units, a scratchpad and registers, around one main memory. Peak rates follow from the counts
and a clock, which is how a datasheet is checked.

>>> from dragonscale.hardware.catalogue import load_chip
>>> alus(load_chip("h100")), alus(load_chip("v5p"))
(16896, 8192)
>>> counterpart("SM")
'TensorCore'
"""

from dragonscale.errors import InputError, unknown
from dragonscale.hardware.chip import Chip
from dragonscale.numbers import Number, ceil, minimum

PARTS: dict[str, dict[str, str]] = {
    "gpu": {
        "core": "SM",
        "vector unit": "Warp Scheduler",
        "ALU": "CUDA Core",
        "scratchpad": "SMEM",
        "matrix unit": "Tensor Core",
        "main memory": "HBM",
    },
    "tpu": {
        "core": "TensorCore",
        "vector unit": "VPU",
        "ALU": "VPU ALU",
        "scratchpad": "VMEM",
        "matrix unit": "MXU",
        "main memory": "HBM",
    },
}
"""What each kind of chip calls its parts, by what they do."""

WARP = 32
"""Threads that a GPU runs in lockstep."""


def counterpart(part: str, source: str = "gpu", target: str = "tpu") -> str:
    """What the other kind of chip calls a part.

    >>> counterpart("VMEM", source="tpu", target="gpu")
    'SMEM'
    """
    roles = {name: role for role, name in PARTS[source].items()}
    if part not in roles:
        raise unknown(f"part of a {source.upper()} called", part, roles)
    return PARTS[target][roles[part]]


def _count(chip: Chip, *names: str) -> int:
    missing = [name for name in names if name not in chip.structure]
    if missing:
        raise InputError(f"The file of {chip.title} does not say structure.{missing[0]}.")
    result = 1
    for name in names:
        result *= int(chip.structure[name])
    return result


def cores(chip: Chip) -> int:
    """Cores that run their own instructions: SMs of a GPU, TensorCores of a TPU."""
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


def vector_flops(chip: Chip, clock: Number | None = None, fused: bool = False) -> Number:
    """fp32 FLOP/s of the ALUs at a clock (the boost clock if none is given). A `fused` multiply-add counts as two.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> vector_flops(load_chip("h100"))
    33454080000000.0
    """
    rate: Number = chip.structure["clock"] if clock is None else clock
    return alus(chip) * rate * (2 if fused else 1)


def implied_clock(chip: Chip, rate: Number, fused: bool = True) -> Number:
    """The clock at which the ALUs reach an fp32 rate."""
    return rate / (alus(chip) * (2 if fused else 1))


def matrix_flops_per_cycle(chip: Chip, dtype: str = "bf16", clock: Number | None = None) -> Number:
    """FLOPs that each matrix unit does in a cycle, from the chip's peak rate and the clock behind it."""
    default = chip.structure.get("tensor_clock", chip.structure.get("clock"))
    rate: Number = default if clock is None else clock
    return chip.peak(dtype) / (matrix_units(chip) * rate)


def cube_side(flops_per_cycle: Number) -> Number:
    """The side n of the n x n x n product with that many FLOPs: 8 for an H100's 1,024.

    >>> round(cube_side(1024), 6)
    8.0
    """
    return (flops_per_cycle / 2) ** (1 / 3)


def resident_warps(chip: Chip, registers_per_thread: Number) -> Number:
    """Warps of a GPU that fit on one SM at once: its registers are dealt out to their threads.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> resident_warps(load_chip("h100"), 256), resident_warps(load_chip("h100"), 16)
    (8.0, 64)
    """
    return minimum(_count(chip, "registers_per_sm") / (WARP * registers_per_thread), _count(chip, "warps_per_sm"))


def cores_filled(chip: Chip, threads: Number) -> Number:
    """SMs that so many independent elements keep busy, one per ALU; the rest of the chip waits.

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> cores_filled(load_chip("h100"), 1024)
    8
    """
    return minimum(ceil(threads / (alus(chip) / cores(chip))), cores(chip))


def chips_to_hold(chip: Chip, size: Number, whole: int = 1) -> Number:
    """Chips whose main memory holds `size` bytes, rounded up to a multiple of `whole` (a node, say).

    >>> from dragonscale.hardware.catalogue import load_chip
    >>> chips_to_hold(load_chip("h100"), 700e9), chips_to_hold(load_chip("h100"), 700e9, whole=8)
    (9, 16)
    """
    return ceil(size / chip.hbm.capacity / whole) * whole


def flops_per_usd(chip: Chip, dtype: str = "bf16") -> float:
    """FLOPs at the peak rate for one dollar of the chip's hourly price."""
    if chip.price is None:
        raise InputError(f"The file of {chip.title} gives no price; add one as price = '$2/h'.")
    return chip.peak(dtype) * 3600 / chip.price


def abstract_chip(peak: Number, network: Number, title: str = "a chip", reduces: bool = False) -> Chip:
    """A chip that is only two letters: `peak` FLOP/s and `network` bytes per second one way to any other chip.

    Rules of parallelism are solved on it as formulas: put in SymPy symbols and get the book's C and W back.
    """
    from dragonscale.hardware.chip import Level, Memory, Tree

    tree = Tree((Level("network", 0, network, 0.0, reduces),))
    return Chip("abstract", title, "gpu", {"bf16": peak}, {}, {"hbm": Memory(0.0)}, tree)
