"""Which instruction runs which computation, seen from the computation, and the order that follows from it.

How often each computation of a compiled module runs, and each loop, worked out from the loop itself.

XLA's GPU compiler writes a loop's trip count beside it; its TPU compiler does not. But loops that come from a scan
count: the condition compares one element of the loop's state with a constant, the body adds a constant to that element,
and it starts from a constant. Each of the three is followed through the copies, tuples, fusions and calls that the
compiler wraps around it. A loop whose end depends on data has no trip count to find: `UNKNOWN`.

The entry runs once; a fusion, a call or an asynchronous start runs what it calls each time it runs itself. Which branch
of a conditional runs is known only when it runs: its branches are `UNKNOWN`, unless the caller picks the branch to be
counted. The same goes for loops, whose turns the caller may know from the program's own schedule.

>>> trips("LT", start=0, step=1, bound=80), trips("LE", 1, 1, 80), trips("LT", 0, 2, 15), trips("GT", 7, -1, 0)
(80, 80, 8, 7)
>>> trips("NE", 0, 3, 10) == UNKNOWN
True
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla import hlo_text
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.layouts import Shape, read_shapes

BRANCHES = ("true_computation", "false_computation", "branch_computations")
Taken = tuple[tuple[str, int], ...]
"""Turns of loops by the scope that they stand in."""


@dataclass(frozen=True)
class PlacedOp:
    """An instruction where it stands. A line on its own is a module of one, in which all that it runs is empty."""

    module: Module
    where: Computation
    instruction: Instruction

    @staticmethod
    def alone(text: str) -> "PlacedOp":
        """One line, as a profile shows it."""
        instruction = hlo_text.read_instruction(text)
        computations = {"": Computation("", (instruction,), True, instruction.name)}
        hlo_text.fill_missing(computations, whole=False)
        return PlacedOp(Module(computations), computations[""], instruction)

    @property
    def is_alone(self) -> bool:
        """Whether nothing of its module is known."""
        return not self.where.name

    @property
    def types(self) -> list[str]:
        """The type of each operand in HLO's words, empty where nothing says it.

        Compilers write operands short (`dot(%p, %q)`) or with their shapes (`dot(bf16[8,4]{1,0} %p, …)`). In a module
        the shapes are those of the instructions named; an instruction on its own has only the second form.

        >>> (
        ...     PlacedOp.alone("%d = f32[8] add(f32[8]{0} %p, f32[] /*index=1*/%q)").types,
        ...     PlacedOp.alone("%d = s8[] abs(%p)").types,
        ... )
        (['f32[8]{0}', 'f32[]'], [''])
        """
        parts = hlo_text.split_outside(hlo_text.COMMENT.sub("", self.instruction.arguments))
        found: list[str] = []
        for part in filter(None, map(str.strip, parts)):
            written, _, name = part.rpartition(" ")
            known = self.where.named.get(name.lstrip("%"))
            found.append(known.result if known and not self.is_alone else written.strip())
        return found

    @property
    def arrays(self) -> list[Shape]:
        """The arrays that it reads, in order; those whose type nothing says are left out."""
        return [shape for each in self.types for shape in read_shapes(each)]

    @property
    def bodies(self) -> list[Computation]:
        """What it runs, as far as the text has it."""
        found = (self.module.computations[name] for _, name in self.instruction.callees)
        return [each for each in found if each.instructions]

    @property
    def inside(self) -> list["PlacedOp"]:
        """The instructions of what it runs."""
        return [PlacedOp(self.module, body, each) for body in self.bodies for each in body.instructions]


@dataclass(frozen=True)
class Call:
    """The instruction in computation `where` that runs a computation, and in which role."""

    where: str
    instruction: Instruction
    role: str
    branch: int | None = None
    """For a branch of a conditional, the place of its argument among the operands."""


@lru_cache(maxsize=1)
def callers(module: Module) -> dict[str, list[Call]]:
    """Every call of each computation."""
    found: dict[str, list[Call]] = {name: [] for name in module.computations}
    for computation in module.computations.values():
        for instruction in computation.instructions:
            place = 0
            for role, name in instruction.callees:
                place += role in BRANCHES
                found[name].append(Call(computation.name, instruction, role, place if role in BRANCHES else None))
    return found


def only_caller(module: Module, name: str) -> Call | None:
    """The call of a computation that is called from one place only (a loop's condition and body are one place)."""
    found = callers(module)[name]
    places = {(call.where, call.instruction.name) for call in found}
    return found[0] if len(places) == 1 else None


@lru_cache(maxsize=1)
def callers_first(module: Module) -> tuple[str, ...]:
    """The computations that the entry reaches, in an order where every caller precedes what it calls."""
    order: list[str] = []
    state: dict[str, bool] = {}  # False while what it calls is being visited, True after
    waiting = [(module.entry.name, False)]
    while waiting:
        name, done = waiting.pop()
        if done:
            state[name] = True
            order.append(name)
        elif name not in state:
            state[name] = False
            waiting.append((name, True))
            called = [callee for each in module.computations[name].instructions for _, callee in each.callees]
            if any(state.get(callee) is False for callee in called):
                raise InputError(f"The computation {shorten(name)} of the HLO text runs itself, which no program can.")
            waiting += [(callee, False) for callee in reversed(called)]
    return tuple(order[::-1])


UNKNOWN = -1
"""The number of executions where the compiler does not say (a loop or branch that depends on data)."""

_SAME = ("copy", "copy-start", "copy-done", "bitcast", "convert", "reshape", "opt-barrier", "optimization-barrier")
"""Instructions whose value is that of their operand, as far as counting is concerned."""
_INTEGER = re.compile(r"-?\d+")
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


_FUEL = 3000


class _TooFar(Exception):
    """A value could not be followed to where it comes from."""


@dataclass(frozen=True)
class Element:
    """An element of the loop's state as the iteration began, plus a constant."""

    index: int
    offset: int = 0


Value = int | Element | None
"""A constant, a number relative to the loop's state, or something else."""


@dataclass(frozen=True)
class Frame:
    """A computation, and the call that its parameters come from (none in a loop's body or condition,
    or at the entry)."""

    module: Module
    computation: Computation
    call: Call | None = None
    fuel: list[int] = field(default_factory=lambda: [_FUEL], compare=False)
    """Steps that are left to follow a value from here, shared by all frames of one question."""

    def outside(self, parameter: Instruction) -> tuple["Frame", str] | None:
        """What a parameter stands for, one call further out."""
        if self.call is None:
            return None
        operands = self.call.instruction.operands
        place = int(parameter.arguments) + (self.call.branch or 0)
        caller = self.module.computations[self.call.where]
        return (frame_of(self.module, caller, self.fuel), operands[place]) if place < len(operands) else None

    def inside(self, instruction: Instruction) -> tuple["Frame", str] | None:
        """The root of what a fusion or call runs."""
        for _, name in instruction.callees:
            computation = self.module.computations[name]
            call = Call(self.computation.name, instruction, "calls")
            return Frame(self.module, computation, call, self.fuel), computation.root
        return None


def frame_of(module: Module, computation: Computation, fuel: list[int] | None = None) -> Frame:
    """The frame of a computation with the one call that reaches it, where there is one."""
    call = only_caller(module, computation.name)
    is_loop = call is not None and call.instruction.opcode == "while"
    return Frame(module, computation, None if is_loop else call, [_FUEL] if fuel is None else fuel)


def _source(frame: Frame, name: str) -> tuple[Frame, Instruction]:
    """The instruction that a value comes from, through the copies, fusions, calls and parameters around it."""
    frame.fuel[0] -= 1
    found = frame.computation.named.get(name)
    if frame.fuel[0] < 0 or found is None:
        raise _TooFar
    if found.opcode in _SAME:
        return _source(frame, found.operands[0])
    further = frame.inside(found) if found.opcode in ("fusion", "call") else None
    further = frame.outside(found) if found.opcode == "parameter" else further
    return _source(*further) if further else (frame, found)


def value(frame: Frame, name: str) -> Value:
    """What an integer instruction is."""
    frame, found = _source(frame, name)
    if found.opcode == "constant":
        return int(found.arguments) if _INTEGER.fullmatch(found.arguments.strip()) else None
    if found.opcode == "get-tuple-element":
        return element(frame, found.operands[0], int(found.attribute("index")))
    if found.opcode in ("add", "subtract"):
        return _sum(value(frame, found.operands[0]), value(frame, found.operands[1]), found.opcode == "subtract")
    return None


def element(frame: Frame, name: str, index: int) -> Value:
    """What one element of a tuple is; at a loop's own state, the element itself."""
    frame, found = _source(frame, name)
    if found.opcode == "tuple":
        return value(frame, found.operands[index])
    if found.opcode == "while":  # an inner loop may hand the element through
        kept = _after(frame.module, found, index) == Element(index)
        return element(frame, found.operands[0], index) if kept else None
    return Element(index) if found.opcode == "parameter" else None


def _after(module: Module, loop: Instruction, index: int) -> Value:
    """What an element of a loop's state is after an iteration."""
    body = Frame(module, _called(module, loop, "body"), fuel=[_FUEL])
    return element(body, body.computation.root, index)


def _called(module: Module, loop: Instruction, role: str) -> Computation:
    name = loop.attribute(role).lstrip("%")
    found = module.computations.get(name)
    if found is None or not found.instructions:  # a piece of a program
        raise _TooFar
    return found


def _sum(left: Value, right: Value, minus: bool) -> Value:
    if left is None or right is None:
        return None
    if isinstance(right, int):
        right = -right if minus else right
        return left + right if isinstance(left, int) else Element(left.index, left.offset + right)
    return Element(right.index, right.offset + left) if isinstance(left, int) and not minus else None


def trip_count(module: Module, where: str, loop: Instruction) -> int:
    """How often the body of a loop in computation `where` runs: what the compiler wrote, or what its condition says."""
    key, known = ("trips", where, loop.name), module.readings
    if key not in known:
        try:
            known[key] = _trip_count(module, where, loop)
        except (_TooFar, RecursionError):  # values that are computed from each other without end
            known[key] = UNKNOWN
    return known[key]


def _trip_count(module: Module, where: str, loop: Instruction) -> int:
    written = loop.config.get("known_trip_count")
    if written is not None:
        try:
            return int(written["n"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"The loop {loop.name} has a trip count this reader cannot read: {written}.") from None
    condition = Frame(module, _called(module, loop, "condition"), fuel=[_FUEL])
    frame, found = _source(condition, condition.computation.root)
    if found.opcode != "compare":
        return UNKNOWN
    direction, left, right = found.attribute("direction"), *(value(frame, name) for name in found.operands)
    if not isinstance(left, Element):
        direction, left, right = _MIRRORED.get(direction, ""), right, left
    if isinstance(right, Element):
        right = _unchanged(module, where, loop, right)
    if not isinstance(left, Element) or not isinstance(right, int):
        return UNKNOWN
    after, start = _after(module, loop, left.index), start_value(module, where, loop, left.index)
    if not isinstance(after, Element) or after.index != left.index or start is None:
        return UNKNOWN
    return trips(direction, start + left.offset, after.offset, right)


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
    if _after(module, loop, kept.index) != Element(kept.index):
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


def executions(module: Module, picked: Mapping[str, str] | None = None, taken: Taken = ()) -> dict[str, int]:
    """How often each computation runs; `UNKNOWN` where the compiler does not say.

    `picked` names a branch for conditionals; that one counts as run each time, the others as never. `taken` says of
    loops whose turns depend on data, by the scope that they stand in, how many they take in all.
    """
    counts = dict.fromkeys(module.computations, 0)
    counts[module.entry.name] = 1
    for name in callers_first(module):
        if counts[name] == 0:
            continue
        for instruction in module.computations[name].instructions:
            known_turns = [turns for scope, turns in taken if f"/{scope}/while" in instruction.op_name]
            if known_turns and instruction.opcode == "while" and trip_count(module, name, instruction) == UNKNOWN:
                for role, callee in instruction.callees:
                    counts[callee] += known_turns[0] + counts[name] * (role == "condition")
                continue
            for callee, times in _runs(module, name, instruction, picked or {}):
                known = counts[name] >= 0 and times >= 0 and counts[callee] >= 0
                if times:
                    counts[callee] = counts[callee] + counts[name] * times if known else UNKNOWN
    return counts


def _runs(module: Module, where: str, instruction: Instruction, picked: Mapping[str, str]) -> list[tuple[str, int]]:
    """What an instruction runs and how often, each time it runs itself."""
    found = instruction.callees
    if instruction.opcode == "while":
        trips = trip_count(module, where, instruction)
        return [(name, trips if trips == UNKNOWN or role == "body" else trips + 1) for role, name in found]
    runs: list[tuple[str, int]] = []
    for role, name in found:
        branch = picked.get(instruction.name) if role in BRANCHES else name
        runs.append((name, UNKNOWN if branch is None else int(branch == name)))
    return runs
