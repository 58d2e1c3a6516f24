"""The shortest time an op can take on a chip: its busiest resource at datasheet rates.

Matmuls go at the matrix unit's rate for their type, the rest of the arithmetic at the vector unit's where that is known
(a transcendental function counts as one operation, so this is a bound from below), attention with a causal mask
computes half of its scores, bytes of the main memory at its bandwidth with the padding that moves along, and a
collective's bytes at everything a chip can send at once.

>>> from dragonscale.evidence.xla.op_work import work_of_text
>>> from dragonscale.physics.hardware import load_chip
>>> work = work_of_text(
...     "%d = bf16[8192,8192] dot(bf16[8192,8192] %x, bf16[8192,8192] %w), "
...     "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
... )
>>> bound = op_bound(work, load_chip("v5e"))
>>> bound.by, round(bound.seconds * 1e3, 2)
('compute', 5.58)
"""

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.xla.op_work import OpWork
from dragonscale.evidence.xla.opcodes import DTYPES
from dragonscale.physics.hardware.chip import Chip, Torus


class OpBound(msgspec.Struct, frozen=True):
    """Seconds of the busiest resource, which it is, and the seconds of each."""

    seconds: float
    by: str
    parts: dict[str, float] = {}


def op_bound(work: OpWork, chip: Chip) -> OpBound:
    """The bound of one execution."""
    parts = {
        "compute": (0.5 if work.causal else 1.0) * work.matmul_flops / matmul_rate(chip, work.dtype),
        "vector unit": (work.vector_flops + work.transcendentals) / chip.vector.get("fp32", float("inf")),
        "HBM": work.moved_bytes / chip.bandwidth("hbm"),
        "host link": _hosted(work) / (chip.pcie or float("inf")),
        "network": work.wire_bytes / sending_rate(chip),
    }
    parts = {name: seconds for name, seconds in parts.items() if seconds > 0}
    by = max(parts, key=parts.__getitem__, default="nothing")
    return OpBound(parts.get(by, 0.0), by, parts)


def matmul_rate(chip: Chip, dtype: str) -> float:
    """FLOP/s of matmuls in an element type; a chip without a rate for it (float32 on a TPU) has that of bf16."""
    named = "fp8" if dtype.startswith("f8") else DTYPES.get(dtype, "bf16")
    try:
        return chip.peak(named)
    except InputError:
        return chip.peak("bf16")


def sending_rate(chip: Chip) -> float:
    """Bytes per second that a chip can send over all its links at once: both ways along every axis of a torus, or to
    its switch."""
    network = chip.network
    return 2 * network.axes * network.link if isinstance(network, Torus) else network.levels[0].bandwidth


def _hosted(work: OpWork) -> float:
    return max(work.read_bytes.get("host", 0.0), work.written_bytes.get("host", 0.0))
