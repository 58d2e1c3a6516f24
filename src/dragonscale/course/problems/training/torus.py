"""What the problems draw from: TPUs with a torus, and how a question tells their rates."""

from dragonscale.course.closed_forms.rooflines import axis_bandwidth, wire_intensity
from dragonscale.course.words import amount, number
from dragonscale.physics.hardware import Chip, load_chip

TPUS = ("v5p", "v4", "v5e", "v6e", "tpu7x")
CUBES = ("v5p", "v4", "tpu7x")
"""Those with three axes."""
BATCHES = (2**22, 2**20, 2**21, 2**23, 2**24)
WIDTHS = (28672, 8192, 13824, 14336, 16384, 32768, 53248)


def rates(chip: Chip) -> str:
    """A chip's two rates, as a question tells them."""
    return (
        f"A {chip.name} does {amount(chip.peak('bf16'), 'FLOP/s')} in bf16 and sends {amount(axis_bandwidth(chip), 'bytes/s')} over both "
        f"directions of one axis"
    )


def alpha(chip: Chip) -> str:
    """C/W as a question tells it."""
    return f"On a {chip.name} C/W, bf16 FLOPs done while one byte crosses an axis of the torus (both directions used), is {number(wire_intensity(chip))}; collectives take V/W, without the (N-1)/N"


def torus(name: str, axes: int) -> Chip | None:
    """The chip, unless its torus has fewer axes."""
    chip = load_chip(name)
    return chip if axes <= getattr(chip.network, "axes", 0) else None
