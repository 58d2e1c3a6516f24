"""What a problem tells of a chip, in words: its rates, with their names in the formulas."""

from dragonscale.course.words import amount
from dragonscale.physics.hardware import Chip, load_chip

TPUS = ("v5e", "v5p", "v6e", "v4", "tpu7x")
GPUS = ("h100", "a100", "h200", "b200", "mi300x", "gb200")
CHIPS = (*TPUS, *GPUS)


def peak_and_hbm(name: str, dtype: str = "bf16") -> tuple[Chip, float, float]:
    """A chip, its peak rate in a format and the bandwidth of its HBM."""
    chip = load_chip(name)
    return chip, float(chip.peak(dtype)), float(chip.bandwidth("hbm"))


def told(name: str, dtype: str = "bf16") -> str:
    """The two rates of a roofline, as a problem states them."""
    chip, peak, hbm = peak_and_hbm(name, dtype)
    return f"{chip.title}: {amount(peak, 'FLOP/s')} in {dtype}, HBM at {amount(hbm, 'bytes/s')}"


def has_format(name: str, dtype: str) -> bool:
    """Whether a chip multiplies a format natively."""
    return dtype in load_chip(name).matrix
