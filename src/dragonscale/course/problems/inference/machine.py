"""What problems on serving say of a chip, and how they write sizes for a command."""

from dragonscale.course.words import a, amount
from dragonscale.physics.hardware import Chip, dtype_bytes

TPUS = ("v5e", "v5p", "v6e", "tpu7x", "v4")
CHIPS = ("v5e", "v5p", "v6e", "tpu7x", "a100", "h100", "h200", "b200", "mi300x")


def rates_told(chip: Chip, compute: str = "bf16") -> str:
    """A sentence with the peak of a format and the bandwidth of HBM."""
    peak, hbm = amount(chip.peak(compute), "FLOP/s"), amount(chip.bandwidth("hbm"), "bytes/s")
    return f"{a(chip.name).capitalize()} does {peak} in {compute} and reads {hbm} from HBM."


def bandwidth_told(chip: Chip) -> str:
    """A sentence with the bandwidth of HBM alone."""
    return f"{a(chip.name).capitalize()} reads {amount(chip.bandwidth('hbm'), 'bytes/s')} from HBM."


def size(value: float) -> str:
    """Bytes for a command or a worked step, to six digits."""
    return amount(value, "bytes", 6)


def bytes_told(dtype: str) -> str:
    """How many bytes one number of a format takes."""
    each = dtype_bytes(dtype)
    return "half a byte" if each == 0.5 else "1 byte" if each == 1 else f"{each:g} bytes"
