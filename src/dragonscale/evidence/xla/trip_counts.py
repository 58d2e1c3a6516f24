"""How often a loop runs, worked out from the loop itself.

XLA's GPU compiler writes a loop's trip count beside it; its TPU compiler does not. But loops that come from a scan count: the
condition compares one element of the loop's state with a constant, the body adds a constant to that element, and it starts
from a constant. Each of the three is followed through the copies, tuples, fusions and calls that the compiler wraps around
it. A loop whose end depends on data has no trip count to find: `UNKNOWN`.

>>> trips("LT", start=0, step=1, bound=80), trips("LE", 1, 1, 80), trips("LT", 0, 2, 15), trips("GT", 7, -1, 0)
(80, 80, 8, 7)
>>> trips("NE", 0, 3, 10) == UNKNOWN
True
"""

import re
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import Call, only_caller
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module

UNKNOWN = -1
"""The number of executions where the compiler does not say (a loop or branch that depends on data)."""

_SAME = ("copy", "copy-start", "copy-done", "bitcast", "convert", "reshape", "opt-barrier", "optimization-barrier")
"""Instructions whose value is that of their operand, as far as counting is concerned."""
_INTEGER = re.compile(r"-?\d+")
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


@dataclass(frozen=True)
class Element:
    """An element of the loop's state as the iteration began, plus a constant."""

    index: int
    offset: int = 0


Value = int | Element | None
"""A constant, a number relative to the loop's state, or something else."""


@dataclass(frozen=True)
class Frame:
    """A computation, and the call that its parameters come from (none in a loop's body or condition, or at the entry)."""

    module: Module
    computation: Computation
    call: Call | None = None

    def outside(self, parameter: Instruction) -> tuple["Frame", str] | None:
        """What a parameter stands for, one call further out."""
        if self.call is None:
            return None
        operands = self.call.instruction.operands
        place = int(parameter.arguments) + (self.call.branch or 0)
        caller = self.module.computations[self.call.where]
        return (frame_of(self.module, caller), operands[place]) if place < len(operands) else None

    def inside(self, instruction: Instruction) -> tuple["Frame", str] | None:
        """The root of what a fusion or call runs."""
        for _, name in instruction.callees:
            computation = self.module.computations[name]
            return Frame(self.module, computation, Call(self.computation.name, instruction, "calls")), computation.root
        return None


def frame_of(module: Module, computation: Computation) -> Frame:
    """The frame of a computation with the one call that reaches it, where there is one."""
    call = only_caller(module, computation.name)
    is_loop = call is not None and call.instruction.opcode == "while"
    return Frame(module, computation, None if is_loop else call)


def value(frame: Frame, name: str) -> Value:
    """What an integer instruction is."""
    found = frame.computation.named[name]
    if found.opcode == "constant":
        return int(found.arguments) if _INTEGER.fullmatch(found.arguments.strip()) else None
    if found.opcode in _SAME:
        return value(frame, found.operands[0])
    if found.opcode == "get-tuple-element":
        return element(frame, found.operands[0], int(found.attribute("index")))
    if found.opcode in ("add", "subtract"):
        return _sum(value(frame, found.operands[0]), value(frame, found.operands[1]), found.opcode == "subtract")
    if found.opcode in ("fusion", "call"):
        inside = frame.inside(found)
        return value(*inside) if inside else None
    if found.opcode == "parameter":
        outside = frame.outside(found)
        return value(*outside) if outside else None
    return None


def element(frame: Frame, name: str, index: int) -> Value:
    """What one element of a tuple is; at a loop's own state, the element itself."""
    found = frame.computation.named[name]
    if found.opcode == "tuple":
        return value(frame, found.operands[index])
    if found.opcode in _SAME:
        return element(frame, found.operands[0], index)
    if found.opcode in ("fusion", "call"):
        inside = frame.inside(found)
        return element(*inside, index) if inside else None
    if found.opcode == "while":  # an inner loop may hand the element through
        body = Frame(frame.module, frame.module.computations[found.attribute("body").lstrip("%")])
        kept = element(body, body.computation.root, index) == Element(index)
        return element(frame, found.operands[0], index) if kept else None
    if found.opcode == "parameter":
        outside = frame.outside(found)
        return element(*outside, index) if outside else Element(index)
    return None


def _sum(left: Value, right: Value, minus: bool) -> Value:
    if left is None or right is None:
        return None
    if isinstance(right, int):
        right = -right if minus else right
        return left + right if isinstance(left, int) else Element(left.index, left.offset + right)
    return Element(right.index, right.offset + left) if isinstance(left, int) and not minus else None


def trip_count(module: Module, where: str, loop: Instruction) -> int:
    """How often the body of a loop in computation `where` runs: what the compiler wrote, or what its condition says."""
    written = loop.config.get("known_trip_count")
    if written is not None:
        try:
            return int(written["n"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"The loop {loop.name} has a trip count this reader cannot read: {written}.") from None
    condition = Frame(module, module.computations[loop.attribute("condition").lstrip("%")])
    compared = _comparison(condition, condition.computation.root)
    if compared is None:
        return UNKNOWN
    direction, left, right = compared
    if not isinstance(left, Element):
        direction, left, right = _MIRRORED.get(direction, ""), right, left
    if isinstance(right, Element):
        right = _unchanged(module, where, loop, right)
    if not isinstance(left, Element) or not isinstance(right, int):
        return UNKNOWN
    body = Frame(module, module.computations[loop.attribute("body").lstrip("%")])
    after = element(body, body.computation.root, left.index)
    start = start_value(module, where, loop, left.index)
    if not isinstance(after, Element) or after.index != left.index or start is None:
        return UNKNOWN
    return trips(direction, start + left.offset, after.offset, right)


def _comparison(frame: Frame, name: str) -> tuple[str, Value, Value] | None:
    found = frame.computation.named[name]
    if found.opcode == "compare":
        return found.attribute("direction"), value(frame, found.operands[0]), value(frame, found.operands[1])
    if found.opcode in _SAME:
        return _comparison(frame, found.operands[0])
    inside = frame.inside(found) if found.opcode in ("fusion", "call") else None
    return _comparison(*inside) if inside else None


def start_value(module: Module, where: str, loop: Instruction, index: int) -> int | None:
    """What an element of a loop's state is before the first iteration, where that is a constant."""
    frame = frame_of(module, module.computations[where])
    start = element(frame, loop.operands[0], index)
    if isinstance(start, Element):  # it comes from the state of a loop further out, which must not change it
        while frame.call is not None:
            frame = frame_of(module, module.computations[frame.call.where])
        outer = only_caller(module, frame.computation.name)
        return _unchanged(module, outer.where, outer.instruction, start) if outer else None
    return start


def _unchanged(module: Module, where: str, loop: Instruction, kept: Element) -> int | None:
    """The value of an element of a loop's state that its body hands on as it is."""
    body = Frame(module, module.computations[loop.attribute("body").lstrip("%")])
    if element(body, body.computation.root, kept.index) != Element(kept.index):
        return None
    start = start_value(module, where, loop, kept.index)
    return None if start is None else start + kept.offset


def trips(direction: str, start: int, step: int, bound: int) -> int:
    """Iterations of `for (i = start; i <direction> bound; i += step)`."""
    if direction in ("GT", "GE"):
        return trips(_MIRRORED[direction], -start, -step, -bound)
    if direction == "NE" and step and (bound - start) % step == 0 and (bound - start) // step >= 0:
        return (bound - start) // step
    if direction not in ("LT", "LE") or step <= 0:
        return UNKNOWN
    return max(0, -((start - bound - (direction == "LE")) // step))
