"""Cost as an algebra: the FLOPs and bytes of an operation, whatever machine runs it.

A `Cost` counts FLOPs by unit and dtype, bytes by memory level, and bytes by mesh axis. Costs add and scale; a machine's
`Rates` turn a cost into seconds per resource. The counts may be floats, arrays or symbols.

>>> matmul = Cost(flops={("matrix", "bf16"): 2e12}, bytes={"hbm": 1e9})
>>> (matmul + matmul * 2).bytes
{'hbm': 3000000000.0}

"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dragonscale.errors import InputError
from dragonscale.physics.numbers import Number

Key = TypeVar("Key")


def _sum(first: Mapping[Key, Number], second: Mapping[Key, Number]) -> dict[Key, Number]:
    """The counts of both, added up by key."""
    total = dict(first)
    for key, value in second.items():
        total[key] = total[key] + value if key in total else value
    return total


def _scaled(counts: Mapping[Key, Number], times: Number) -> dict[Key, Number]:
    return {key: value * times for key, value in counts.items()}


@dataclass(frozen=True)
class Cost:
    """FLOPs by (unit, dtype), bytes by memory level, bytes sent by mesh axis."""

    flops: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    bytes: Mapping[str, Number] = field(default_factory=dict)
    wire: Mapping[str, Number] = field(default_factory=dict)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_sum(self.flops, other.flops), _sum(self.bytes, other.bytes), _sum(self.wire, other.wire))

    def __mul__(self, times: Number) -> "Cost":
        return Cost(_scaled(self.flops, times), _scaled(self.bytes, times), _scaled(self.wire, times))

    __rmul__ = __mul__

    @property
    def total_flops(self) -> Number:
        """FLOPs of all units and dtypes."""
        return sum(self.flops.values())

    def intensity(self, level: str = "hbm") -> Number:
        """FLOPs per byte of one memory level (or mesh axis)."""
        moved = self.bytes.get(level, self.wire.get(level))
        if moved is None:
            levels = ", ".join([*self.bytes, *self.wire]) or "none"
            raise InputError(f"This operation moves no bytes over {level!r}; it moves some over: {levels}.")
        return self.total_flops / moved
