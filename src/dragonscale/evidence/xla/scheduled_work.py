"""The work of each instruction as it is scheduled: FLOPs of matmuls, and bytes moved to and from main memory.

A compiled module is in order of execution, so what stands between an asynchronous start and its done is what can hide it. The
FLOPs are those of everything an instruction runs, loops included. The bytes are what crosses a kernel's edge: a fusion reads
its operands and writes its results, except where it only takes a slice of an operand or changes a slice in place. Arrays in
a TPU's vector memory, copies between memories and collectives are not counted: no compute unit waits for them.
"""

from dataclasses import dataclass
from functools import lru_cache

from dragonscale.evidence.xla.call_graph import BRANCHES, callers_first
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.layouts import HBM, read_arrays
from dragonscale.evidence.xla.matmuls import flops_of
from dragonscale.evidence.xla.trip_counts import UNKNOWN, trip_count

_FREE = frozenset(
    (
        *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"),
        *("opt-barrier", "optimization-barrier", "domain", "add-dependency"),
        *("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all"),
        *("collective-broadcast", "send", "recv"),
    )
)
_THROUGH = ("bitcast", "reshape", "copy", "transpose", "convert")


@dataclass(frozen=True)
class ScheduledWork:
    """FLOPs of matmuls and bytes of main memory."""

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "ScheduledWork") -> "ScheduledWork":
        return ScheduledWork(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: int) -> "ScheduledWork":
        return ScheduledWork(self.flops * times, self.bytes * times)


@lru_cache(maxsize=1)
def computation_work(module: Module) -> dict[str, ScheduledWork]:
    """The work of each computation each time it runs, with all that it calls."""
    whole: dict[str, ScheduledWork] = {}
    for name in reversed(callers_first(module)):
        computation = module.computations[name]
        whole[name] = sum(
            (_work(module, computation, each, whole) for each in computation.instructions), ScheduledWork()
        )
    return whole


def instruction_work(module: Module, computation: Computation, instruction: Instruction) -> ScheduledWork:
    """The work of one instruction with all that it runs: of a conditional the dearest branch, of an endless loop one turn."""
    return _work(module, computation, instruction, computation_work(module))


def _work(
    module: Module, computation: Computation, instruction: Instruction, whole: dict[str, ScheduledWork]
) -> ScheduledWork:
    opcode = instruction.opcode
    found = instruction.callees
    if opcode in (
        "async-start",
        "call-start",
        "fusion-start",
    ):  # matmuls on another stream; else a collective or a copy
        return ScheduledWork(sum(whole[name].flops for _, name in found))
    if opcode in _FREE or opcode.endswith(("-start", "-done", "-update")):
        return ScheduledWork()
    if opcode == "while":
        trips = trip_count(module, computation.name, instruction)
        return sum((whole[name] for role, name in found if role == "body"), ScheduledWork()) * (
            1 if trips == UNKNOWN else trips
        )
    if opcode == "conditional":
        branches = [whole[name] for role, name in found if role in BRANCHES]
        return max(branches, key=lambda work: (work.flops, work.bytes), default=ScheduledWork())
    if opcode == "call":
        return sum((whole[name] for _, name in found), ScheduledWork())
    if opcode == "fusion":
        return sum(
            (
                ScheduledWork(whole[name].flops, _fused_bytes(module, module.computations[name], instruction))
                for _, name in found
            ),
            ScheduledWork(),
        )
    return ScheduledWork(flops_of(computation, instruction) or 0.0, _bytes(computation, instruction))


def _main(result: str) -> float:
    return sum(each.shape.bytes for each in read_arrays(result) if each.space == HBM)


def _bytes(computation: Computation, instruction: Instruction) -> float:
    if instruction.opcode == "dynamic-slice":
        return 2 * _main(instruction.result)
    if instruction.opcode == "dynamic-update-slice":
        return 2 * _main(computation.named[instruction.operands[1]].result)
    read = sum(_main(computation.named[name].result) for name in instruction.operands)
    if flops_of(computation, instruction) is not None:  # a library's matmul returns its workspace too
        return read + instruction.shapes[0].bytes
    return read + _main(instruction.result)


def _fused_bytes(module: Module, fused: Computation, fusion: Instruction) -> float:
    """What a fusion reads and writes."""
    total = sum(_read(module, fused, each) for each in fused.instructions if each.opcode == "parameter")
    root = fused.named[fused.root]
    outputs = [fused.named[name] for name in root.operands] if root.opcode == "tuple" else [root]
    placed = read_arrays(fusion.result)
    for place, output in enumerate(outputs):
        if len(placed) == len(outputs) and placed[place].space != HBM:
            continue
        written = output
        while written.opcode in ("bitcast", "reshape", "copy"):
            written = fused.named[written.operands[0]]
        if written.opcode == "dynamic-update-slice":
            written = fused.named[written.operands[1]]
        total += sum(shape.bytes for shape in written.shapes)
    return total


def _read(module: Module, fused: Computation, parameter: Instruction) -> float:
    """How much of a parameter is read: all of it, unless each use takes a slice or changes one in place."""
    whole = _main(parameter.result)
    sliced, waiting = 0.0, [parameter] if whole else []
    while waiting:
        source = waiting.pop()
        if source.name == fused.root:
            return whole
        for user in fused.users[source.name]:
            first = bool(user.operands) and user.operands[0] == source.name
            if user.opcode in _THROUGH:
                waiting.append(user)
            elif user.opcode in ("dynamic-slice", "slice", "gather") and first:
                sliced += sum(shape.bytes for shape in user.shapes)
            elif user.opcode == "fusion":
                sliced += _read_inside(module, user, source.name)
            elif user.opcode != "dynamic-update-slice" or not first:
                return whole
    return min(sliced, whole)


def _read_inside(module: Module, fusion: Instruction, name: str) -> float:
    """How much of an operand a fusion within a fusion reads."""
    (inner,) = (module.computations[callee] for _, callee in fusion.callees)
    places = {str(place) for place, operand in enumerate(fusion.operands) if operand == name}
    parameters = [each for each in inner.instructions if each.opcode == "parameter" and each.arguments in places]
    return sum(_read(module, inner, each) for each in parameters)
