"""Two answers to how long a kernel takes: at the datasheet's peaks, and as an efficiency profile expects it."""

from dataclasses import dataclass

from dragonscale.hardware import Chip
from dragonscale.numbers import Number
from dragonscale.training.cost import AttentionShape


@dataclass(frozen=True)
class PeakTimer:
    """The roofline's compute term: FLOPs over the peak. Memory traffic hides under it in a bound, as the book assumes."""

    chip: Chip
    dtype: str = "bf16"

    def matmul(self, m: Number, n: Number, k: Number, batch: Number) -> Number:
        return 2 * m * n * k * batch / self.chip.peak(self.dtype)

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number) -> Number:  # noqa: ARG002
        return 2 * rows * n * k / self.chip.peak(self.dtype)

    def attention(self, flops: Number, shape: AttentionShape, backward: bool) -> Number:  # noqa: ARG002
        return flops / self.chip.peak("bf16")

    def memory(self, moved: Number) -> Number:  # noqa: ARG002
        return 0.0


@dataclass(frozen=True)
class FractionTimer:
    """A stand-in for chips without kernel measurements: fixed parts of the peaks."""

    chip: Chip
    dtype: str = "bf16"
    matmuls: float = 0.75
    scores: float = 0.5
    hbm: float = 0.85

    def matmul(self, m: Number, n: Number, k: Number, batch: Number) -> Number:
        return 2 * m * n * k * batch / (self.matmuls * self.chip.peak(self.dtype))

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number) -> Number:  # noqa: ARG002
        return 2 * rows * n * k / (self.matmuls * self.chip.peak(self.dtype))

    def attention(self, flops: Number, shape: AttentionShape, backward: bool) -> Number:  # noqa: ARG002
        return flops / (self.scores * self.chip.peak("bf16"))

    def memory(self, moved: Number) -> Number:
        return moved / (self.hbm * self.chip.bandwidth("hbm"))


def expected_timer(chip: Chip, dtype: str, stack: object) -> FractionTimer:  # noqa: ARG001
    """The timer that an expectation uses on a chip."""
    return FractionTimer(chip, dtype)
