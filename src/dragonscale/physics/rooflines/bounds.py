"""From costs to bounds on time: the roofline.

Each resource (the matrix unit, the vector unit, a memory, a mesh axis) takes its own time. If everything overlaps
perfectly the operation takes as long as the slowest resource; if nothing does, as long as all together. The true time
lies between, and the two bounds differ at most by a factor of the number of resources.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number, maximum, minimum
from dragonscale.physics.rooflines.cost import Cost


@dataclass(frozen=True)
class Rates:
    """A machine's rates per second: FLOPs by (unit, dtype), bytes by memory level, bytes by mesh axis; those that are
    not given are the chip's."""

    flops: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    bytes: Mapping[str, Number] = field(default_factory=dict)
    wire: Mapping[str, Number] = field(default_factory=dict)
    chip: Chip | None = None

    def flop_rate(self, unit: str, dtype: str) -> Number:
        """FLOP/s of a unit (`matrix`, `vector`) on operands of a dtype."""
        if (unit, dtype) in self.flops:
            return self.flops[(unit, dtype)]
        if self.chip is None:
            raise InputError(f"No rate is given for {dtype} on the {unit} unit.")
        return self.chip.peak(dtype, unit)

    def byte_rate(self, level: str) -> Number:
        """Bytes per second of a memory level."""
        if level in self.bytes:
            return self.bytes[level]
        if self.chip is None:
            raise InputError(f"No bandwidth is given for {level}.")
        return self.chip.bandwidth(level)

    def wire_rate(self, axis: str) -> Number:
        """Bytes per second that a chip sends over a mesh axis."""
        if axis not in self.wire:
            raise InputError(f"No bandwidth is given for the mesh axis {axis}.")
        return self.wire[axis]


def rates_of(chip: Chip, wire: Mapping[str, Number] | None = None) -> Rates:
    """A chip's datasheet rates, with the bandwidth of each mesh axis if there are any."""
    return Rates(wire=wire or {}, chip=chip)


COMPUTE = ("matrix", "vector")
"""The resources that compute; all others move bytes."""


@dataclass(frozen=True)
class Roofline:
    """Seconds by resource, and the bounds that follow from them."""

    cost: Cost
    seconds: dict[str, Number]

    @property
    def lower(self) -> Number:
        """The time with perfect overlap: that of the slowest resource."""
        return maximum(*self.seconds.values())

    @property
    def upper(self) -> Number:
        """The time without overlap: the sum over resources."""
        return sum(self.seconds.values())

    @property
    def bound_by(self) -> str:
        """The resource that binds (plain numbers only; `binding` answers for arrays)."""
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def bound(self) -> str:
        """`compute` or `comms`."""
        return "compute" if self.bound_by in COMPUTE else "comms"

    def binding(self) -> Number:
        """For arrays: the position in `seconds` of the resource that binds, element by element."""
        import numpy

        seconds = numpy.stack(numpy.broadcast_arrays(*self.seconds.values()))  # (resources, ...)
        return numpy.argmax(seconds, axis=0)

    @property
    def flops_per_second(self) -> Number:
        """The rate that the lower bound allows."""
        return self.cost.total_flops / self.lower


def roofline(cost: Cost, rates: Rates) -> Roofline:
    """The times of a cost on a machine.

    >>> matmul = Cost(flops={("matrix", "bf16"): 1.97e12}, bytes={"hbm": 8.2e9})
    >>> result = roofline(matmul, Rates({("matrix", "bf16"): 197e12}, {"hbm": 820e9}))
    >>> result.seconds, result.lower, result.upper
    ({'matrix': 0.01, 'hbm': 0.01}, 0.01, 0.02)
    """
    seconds: dict[str, Number] = {}
    for (unit, dtype), flops in cost.flops.items():
        seconds[unit] = seconds.get(unit, 0) + flops / rates.flop_rate(unit, dtype)
    for level, moved in cost.bytes.items():
        seconds[level] = moved / rates.byte_rate(level)
    for axis, sent in cost.wire.items():
        seconds[axis] = sent / rates.wire_rate(axis)
    return Roofline(cost, seconds)


def attainable(intensity: Number, peak: Number, bandwidth: Number) -> Number:
    """The FLOP/s that an operation of this intensity can reach: the roofline itself, min(peak, intensity·bandwidth).

    >>> attainable(100, 197e12, 820e9)
    82000000000000.0
    """
    return minimum(peak, intensity * bandwidth)
