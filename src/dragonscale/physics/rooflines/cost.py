"""Cost as an algebra: what an operation asks of a machine, before asking any particular machine.

A `Cost` counts FLOPs by unit and dtype, bytes by memory level, and bytes by mesh axis. Costs add and scale; a machine's
`Rates` turn one into seconds per resource. The counts may be floats, arrays or symbols.

>>> matmul = Cost(flops={("matrix", "bf16"): 2e12}, bytes={"hbm": 1e9})
>>> (matmul + matmul * 2).bytes
{'hbm': 3000000000.0}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number

Key = TypeVar("Key")


def _sum(first: Mapping[Key, Number], second: Mapping[Key, Number]) -> dict[Key, Number]:
    return dict(first) | {key: first[key] + value if key in first else value for key, value in second.items()}


@dataclass(frozen=True)
class Cost:
    """FLOPs by (unit, dtype), bytes by memory level, bytes sent by mesh axis."""

    flops: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    bytes: Mapping[str, Number] = field(default_factory=dict)
    wire: Mapping[str, Number] = field(default_factory=dict)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_sum(self.flops, other.flops), _sum(self.bytes, other.bytes), _sum(self.wire, other.wire))

    def __mul__(self, times: Number) -> "Cost":
        def scaled(counts: Mapping[Any, Number]) -> dict[Any, Number]:
            return {key: value * times for key, value in counts.items()}

        return Cost(scaled(self.flops), scaled(self.bytes), scaled(self.wire))

    __rmul__ = __mul__

    @property
    def total_flops(self) -> Number:
        """FLOPs of all units and dtypes."""
        return sum(self.flops.values())

    def intensity(self, level: str = "hbm") -> Number:
        """FLOPs per byte of one memory level (or mesh axis)."""
        moved = self.bytes.get(level, self.wire.get(level))
        if moved is None:
            known = ", ".join([*self.bytes, *self.wire]) or "none"
            raise InputError(f"This operation moves no bytes over {level!r}; it moves some over: {known}.")
        return self.total_flops / moved


@dataclass(frozen=True)
class Rates:
    """What a machine does per second: FLOPs by (unit, dtype), bytes by memory level, bytes by mesh axis."""

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
