"""Arithmetic about the parts of a chip that only the book's questions need."""

from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import Level, Memory, Tree
from dragonscale.physics.hardware.parts import PARTS, alus, cores, matrix_tile, matrix_units, structural_peak
from dragonscale.physics.numbers import Number, ceil, minimum

WARP = 32
"""Threads that a GPU runs in lockstep."""


def counterpart(part: str, source: str = "gpu", target: str = "tpu") -> str:
    """What the other kind of chip calls a part."""
    for kind in (source, target):
        if kind not in PARTS:
            raise unknown("kind of chip called", kind, PARTS)
    roles = {name: role for role, name in PARTS[source].items()}
    if part not in roles:
        raise unknown(f"part of a {source.upper()} called", part, roles)
    return PARTS[target][roles[part]]


def systolic_flops(rows: Number, columns: Number) -> Number:
    """FLOPs of a systolic array in one cycle: each cell multiplies and adds."""
    return 2 * rows * columns


def filling_side(chip: Chip) -> int:
    """The side that a tile of a matmul needs in order to keep every MXU of a core busy."""
    return max(matrix_tile(chip)) * int(chip.structure["mxus_per_core"])


def vector_alus(chip: Chip) -> int:
    """ALUs of one core."""
    return alus(chip) // cores(chip)


def core_peak(chip: Chip, unit: str = "matrix") -> float:
    """FLOP/s of one core from its parts."""
    return structural_peak(chip, unit) / cores(chip)


def vector_flops(chip: Chip, clock: Number | None = None, fused: bool = False) -> Number:
    """fp32 FLOP/s of the ALUs at a clock (the boost clock if none is given), one operation a cycle as the book counts
    for TPUs; with fused=True a multiply-add counts as two, as datasheets of GPUs and `roofline` count."""
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


def resident_warps(chip: Chip, registers_per_thread: Number) -> Number:
    """Warps of a GPU that fit on one SM at once: its registers are dealt out to their threads."""
    if "registers_per_sm" not in chip.structure:
        raise InputError(f"{chip.title} has no registers that warps share; GPUs have.")
    return minimum(
        int(chip.structure["registers_per_sm"]) / (WARP * registers_per_thread), int(chip.structure["warps_per_sm"])
    )


def cores_filled(chip: Chip, threads: Number) -> Number:
    """SMs that so many independent elements keep busy, one per ALU; the rest of the chip waits."""
    return minimum(ceil(threads / (alus(chip) / cores(chip))), cores(chip))


def reduction_shifts(width: int) -> tuple[int, ...]:
    """How far to rotate before each addition so that every one of `width` lanes ends with the sum of all: a vector unit
    has no adder across its sublanes, so it rotates by half, adds, and halves again."""
    if width < 1 or width & (width - 1):
        raise InputError(f"A reduction by rotations needs a power of two; {width} is not one.")
    return tuple(1 << place for place in reversed(range(width.bit_length() - 1)))


def flops_per_usd(chip: Chip, dtype: str = "bf16") -> float:
    """FLOPs at the peak rate for one dollar of the chip's hourly price."""
    if chip.price is None:
        raise InputError(f"The file of {chip.title} gives no price; add one as price = '$2/h'.")
    return chip.peak(dtype) * 3600 / chip.price


def dense_rate(advertised: Number, kept: int = 2, of: int = 4) -> Number:
    """The FLOP/s for ordinary matrices from a figure "with sparsity", which counts the multiplications by zeros that
    are skipped when `kept` of every `of` weights are not zero."""
    return advertised * kept / of


def available_flops(chips: Number, seconds: Number, peak: Number) -> Number:
    """FLOPs that chips could have done in a time at their peak rate: `chips * seconds` may be given as chip-seconds."""
    return chips * seconds * peak


def utilisation(useful: Number, available: Number) -> Number:
    """The model FLOPs utilisation (MFU): useful FLOPs over those available."""
    return useful / available


def abstract_chip(peak: Number, network: Number, title: str = "a chip", reduces: bool = False) -> Chip:
    """A chip that is only two letters: `peak` FLOP/s and `network` bytes per second one way to any other chip. Rules of
    parallelism are solved on it as formulas: put in SymPy symbols and get the book's C and W back."""
    tree = Tree((Level("network", 0, network, 0.0, reduces),))
    return Chip("abstract", title, "gpu", {"bf16": peak}, {}, {"hbm": Memory(0.0)}, tree)
