"""FLOPs of an instruction and of all that it runs, by the unit that does them: matmuls, the vector unit, transcendental
functions.

Counted as XLA's own cost analysis does: a matmul 2·m·n·k, an elementwise op one for each element of its result, a
reduction one application of its function for each element that vanishes, a function like `exp` apart from the rest
because a vector unit needs several operations for it. Moving data is no FLOP. Loops count as often as they run, of a
conditional the dearest branch.

Bytes that an instruction reads and writes, by memory.

An instruction reads its operands and writes its results once, with what is read or written only in part counted in
part: a slice reads what it returns, a gather the rows it picks, an update in place writes the update. A fusion is one
kernel: what it moves are its operands and results, however much it computes between, and of an operand that its body
only slices, the slice. Padding of tiled layouts moves too; it is counted apart.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import (
    BRANCHES,
    UNKNOWN,
    PlacedOp,
    Taken,
    callers_first,
    executions,
    trip_count,
)
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.layouts import Placed, memory_name, read_arrays
from dragonscale.evidence.xla.matmul_sizes import matmul_flops, may_multiply
from dragonscale.evidence.xla.opcodes import BODIES, CONTROL, ELEMENTWISE, NAMES, TRANSCENDENTAL

_APPLIED = ("reduce", "reduce-window", "scatter", "map", "select-and-scatter", "sort")
DEEPEST = 200
"""Computations inside one another that are followed."""


@dataclass(frozen=True)
class Flops:
    """Operations of matmuls, of the vector unit, and evaluations of transcendental functions."""

    matmul: float = 0.0
    vector: float = 0.0
    transcendental: float = 0.0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.matmul + other.matmul, self.vector + other.vector, self.transcendental + other.transcendental)

    def __mul__(self, times: float) -> "Flops":
        return Flops(self.matmul * times, self.vector * times, self.transcendental * times)


def op_flops(op: PlacedOp, depth: int = 0) -> Flops:
    """FLOPs of one execution of an instruction, with all that it runs."""
    own = _own(op, depth)
    if own is not None:
        return own
    if depth > DEEPEST:
        return Flops()
    inside = [(role, computation_flops(op.module, name, depth)) for role, name in op.instruction.callees]
    if branches := [flops for role, flops in inside if role in BRANCHES]:
        return max(branches, key=lambda each: (each.matmul, each.vector))
    turns = loop_turns(op)
    return sum((flops * (turns + (role == "condition")) for role, flops in inside), Flops())


def loop_turns(op: PlacedOp) -> int:
    """How often what an instruction runs is run: one turn of a loop whose end is not known."""
    if op.instruction.opcode != "while" or op.is_alone:
        return 1
    trips = trip_count(op.module, op.where.name, op.instruction)
    return 1 if trips == UNKNOWN else trips


def _own(op: PlacedOp, depth: int) -> Flops | None:
    """What the instruction itself does; None where it only runs others."""
    instruction, opcode = op.instruction, op.instruction.opcode
    if may_multiply(instruction):
        return Flops(matmul=matmul_flops(op) or 0.0)
    if opcode in ELEMENTWISE:
        count = float(sum(shape.elements for shape in instruction.shapes[:1]))
        return Flops(transcendental=count) if opcode in TRANSCENDENTAL else Flops(vector=count)
    if opcode in _APPLIED:
        return _function(op, depth) * _applications(op)
    if opcode in ("all-reduce", "all-reduce-start", "reduce-scatter"):
        return Flops(vector=float(instruction.elements))
    return None


def _applications(op: PlacedOp) -> float:
    """How often an instruction applies its function."""
    arrays, instruction = op.arrays, op.instruction
    if not arrays or not instruction.shapes:
        return 0.0
    read, made = float(arrays[0].elements), float(instruction.shapes[0].elements)
    match instruction.opcode:
        case "reduce":
            return max(read - made, 0.0)
        case "reduce-window":
            sizes = re.search(r"size=([\dx]+)", instruction.attribute("window"))
            return ((math.prod(int(size) for size in sizes[1].split("x")) if sizes else 1) - 1) * made
        case "scatter":
            return float(arrays[-1].elements)
        case "sort":
            return made * math.ceil(math.log2(made)) if made > 1 else 0.0
    return made


def _function(op: PlacedOp, depth: int) -> Flops:
    """What one application of an instruction's function costs: one operation where it cannot be seen (and for a
    comparison)."""
    names = [name for role, name in op.instruction.callees if role == "to_apply"]
    if op.is_alone or not names or op.instruction.opcode == "sort":
        return Flops(vector=1.0)
    return computation_flops(op.module, names[0], depth)


def computation_flops(module: Module, name: str, depth: int = 0) -> Flops:
    """FLOPs of a computation each time it runs, with all that it calls."""
    key, known = ("flops", name), module.readings
    if key not in known:
        if depth > DEEPEST:
            raise InputError(f"The computations of the HLO text run each other more than {DEEPEST} deep.")
        known[key] = Flops()  # a computation that runs itself adds nothing to itself
        computation = module.computations[name]
        ops = (PlacedOp(module, computation, each) for each in computation.instructions)
        known[key] = sum((op_flops(each, depth + 1) for each in ops), Flops())
    return known[key]


@lru_cache(maxsize=1)
def upper_executions(module: Module, taken: Taken = ()) -> dict[str, int]:
    """How often each computation runs where every conditional takes its dearest branch, the one with the most FLOPs;
    `taken` as `executions` has it."""
    dearest: dict[str, str] = {}
    for name in callers_first(module):
        for each in module.computations[name].instructions:
            if branches := [callee for role, callee in each.callees if role in BRANCHES]:
                dearest[each.name] = max(branches, key=lambda callee: computation_flops(module, callee).matmul)
    return executions(module, dearest, taken)


_SLICES = ("slice", "dynamic-slice", "gather")
_UPDATES = ("dynamic-update-slice", "scatter")
_SAME_SIZE = ELEMENTWISE | {"bitcast", "reshape", "copy", "transpose", "reverse", "bitcast-convert"}
"""Of these, an element of the result needs one element of each operand that is as large."""
Bytes = dict[tuple[str, str], float]
"""Bytes that are `read`, `written`, or `padding` that moved with them, and the memory."""


def op_bytes(op: PlacedOp, on: str = "", depth: int = 0) -> Bytes:
    """What one execution of an instruction moves, a loop in all its turns. `on` a GPU, space 1 is main memory too."""
    opcode, moved = op.instruction.opcode, defaultdict[tuple[str, str], float](float)
    if opcode in CONTROL:
        return _inside(op, on, depth)
    if opcode in NAMES or opcode.endswith(("-done", "-update")):
        return moved
    types = op.types
    results = _results(op.instruction, types)
    read, written = _parts(op, types, results)
    arrays = [("read", each, part) for text, part in zip(types, read, strict=True) for each in read_arrays(text)]
    arrays += [("written", each, part) for each, part in zip(results, written, strict=True)]
    for what, each, part in arrays:
        memory, size = memory_name(each.space, on), each.shape.bytes
        moved[what, memory] += size * part
        if each.padded_bytes > size and part:
            moved["padding", memory] += (each.padded_bytes - size) * part
    return moved


def _inside(op: PlacedOp, on: str, depth: int) -> Bytes:
    """What a call, a loop or the dearest branch of a conditional moves."""
    if depth > DEEPEST:
        return {}
    inside = [(role, _moved(op.module, name, on, depth)) for role, name in op.instruction.callees]
    if branches := [each for role, each in inside if role in BRANCHES]:
        return max(branches, key=lambda each: sum(size for (what, _), size in each.items() if what != "padding"))
    moved, turns = Bytes(), loop_turns(op)
    for role, each in inside:
        _add(moved, each, turns + (role == "condition" and op.instruction.opcode == "while"))
    return moved


def _add(into: Bytes, more: Bytes, times: int = 1) -> None:
    for key, size in more.items():
        into[key] = into.get(key, 0.0) + size * times


def _moved(module: Module, name: str, on: str, depth: int) -> Bytes:
    key, known = ("bytes", on, name), module.readings
    if key not in known:
        known[key] = Bytes()
        computation = module.computations[name]
        for each in computation.instructions:
            _add(known[key], op_bytes(PlacedOp(module, computation, each), on, depth + 1))
    return known[key]


def _results(instruction: Instruction, types: Sequence[str]) -> tuple[Placed, ...]:
    """The arrays that are written. An asynchronous start's result also names its operands, and scratch words after."""
    arrays, opcode = read_arrays(instruction.result), instruction.opcode
    if opcode == "custom-call" and len(arrays) > 1 and "__cu" in instruction.target:
        scratch = arrays[-1].shape.dtype in ("s8", "u8") and len(arrays[-1].shape.dims) == 1
        return arrays[:-1] if scratch else arrays  # room for the library to work in, most of which it never touches
    if not opcode.endswith("-start") or opcode == "all-reduce-start":
        return arrays
    if opcode == "copy-start":
        return arrays[:1]
    count = sum(len(read_arrays(text)) for text in types)
    rest = arrays[count:] if count and len(arrays) > count else arrays[1:2]
    return tuple(each for each in rest if each.shape.dims) or rest[:1]


def _parts(op: PlacedOp, types: Sequence[str], results: Sequence[Placed]) -> tuple[list[float], list[float]]:
    """Which part of each operand is read and of each result written."""
    if op.instruction.opcode in BODIES and op.bodies:
        return _fused_parts(op.bodies[0], len(types)), _written_parts(op.bodies[0], len(results))
    sizes = [sum(each.shape.elements for each in read_arrays(text)) for text in types]
    made = results[0].shape.elements if results else 0
    read, written = [1.0] * len(types), [1.0] * len(results)
    if op.instruction.opcode in _SLICES and sizes and sizes[0]:
        read[0] = min(1.0, made / sizes[0])
    elif op.instruction.opcode == "dynamic-update-slice" and len(sizes) > 1 and made:
        read[0], written = 0.0, [min(1.0, sizes[1] / made)]
    elif op.instruction.opcode == "scatter" and len(sizes) > 2 and made:
        part = min(1.0, sizes[-1] / made)
        read[0], written = part, [part] * len(results)
    return read, written


def _fused_parts(body: Computation, count: int) -> list[float]:
    """Which part of each parameter of a fusion its body needs: asked from the root backwards."""
    needed, parts = needed_elements(body), [1.0] * count
    for place, each in body.parameters.items():
        if place < count and each.elements:
            parts[place] = needed[each.name] / each.elements
    return parts


def needed_elements(body: Computation) -> dict[str, float]:
    """How many elements of each instruction's value the results of a computation need."""
    sizes = {each.name: each.elements for each in body.instructions}
    needed = dict.fromkeys(sizes, 0.0)
    # Updates that are results: their operand is the result's own memory, of which only the update is written.
    in_place = {each.name for each in _outputs(body) if each.opcode in _UPDATES}
    needed[body.root] = float(sizes[body.root])
    for each in reversed(body.instructions):
        for place, name in enumerate(each.operands):
            if name not in sizes or each.opcode in ("parameter", "constant"):
                continue
            wanted, alike = sizes[name], each.opcode in _SAME_SIZE and sizes[name] == sizes[each.name]
            if (each.opcode in _SLICES and place == 0) or alike:
                wanted = min(wanted, needed[each.name])
            elif each.opcode in _UPDATES and place == 0:
                wanted = 0.0 if each.name in in_place else min(wanted, needed[each.name])
            needed[name] = min(float(sizes[name]), needed[name] + wanted)
    return needed


def _outputs(body: Computation) -> list[Instruction]:
    """The instructions whose values a computation returns, through tuples and changes of shape."""
    root = body.named.get(body.root)
    if root is None:
        return []
    roots = [body.named[name] for name in root.operands if name in body.named] if root.opcode == "tuple" else [root]
    return [_unwrapped(body, each) for each in roots]


def _unwrapped(body: Computation, each: Instruction) -> Instruction:
    """What a chain of bitcasts stands for."""
    for _ in body.instructions:
        wraps = each.opcode in ("bitcast", "reshape", "convert") and each.operands
        inner = body.named.get(each.operands[0]) if wraps else None
        if inner is None:
            break
        each = inner
    return each


def _written_parts(body: Computation, count: int) -> list[float]:
    parts: list[float] = []
    for each in _outputs(body):
        update = (
            body.named.get(each.operands[-1 if each.opcode == "scatter" else 1]) if len(each.operands) > 1 else None
        )
        partial = each.opcode in _UPDATES and update is not None and each.elements
        parts.append(min(1.0, update.elements / each.elements) if partial and update else 1.0)
    return parts if len(parts) == count else [1.0] * count
