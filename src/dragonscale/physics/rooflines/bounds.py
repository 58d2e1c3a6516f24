"""From costs to times: the roofline.

Each resource (the matrix unit, the vector unit, a memory, a mesh axis) takes its own time. If everything overlaps
perfectly the operation takes as long as the slowest resource; if nothing does, as long as all together. The truth lies
between, and the two bounds are at most as far apart as there are resources.
"""

from dataclasses import dataclass

from dragonscale.physics.numbers import Number, maximum, minimum
from dragonscale.physics.rooflines.cost import Cost, Rates

COMPUTE = ("matrix", "vector")


@dataclass(frozen=True)
class Roofline:
    """Seconds by resource, and what follows from them."""

    cost: Cost
    seconds: dict[str, Number]

    @property
    def lower(self) -> Number:
        """Perfect overlap: the slowest resource."""
        return maximum(*self.seconds.values()) if len(self.seconds) > 1 else next(iter(self.seconds.values()))

    @property
    def upper(self) -> Number:
        """No overlap: the sum."""
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

        arrays = numpy.broadcast_arrays(*self.seconds.values())
        return numpy.argmax(numpy.stack(arrays), axis=0)

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
    """The FLOP/s that an operation of this intensity can reach: the roof itself.

    >>> attainable(100, 197e12, 820e9)
    82000000000000.0
    """
    return minimum(peak, intensity * bandwidth)
