"""The work of a whole program on one device: every op that runs, how often, and the sums.

A fusion is one op, what an asynchronous start wraps belongs to the start, a loop's body counts as often as the loop
runs (once, and said so, where nothing tells). FLOPs of matmuls are those of `read_matmuls`; a conditional counts its
dearest branch.
"""

import msgspec

from dragonscale.evidence.xla.hlo_text import Module, frame_lines, source_line
from dragonscale.evidence.xla.matmuls import upper_executions
from dragonscale.evidence.xla.op_work import OpWork, work_of
from dragonscale.evidence.xla.patterns import scheduled_computations
from dragonscale.evidence.xla.trip_counts import UNKNOWN


class RunningOp(msgspec.Struct, frozen=True):
    """An op of the program: where it stands, the work of one execution, and how often it runs."""

    where: str
    work: OpWork
    times: int
    scope: str
    source: str
    counted_once: bool = False
    """Whether it stands in a loop or branch that runs nobody knows how often."""


def running_ops(module: Module, on: str = "") -> list[RunningOp]:
    """Every op that does something, in order of its computations; loops and calls are there through what they run."""
    counts = upper_executions(module)
    frames = frame_lines(module.tables)
    found: list[RunningOp] = []
    for name in scheduled_computations(module):
        computation, times = module.computations[name], counts[name]
        for each in computation.instructions if times else ():
            work = work_of(module, computation, each, on)
            if work.kind in ("nothing", "control"):
                continue
            once = times == UNKNOWN
            found.append(
                RunningOp(name, work, 1 if once else times, each.op_name, source_line(each.text, frames), once)
            )
    return found
