"""The ways that the dims of a result are split, from those of the operands: one rule for each kind of instruction.

Global sizes inside a partitioned program: how many ways each dim of each value is split, followed from the
arguments.

Only arguments keep their shardings once a program is partitioned. From there the ways go forward: an elementwise op
keeps them, a matmul's result has those of its operands' free dims, an all-gather undoes as many ways as its group has
devices, a reduce-scatter adds them; loops hand their state round. Where nothing says (a constant, a broadcast, an
exchange), the ways of that dim are None, and a matmul with such a dim has no global size there.
"""

import math
import re
from collections.abc import Sequence

from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, split_outside
from dragonscale.evidence.xla.layouts import read_arrays, read_shapes
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes, dot_dims
from dragonscale.evidence.xla.op_work import op_wire
from dragonscale.evidence.xla.opcodes import KEEPS
from dragonscale.evidence.xla.shardings import sharding_of

Ways = tuple[int | None, ...]
"""How many ways each dim is split; None where nothing says."""
Dims = tuple[int, ...]
Product = tuple[int | None, int | None, int | None, int | None]
"""Ways that a matmul's batch, rows, columns and sum are split; None where nothing says."""
_CUTS = ("slice", "dynamic-slice", "pad", "concatenate")
_MARKS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "MoveToDevice", "MoveToHost")


def ways_after(
    computation: Computation, each: Instruction, shapes: Sequence[Dims], ways: Sequence[Ways]
) -> tuple[list[Ways], Product | None]:
    """The ways of an instruction's results, and of a matmul those of its batch, rows, columns and sum."""
    opcode = each.opcode
    if opcode == "dot" or (opcode == "custom-call" and "__cublas$" in each.target):
        return _dot(each, ways)
    if opcode == "convolution":
        return _convolution(each, shapes, ways)
    rules = {"transpose": _transpose, "broadcast": _broadcast, "reduce": _reduce, "gather": _gather}
    if opcode in rules and ways:
        return rules[opcode](each, shapes, ways), None
    if opcode in ("reshape", "bitcast") and ways:
        return [_reshaped(computation, each, ways[0])], None
    if opcode in ("all-gather", "all-gather-start", "reduce-scatter"):
        return _scaled(computation, each, ways), None
    marked = opcode == "custom-call" and each.target in _MARKS
    if opcode in _CUTS and ways:
        return [_cut(shapes[0], shape.dims, _same(len(shape.dims), ways[:1])) for shape in each.shapes], None
    if opcode in KEEPS or marked:
        return [_same(len(shape.dims), ways) for shape in each.shapes], None
    return [], None


def _cut(before: Dims, after: Dims, ways: Ways) -> Ways:
    """A piece of a dim may be each device's own; one layer of a stack is not."""
    if len(before) != len(after):
        return (None,) * len(after)
    return tuple(way if size in (1, whole) else None for whole, size, way in zip(before, after, ways, strict=True))


def _same(count: int, ways: Sequence[Ways]) -> Ways:
    """What the operands of as many dims say, the first that says anything."""
    alike = [one for one in ways if len(one) == count]
    return tuple(next((one[dim] for one in alike if one[dim] is not None), None) for dim in range(count))


def _dot(each: Instruction, ways: Sequence[Ways]) -> tuple[list[Ways], Product | None]:
    if len(ways) < 2:
        return [], None
    lhs, rhs = ways[0], ways[1]
    (batch, summed), (right_batch, right_summed) = (
        [dot_dims(each, side, what) for what in ("batch", "contracting")] for side in ("lhs", "rhs")
    )
    rows = [lhs[dim] for dim in range(len(lhs)) if dim not in (*batch, *summed)]
    columns = [rhs[dim] for dim in range(len(rhs)) if dim not in (*right_batch, *right_summed)]
    shared = [_one(lhs[a], rhs[b]) for a, b in zip(batch, right_batch, strict=False)]
    along = [_one(lhs[a], rhs[b]) for a, b in zip(summed, right_summed, strict=False)]
    return [(*shared, *rows, *columns)], (_all(shared), _all(rows), _all(columns), _all(along))


def _convolution(each: Instruction, shapes: Sequence[Dims], ways: Sequence[Ways]) -> tuple[list[Ways], Product | None]:
    labels = re.fullmatch(r"([\w?]+)_([\w?]+)->([\w?]+)", each.attribute("dim_labels"))
    if labels is None or len(ways) < 2 or len(labels[1]) != len(ways[0]) or len(labels[2]) != len(ways[1]):
        return [], None
    left, right = dict(zip(labels[1], ways[0], strict=True)), dict(zip(labels[2], ways[1], strict=True))
    sizes = [dict(zip(labels[1], shapes[0], strict=True)), dict(zip(labels[2], shapes[1], strict=True))]
    made = dict(zip(labels[3], each.shapes[0].dims, strict=False))
    out, along = {"b": left.get("b"), "f": right.get("o")}, [_one(left.get("f"), right.get("i"))]
    for label in labels[3]:
        if label in "bf":
            continue
        if made.get(label) == 1 < sizes[0].get(label, 1):  # summed over
            out[label] = 1
            along.append(_one(left.get(label), right.get(label)))
        elif made.get(label) == sizes[1].get(label) != sizes[0].get(label):  # a free dim of the second operand
            out[label] = right.get(label)
        else:
            out[label] = left.get(label) if sizes[1].get(label) == 1 else _one(left.get(label), right.get(label))
    spatial = [way for label, way in out.items() if label not in ("b", "f")]
    return [tuple(out[label] for label in labels[3])], (_all(spatial), out["b"], out["f"], _all(along))


def _one(first: int | None, second: int | None) -> int | None:
    """What either operand says; nothing where they differ, as where one was cut by the device's number."""
    if first is None or second is None:
        return second if first is None else first
    return first if first == second else None


def _all(ways: Sequence[int | None]) -> int | None:
    return None if any(way is None for way in ways) else math.prod(way for way in ways if way is not None)


def _transpose(each: Instruction, _: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    order = each.numbers("dimensions")
    return [tuple(ways[0][dim] if dim < len(ways[0]) else None for dim in order)]


def _broadcast(each: Instruction, _: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    """A dim that is made here may be a piece of a larger one: nothing says."""
    made = dict(zip(each.numbers("dimensions"), ways[0], strict=False))
    return [tuple(made.get(dim) for dim in range(len(each.shapes[0].dims)))]


def _reduce(each: Instruction, _: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    gone = each.numbers("dimensions")
    return [tuple(way for dim, way in enumerate(ways[0]) if dim not in gone) for _ in each.shapes]


def _gather(each: Instruction, shapes: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    """Rows picked from a table: the picked dims are split as the indices are, the others as the table."""
    if len(ways) < 2:
        return []
    offset, collapsed = each.numbers("offset_dims"), each.numbers("collapsed_slice_dims")
    vector, sizes = each.numbers("index_vector_dim"), each.numbers("slice_sizes")
    picked = [way for dim, way in enumerate(ways[1]) if [dim] != vector]
    whole = [dim for dim in range(len(shapes[0])) if dim not in collapsed]
    kept = [ways[0][dim] if dim < len(sizes) and sizes[dim] == shapes[0][dim] else None for dim in whole]
    found: list[int | None] = []
    for dim in range(len(each.shapes[0].dims)):
        source = kept if dim in offset else picked
        found.append(source.pop(0) if source else None)
    return [tuple(found)]


def _scaled(computation: Computation, each: Instruction, ways: Sequence[Ways]) -> list[Ways]:
    """A gather undoes the ways along a dim, a scatter adds them."""
    kind = "reduce_scatter" if each.opcode == "reduce-scatter" else "all_gather"
    size, along = op_wire(PlacedOp(Module({}), computation, each), kind).get("group_size"), each.numbers("dimensions")
    if not size or len(along) != 1:
        return []

    def after(way: int | None) -> int | None:
        if way is None:
            return None
        return way * size if kind == "reduce_scatter" else way // size if way % size == 0 else None

    made = [tuple(after(way) if dim == along[0] else way for dim, way in enumerate(one)) for one in ways]
    return [*ways, *made] if each.opcode.endswith("-start") else made


def _reshaped(computation: Computation, each: Instruction, ways: Ways) -> Ways:
    """Dims that are split or joined, group by group of equal size. A bitcast changes the order of
    dims, not of memory."""
    known = [computation.named[name] for name in each.operands if name in computation.named]
    before = [array for value in known for array in read_arrays(value.result)]
    after = read_arrays(each.result)
    if not before or not after:
        return ()
    logical = each.opcode == "reshape"
    old = list(range(len(ways))) if logical else list(reversed(before[0].minor_to_major))
    new = list(range(len(after[0].shape.dims))) if logical else list(reversed(after[0].minor_to_major))
    found: list[int | None] = [None] * len(new)
    for left, right in _groups([before[0].shape.dims[dim] for dim in old], [after[0].shape.dims[dim] for dim in new]):
        total = _all([ways[old[place]] for place in left])
        large = next((place for place in right if after[0].shape.dims[new[place]] > 1), right[0] if right else None)
        for place in right:
            found[new[place]] = total if place == large else None if total is None else 1
    return tuple(found)


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Runs of dims of equal size on both sides; those of size one go with the run before them.

    >>> _groups([8, 6], [2, 4, 6]), _groups([1, 8], [8])
    ([([0], [0, 1]), ([1], [2])], [([0, 1], [0])])
    """
    groups: list[tuple[list[int], list[int]]] = []
    left, right, i, j = list[int](), list[int](), 0, 0
    a = b = 1
    while i < len(old) or j < len(new):
        if i < len(old) and (a <= b or j >= len(new)):
            left.append(i)
            a, i = a * old[i], i + 1
        else:
            right.append(j)
            b, j = b * new[j], j + 1
        if a == b and left and right and a > 1:
            groups.append((left, right))
            left, right, a, b = [], [], 1, 1
    if left or right:
        if groups and (not left or not right):
            groups[-1] = (groups[-1][0] + left, groups[-1][1] + right)
        elif left and right:
            groups.append((left, right))
    return groups


_DEEPEST = 40
Values = list[Ways]
"""The ways of every array of a value, nested tuples in order."""


class ModuleWays:
    """What is known of a module: the ways of each value by computation and name, and of each matmul."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.values: dict[tuple[str, str], Values] = {}
        self.matmuls: dict[tuple[str, str], Product] = {}
        entry = module.entry
        given = {place: _given(each) for place, each in entry.parameters.items() if place < 10**7}
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
        known = [computation.named[name] for name in each.operands if name in computation.named]
        shapes = [shape.dims for value in known for shape in value.shapes]
        flat = [ways for value in inputs for ways in value]
        found, product = ways_after(computation, each, shapes, flat) if len(flat) == len(shapes) else ([], None)
        if product is not None:
            self.matmuls[computation.name, each.name] = product
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
            same = len(found) == len(after)
            found = [_either(one, two) for one, two in zip(found, after, strict=True)] if same else after
        return found


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
    value_of = computation.named.get(each.operands[0]) if each.operands else None
    whole = value_of.result if value_of else ""
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
    known = [computation.named[name] for name in start.operands if name in computation.named]
    first = 0 if start.opcode == "copy-start" else sum(len(value.shapes) for value in known)
    return started[first : first + len(each.shapes)]


def whole_matmul(
    spread: ModuleWays, where: str, instruction: Instruction, local: MatmulSizes
) -> tuple[int | None, ...] | None:
    """Global batch, rows, sum and columns of an op's matmul, None where nothing says; for an op that holds none,
    nothing."""
    op = PlacedOp(spread.module, spread.module.computations[where], instruction)
    keys = [(where, instruction.name), *((each.where.name, each.instruction.name) for each in op.inside)]
    found = [spread.matmuls[key] for key in keys if key in spread.matmuls]
    if len(found) != 1:
        return None
    batch, m, n, k = found[0]
    pairs = ((local.batch, batch), (local.m, m), (local.k, k), (local.n, n))
    return tuple(None if way is None else size * way for size, way in pairs)
