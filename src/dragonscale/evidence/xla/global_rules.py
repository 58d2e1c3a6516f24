"""The ways that the dims of a result are split, from those of the operands: one rule for each kind of instruction."""

import math
import re
from collections.abc import Sequence

from dragonscale.evidence.xla.hlo_text import Computation, Instruction
from dragonscale.evidence.xla.layouts import read_arrays
from dragonscale.evidence.xla.op_wire import op_wire
from dragonscale.evidence.xla.opcodes import KEEPS

Ways = tuple[int | None, ...]
"""How many ways each dim is split; None where nothing says."""
Dims = tuple[int, ...]
Product = tuple[int | None, int | None, int | None, int | None]
_CUTS = ("slice", "dynamic-slice", "pad", "concatenate")
_MARKS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "MoveToDevice", "MoveToHost")


def ways_after(
    computation: Computation, each: Instruction, shapes: Sequence[Dims], ways: Sequence[Ways]
) -> tuple[list[Ways], Product | None]:
    """The ways of an instruction's results, and of a matmul those of its batch, rows, columns and sum."""
    opcode = each.opcode
    if opcode == "dot" or (opcode == "custom-call" and "__cublas$" in each.attribute("custom_call_target")):
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
    marked = opcode == "custom-call" and each.attribute("custom_call_target").strip('"') in _MARKS
    if opcode in _CUTS and ways:
        return [_cut(shapes[0], shape.dims, _same(len(shape.dims), ways[:1])) for shape in each.shapes], None
    if opcode in KEEPS or marked:
        return [_same(len(shape.dims), ways) for shape in each.shapes], None
    return [], None


def _numbers(each: Instruction, name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,4}", each.attribute(name))]


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
    config = each.config.get("gemm_backend_config")
    numbers = config.get("dot_dimension_numbers") if isinstance(config, dict) else None

    def dims(side: str, what: str) -> list[int]:
        if isinstance(numbers, dict):
            return [int(dim) for dim in numbers.get(f"{side}_{what}_dimensions", ())]
        return _numbers(each, f"{side}_{what}_dims")

    lhs, rhs = ways[0], ways[1]
    batch, summed = dims("lhs", "batch"), dims("lhs", "contracting")
    right_batch, right_summed = dims("rhs", "batch"), dims("rhs", "contracting")
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
    order = _numbers(each, "dimensions")
    return [tuple(ways[0][dim] if dim < len(ways[0]) else None for dim in order)]


def _broadcast(each: Instruction, _: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    """A dim that is made here may be a piece of a larger one: nothing says."""
    made = dict(zip(_numbers(each, "dimensions"), ways[0], strict=False))
    return [tuple(made.get(dim) for dim in range(len(each.shapes[0].dims)))]


def _reduce(each: Instruction, _: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    gone = _numbers(each, "dimensions")
    return [tuple(way for dim, way in enumerate(ways[0]) if dim not in gone) for _ in each.shapes]


def _gather(each: Instruction, shapes: Sequence[Dims], ways: Sequence[Ways]) -> list[Ways]:
    """Rows picked from a table: the picked dims are split as the indices are, the others as the table."""
    if len(ways) < 2:
        return []
    offset, collapsed = _numbers(each, "offset_dims"), _numbers(each, "collapsed_slice_dims")
    vector, sizes = _numbers(each, "index_vector_dim"), _numbers(each, "slice_sizes")
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
    size, along = op_wire(None, computation, each, kind).size, _numbers(each, "dimensions")
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
    before = [
        one
        for name in each.operands
        if name in computation.named
        for one in read_arrays(computation.named[name].result)
    ]
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
