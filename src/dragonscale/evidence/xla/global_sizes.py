"""Global sizes inside a partitioned program: how many ways each dim of each value is split, followed from the
arguments.

Only arguments keep their shardings once a program is partitioned. From there the ways go forward: an elementwise op
keeps them, a matmul's result has those of its operands' free dims, an all-gather undoes as many ways as its group has
devices, a reduce-scatter adds them; loops hand their state round. Where nothing says (a constant, a broadcast, an
exchange), the ways of that dim are None, and a matmul with such a dim has no global size there.
"""

from collections.abc import Sequence

import msgspec

from dragonscale.evidence.xla.global_rules import Ways, ways_after
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, split_outside
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes
from dragonscale.evidence.xla.shapes import read_shapes
from dragonscale.evidence.xla.shardings import sharding_of

_DEEPEST = 40
Values = list[Ways]
"""The ways of every array of a value, nested tuples in order."""


class GlobalMatmul(msgspec.Struct, frozen=True):
    """The ways that a matmul's batch, rows, columns and sum are split; None where nothing says."""

    batch: int | None
    m: int | None
    n: int | None
    k: int | None


class ModuleWays:
    """What is known of a module: the ways of each value by computation and name, and of each matmul."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.values: dict[tuple[str, str], Values] = {}
        self.matmuls: dict[tuple[str, str], GlobalMatmul] = {}
        entry = module.entry
        given = {int(each.arguments): _given(each) for each in entry.instructions if _is_argument(each)}
        self.run(entry, [given.get(place, []) for place in range(max(given, default=-1) + 1)], 0)

    def run(self, computation: Computation, arguments: Sequence[Values], depth: int) -> Values:
        """Follow the ways through a computation; those of its result."""
        for each in computation.instructions if depth < _DEEPEST else ():
            found = self._value(computation, each, arguments, depth)
            self.values[computation.name, each.name] = _fitting(each, found)
        return self.values.get((computation.name, computation.root), [])

    def _value(self, computation: Computation, each: Instruction, arguments: Sequence[Values], depth: int) -> Values:
        inputs = [self.values.get((computation.name, name), []) for name in each.operands]
        if each.opcode == "parameter":
            place = int(each.arguments) if each.arguments.strip().isdigit() else len(arguments)
            return arguments[place] if place < len(arguments) else []
        if each.opcode == "tuple":
            return [ways for value in inputs for ways in value]
        if each.opcode == "get-tuple-element":
            return _element(computation, each, inputs[0] if inputs else [])
        if each.opcode == "while":
            return self._loop(each, inputs[0] if inputs else [], depth)
        if each.opcode == "conditional":
            return self._branches(each, inputs, depth)
        if each.opcode in ("fusion", "call", "async-start", "call-start"):
            return self._called(each, inputs, depth)
        if each.opcode.endswith("-done"):
            return _finished(computation, each, inputs[0] if inputs else [])
        shapes = [
            shape.dims
            for name in each.operands
            if name in computation.named
            for shape in computation.named[name].shapes
        ]
        flat = [ways for value in inputs for ways in value]
        found, product = ways_after(computation, each, shapes, flat) if len(flat) == len(shapes) else ([], None)
        if product is not None:
            self.matmuls[computation.name, each.name] = GlobalMatmul(*product)
        return found

    def _called(self, each: Instruction, inputs: list[Values], depth: int) -> Values:
        found: Values = []
        for role, name in each.callees:
            if role in ("calls", "to_apply", "called_computations") and name in self.module.computations:
                found = self.run(self.module.computations[name], inputs, depth + 1)
        handed = [ways for value in inputs for ways in value] if each.opcode.endswith("-start") else []
        return [*handed, *found]

    def _loop(self, each: Instruction, state: Values, depth: int) -> Values:
        """A loop's state; what its start does not say (an empty stack), a turn of the body does."""
        body = next((name for role, name in each.callees if role == "body"), "")
        if body not in self.module.computations:
            return state
        for _ in range(2):
            after = self.run(self.module.computations[body], [state], depth + 1)
            if len(after) != len(state):
                return state
            state = [_either(before, now) for before, now in zip(state, after, strict=True)]
        return state

    def _branches(self, each: Instruction, inputs: list[Values], depth: int) -> Values:
        found: Values = []
        names = [name for role, name in each.callees if role != "condition" and name in self.module.computations]
        for name, given in zip(names, inputs[1:], strict=False):
            after = self.run(self.module.computations[name], [given], depth + 1)
            found = (
                [_either(one, two) for one, two in zip(found, after, strict=True)]
                if len(found) == len(after)
                else after
            )
        return found


def _is_argument(each: Instruction) -> bool:
    return each.opcode == "parameter" and each.arguments.strip().isdigit() and len(each.arguments) < 8


def _given(each: Instruction) -> Values:
    """The ways of an argument, from the sharding beside it."""
    split = sharding_of(each)
    if split is None or len(each.shapes) != 1 or split.whole(each.shapes[0].dims) is None:
        return [(None,) * len(shape.dims) for shape in each.shapes]
    return [split.ways if split.what == "tiled" else (1,) * len(each.shapes[0].dims)]


def _fitting(each: Instruction, found: Values) -> Values:
    """One tuple of ways for each array of the result, whatever was found."""
    dims = [len(shape.dims) for shape in each.shapes]
    return [
        found[at] if at < len(found) and len(found[at]) == count else (None,) * count for at, count in enumerate(dims)
    ]


def _either(one: Ways, two: Ways) -> Ways:
    """What either says, and nothing where they differ."""
    pairs = zip(one, two, strict=True) if len(one) == len(two) else zip(one, one, strict=True)
    return tuple(b if a is None else a if b is None or a == b else None for a, b in pairs)


def _element(computation: Computation, each: Instruction, value: Values) -> Values:
    """The arrays of one element of a tuple."""
    whole = (
        computation.named[each.operands[0]].result if each.operands and each.operands[0] in computation.named else ""
    )
    parts = split_outside(whole.strip()[1:-1]) if whole.startswith("(") else []
    index = each.attribute("index")
    if not index.isdigit() or int(index[:6]) >= len(parts):
        return []
    counts = [len(read_shapes(part)) for part in parts]
    first = sum(counts[: int(index)])
    return value[first : first + counts[int(index)]]


def _finished(computation: Computation, each: Instruction, started: Values) -> Values:
    """What an asynchronous op returns: its start has the operands first, a copy's the result."""
    start = computation.named.get(each.operands[0]) if each.operands else None
    if start is None or len(started) <= len(each.shapes) or each.opcode == "all-reduce-done":
        return started
    first = (
        0
        if start.opcode == "copy-start"
        else sum(len(computation.named[name].shapes) for name in start.operands if name in computation.named)
    )
    return started[first : first + len(each.shapes)]


def whole_matmul(
    spread: ModuleWays, where: str, instruction: Instruction, local: MatmulSizes
) -> tuple[int | None, ...] | None:
    """Global batch, rows, sum and columns of an op's matmul, None where nothing says; for an op that holds none,
    nothing."""
    inside = [(name, each.name) for _, name in instruction.callees for each in _instructions(spread.module, name)]
    found = [spread.matmuls[key] for key in [(where, instruction.name), *inside] if key in spread.matmuls]
    if len(found) != 1:
        return None
    ways, sizes = (found[0].batch, found[0].m, found[0].k, found[0].n), (local.batch, local.m, local.k, local.n)
    return tuple(None if way is None else size * way for size, way in zip(sizes, ways, strict=True))


def _instructions(module: Module, name: str) -> tuple[Instruction, ...]:
    return module.computations[name].instructions if name in module.computations else ()
