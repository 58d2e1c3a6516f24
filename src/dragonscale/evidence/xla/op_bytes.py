"""Bytes that an instruction reads and writes, by memory.

An instruction reads its operands and writes its results once, with what is read or written only in part counted in
part: a slice reads what it returns, a gather the rows it picks, an update in place writes the update. A fusion is one
kernel: what it moves are its operands and results, however much it computes between, and of an operand that its body
only slices, the slice. Padding of tiled layouts moves too; it is counted apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dragonscale.evidence.xla.call_graph import BRANCHES
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_types
from dragonscale.evidence.xla.layouts import Placed, memory_name, read_arrays
from dragonscale.evidence.xla.op_flops import DEEPEST, loop_turns
from dragonscale.evidence.xla.opcodes import CONTROL, ELEMENTWISE, NAMES

_SLICES = ("slice", "dynamic-slice", "gather")
_SAME_SIZE = ELEMENTWISE | {"bitcast", "reshape", "copy", "transpose", "reverse", "bitcast-convert"}
"""Of these, an element of the result needs one element of each operand that is as large."""


@dataclass(frozen=True)
class Bytes:
    """Bytes by memory: read, written, and the padding that moved with them."""

    read: dict[str, float]
    written: dict[str, float]
    padding: dict[str, float]

    def add(self, other: "Bytes", times: float = 1) -> None:
        """Count another's bytes too, so many times."""
        pairs = (self.read, other.read), (self.written, other.written), (self.padding, other.padding)
        for into, more in pairs:
            for memory, size in more.items():
                into[memory] = into.get(memory, 0.0) + size * times


def op_bytes(
    module: Module | None, computation: Computation | None, instruction: Instruction, on: str = "", depth: int = 0
) -> Bytes:
    """What one execution of an instruction moves, a loop in all its turns. `on` a GPU, space 1 is main memory too."""
    found = Bytes({}, {}, {})
    if instruction.opcode in CONTROL:
        return _inside(module, computation, instruction, on, depth)
    if instruction.opcode in NAMES or instruction.opcode.endswith(("-done", "-update")):
        return found
    body = _body(module, instruction)
    types = operand_types(computation, instruction)
    results = _results(instruction, types)
    read, written = _parts(body, instruction, types, results)
    for text, part in zip(types, read, strict=True):
        _count(found.read, found.padding, read_arrays(text), part, on)
    for array, part in zip(results, written, strict=True):
        _count(found.written, found.padding, (array,), part, on)
    return found


def _inside(
    module: Module | None, computation: Computation | None, instruction: Instruction, on: str, depth: int
) -> Bytes:
    """What a call, a loop or the dearest branch of a conditional moves."""
    if module is None or depth > DEEPEST:
        return Bytes({}, {}, {})
    inside = [(role, _moved(module, name, on, depth)) for role, name in instruction.callees]
    if branches := [moved for role, moved in inside if role in BRANCHES]:
        return max(branches, key=lambda each: sum(each.read.values()) + sum(each.written.values()))
    turns = loop_turns(module, computation, instruction)
    found = Bytes({}, {}, {})
    for role, moved in inside:
        found.add(moved, turns + (role == "condition" and instruction.opcode == "while"))
    return found


def _moved(module: Module, name: str, on: str, depth: int) -> Bytes:
    known = _known(module, on)
    if name not in known:
        known[name] = found = Bytes({}, {}, {})
        computation = module.computations[name]
        for each in computation.instructions:
            found.add(op_bytes(module, computation, each, on, depth + 1))
    return known[name]


@lru_cache(maxsize=8)
def _known(module: Module, on: str) -> dict[str, Bytes]:  # noqa: ARG001 - the cache's key: each module has its own table
    return {}


def _body(module: Module | None, instruction: Instruction) -> Computation | None:
    """The computation of a fusion or of an asynchronous start."""
    if module is None or instruction.opcode not in ("fusion", "fusion-start", "async-start", "call-start"):
        return None
    names = [name for role, name in instruction.callees if role in ("calls", "to_apply", "called_computations")]
    found = module.computations.get(names[0]) if names else None
    return found if found and found.instructions else None


def _results(instruction: Instruction, types: Sequence[str]) -> tuple[Placed, ...]:
    """The arrays that are written. An asynchronous start's result also names its operands, and scratch words after."""
    arrays = read_arrays(instruction.result)
    if (
        instruction.opcode == "custom-call"
        and len(arrays) > 1
        and "__cu" in instruction.attribute("custom_call_target")
    ):
        scratch = arrays[-1].shape.dtype in ("s8", "u8") and len(arrays[-1].shape.dims) == 1
        return arrays[:-1] if scratch else arrays  # room for the library to work in, most of which it never touches
    if not instruction.opcode.endswith("-start") or instruction.opcode == "all-reduce-start":
        return arrays
    count = sum(len(read_arrays(text)) for text in types)
    if instruction.opcode == "copy-start":
        return arrays[:1]
    rest = arrays[count:] if count and len(arrays) > count else arrays[1:2]
    return tuple(each for each in rest if each.shape.dims) or rest[:1]


def _count(into: dict[str, float], padding: dict[str, float], arrays: Sequence[Placed], part: float, on: str) -> None:
    for each in arrays:
        memory = memory_name(each.space, on)
        held = each.shape.bytes
        into[memory] = into.get(memory, 0.0) + held * part
        if each.padded_bytes > held and part:
            padding[memory] = padding.get(memory, 0.0) + (each.padded_bytes - held) * part


def _parts(
    body: Computation | None, instruction: Instruction, types: Sequence[str], results: Sequence[Placed]
) -> tuple[list[float], list[float]]:
    """Which part of each operand is read and of each result written."""
    sizes = [_elements(text) for text in types]
    if body is not None:
        return _fused_parts(body, len(types)), _written_parts(body, len(results))
    made = math.prod(results[0].shape.dims) if results else 0
    read, written = [1.0] * len(types), [1.0] * len(results)
    if instruction.opcode in _SLICES and sizes and sizes[0]:
        read[0] = min(1.0, made / sizes[0])
    elif instruction.opcode == "dynamic-update-slice" and len(sizes) > 1 and made:
        read[0], written = 0.0, [min(1.0, sizes[1] / made)]
    elif instruction.opcode == "scatter" and len(sizes) > 2 and made:
        part = min(1.0, sizes[-1] / made)
        read[0], written = part, [part] * len(results)
    elif instruction.opcode in ("iota", "rng-bit-generator", "broadcast") and not types:
        read = []
    return read, written


def _elements(text: str) -> int:
    return sum(math.prod(each.shape.dims) for each in read_arrays(text))


def _fused_parts(body: Computation, count: int) -> list[float]:
    """Which part of each parameter of a fusion its body needs: asked from the root backwards."""
    needed = needed_elements(body)
    parts = [1.0] * count
    for each in body.instructions:
        if each.opcode == "parameter" and each.arguments.strip().isdigit() and int(each.arguments) < count:
            whole = sum(math.prod(shape.dims) for shape in each.shapes)
            parts[int(each.arguments)] = needed[each.name] / whole if whole else 1.0
    return parts


def needed_elements(body: Computation) -> dict[str, float]:
    """How many elements of each instruction's value the results of a computation need."""
    sizes = {each.name: sum(math.prod(shape.dims) for shape in each.shapes) for each in body.instructions}
    needed = dict.fromkeys(sizes, 0.0)
    updated = _in_place(body)
    needed[body.root] = float(sizes[body.root])
    for each in reversed(body.instructions):
        for place, name in enumerate(each.operands):
            if name not in sizes or each.opcode in ("parameter", "constant"):
                continue
            wanted = sizes[name]
            if (each.opcode in _SLICES and place == 0) or (
                each.opcode in _SAME_SIZE and sizes[name] == sizes[each.name]
            ):
                wanted = min(wanted, needed[each.name])
            elif each.opcode in ("dynamic-update-slice", "scatter") and place == 0:
                wanted = 0.0 if each.name in updated else min(wanted, needed[each.name])
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
        inner = (
            body.named.get(each.operands[0])
            if each.opcode in ("bitcast", "reshape", "convert") and each.operands
            else None
        )
        if inner is None:
            break
        each = inner
    return each


def _in_place(body: Computation) -> set[str]:
    """Updates that are results: their operand is the result's own memory, of which only the update is written."""
    return {each.name for each in _outputs(body) if each.opcode in ("dynamic-update-slice", "scatter")}


def _written_parts(body: Computation, count: int) -> list[float]:
    parts: list[float] = []
    for each in _outputs(body):
        whole = sum(math.prod(shape.dims) for shape in each.shapes)
        update = (
            body.named.get(each.operands[-1 if each.opcode == "scatter" else 1]) if len(each.operands) > 1 else None
        )
        if each.opcode in ("dynamic-update-slice", "scatter") and update is not None and whole:
            parts.append(min(1.0, sum(math.prod(shape.dims) for shape in update.shapes) / whole))
        else:
            parts.append(1.0)
    return parts if len(parts) == count else [1.0] * count
