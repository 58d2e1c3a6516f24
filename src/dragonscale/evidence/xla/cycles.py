"""What the TPU compiler thinks its kernels take: `estimated_cycles`, beside each fusion.

The estimate is in clock cycles of the core and knows of compute and memory, not of the network: collectives carry none.
Some entries are no estimates but marks (a million million cycles, or the largest number there is): those are dropped
and counted.
"""

import re

import msgspec

from dragonscale.evidence.xla.call_graph import callers
from dragonscale.evidence.xla.hlo_text import Module
from dragonscale.evidence.xla.matmuls import upper_executions
from dragonscale.evidence.xla.source_lines import frame_lines, source_line
from dragonscale.evidence.xla.trip_counts import UNKNOWN

SENTINEL = 10**12
"""Estimates from here on stand for "not estimated": at 1 GHz this would be a quarter of an hour."""
_CYCLES = re.compile(r'"estimated_cycles":\s*"?(\d+)')


class KernelCycles(msgspec.Struct, frozen=True):
    """Kernels from one place of the user's program: how many run, and their estimated cycles together."""

    op_name: str
    source: str
    runs: int
    cycles: float


class Cycles(msgspec.Struct, frozen=True):
    """The kernels with an estimate, dearest first, and how many marks were dropped."""

    kernels: tuple[KernelCycles, ...] = ()
    dropped: int = 0

    @property
    def total(self) -> float:
        """All estimated cycles."""
        return sum(kernel.cycles for kernel in self.kernels)


def read_cycles(module: Module, counts: dict[str, int] | None = None) -> Cycles:
    """The estimates of every kernel, times its executions (once where the number of executions is not known)."""
    frames = frame_lines(module.tables)
    counts = upper_executions(module) if counts is None else counts
    calls = callers(module).items()
    inside = {name for name, found in calls if any(call.instruction.opcode == "fusion" for call in found)}
    found: dict[tuple[str, str], tuple[int, float]] = {}
    dropped = 0
    for computation in module.computations.values():
        times = 1 if counts[computation.name] == UNKNOWN else counts[computation.name]
        for each in computation.instructions if times and computation.name not in inside else ():
            match = _CYCLES.search(each.text)
            if match is None or match[1] == "0":
                continue
            if int(match[1]) >= SENTINEL:
                dropped += 1
                continue
            key = (each.op_name, source_line(each.text, frames))
            runs, cycles = found.get(key, (0, 0.0))
            found[key] = runs + times, cycles + float(match[1]) * times
    kernels = [KernelCycles(*key, *value) for key, value in found.items()]
    return Cycles(tuple(sorted(kernels, key=lambda kernel: -kernel.cycles)), dropped)
