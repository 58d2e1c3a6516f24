"""Arrays as grids cut by mesh axes: which block each chip holds, before and after every collective.

Two dims of an array are drawn, the cut ones first; a dim that is cut into more than `MOST` blocks is drawn with so
many. `held` gives for each chip of the mesh, in the mesh's order, the block that it has, so that a chip's blocks can be
shown in all arrays.

>>> A = array_picture("A[I_X, J]", {"X": 2, "Y": 2}, {"I": 8, "J": 4}, {"X": "tensor", "Y": "fsdp"})
>>> A["rows"]["cuts"], A["cols"]["cuts"], A["held"], A["copied"]
(2, 1, [0, 0, 1, 1], ['Y'])
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dragonscale.blocks.amounts import quantity
from dragonscale.commands.shard_report import StrategyRow
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.notation.array import Dim
from dragonscale.physics.sharding.layout import block_of, local_bytes, local_shape, replicated_over
from dragonscale.physics.sharding.mesh import Mesh

MOST = 32
MOST_CHIPS = 256


def mesh_picture(mesh: Mapping[str, int], roles: Sequence[str]) -> dict[str, Any]:
    """The mesh as chips in rows (its first axis) and columns (the others)."""
    chips = math.prod(mesh.values())
    coloured = zip(mesh.items(), itertools.cycle(roles), strict=False)
    axes = [{"name": name, "size": size, "role": role} for (name, size), role in coloured]
    shown = positions(mesh) if chips <= MOST_CHIPS else []
    return {
        "axes": axes,
        "chips": chips,
        "rows": next(iter(mesh.values()), 1),
        "places": [", ".join(f"{name}={at}" for name, at in position.items()) or "the chip" for position in shown],
    }


def positions(mesh: Mapping[str, int]) -> list[dict[str, int]]:
    """Every chip by its place along each axis, in the mesh's order."""
    places = itertools.product(*(range(size) for size in mesh.values()))
    return [dict(zip(mesh, position, strict=True)) for position in places]


def array_picture(
    text: str, mesh: Mapping[str, int], sizes: Mapping[str, int], roles: Mapping[str, str], why: str = ""
) -> dict[str, Any]:
    """One array as it lies on the mesh."""
    array, wires = parse_array(text), Mesh(dict(mesh))
    dims = sorted(array.dims, key=lambda dim: not dim.axes)[:2]
    dims = [dim for dim in array.dims if dim in dims]  # in the order they are written
    # a vector is one row; a number is one block
    rows, cols = [*[None] * (2 - len(dims)), *dims]
    across = math.prod(mesh[axis] for axis in cols.axes) if cols else 1
    all_sized = all(dim.name in sizes for dim in array.dims)
    shown = positions(mesh) if math.prod(mesh.values()) <= MOST_CHIPS else []
    copied = list(replicated_over(array, wires))
    return {
        "text": text,
        "name": array.name or text,
        "rows": _side(rows, mesh, sizes, roles),
        "cols": _side(cols, mesh, sizes, roles),
        "others": [str(dim) for dim in array.dims if dim not in dims],
        "copied": copied,
        "copies": math.prod(mesh[axis] for axis in copied),
        "partial": list(array.partial),
        "summands": math.prod(mesh[axis] for axis in array.partial),
        "held": [_block(rows, position, wires) * across + _block(cols, position, wires) for position in shown],
        "shape": " × ".join(f"{size:,}" for size in local_shape(array, dict(sizes), wires)) if all_sized else "",
        "bytes": quantity("bytes", float(local_bytes(array, dict(sizes), wires)) if all_sized else "", why),
    }


def _side(
    dim: Dim | None, mesh: Mapping[str, int], sizes: Mapping[str, int], roles: Mapping[str, str]
) -> dict[str, Any]:
    if dim is None:
        return {"dim": "", "axes": [], "cuts": 1, "drawn": 1, "role": "", "size": ""}
    cuts = math.prod(mesh[axis] for axis in dim.axes)
    size = sizes.get(dim.name)
    return {
        "dim": dim.name,
        "axes": list(dim.axes),
        "cuts": cuts,
        "drawn": min(cuts, MOST),
        "role": roles.get(dim.axes[0], "") if dim.axes else "",
        "size": "" if size is None else f"{size:,}",
    }


def _block(dim: Dim | None, position: dict[str, int], wires: Mesh) -> int:
    return block_of(dim.axes, position, wires) if dim is not None else 0


def stages_of(
    way: StrategyRow, mesh: Mapping[str, int], sizes: Mapping[str, int], roles: Mapping[str, str], why: str
) -> list[dict[str, Any]]:
    """The steps of one way, each with its arrays: what a collective changes, and what each chip then multiplies."""

    def drawn(text: str) -> dict[str, Any]:
        return array_picture(text, mesh, sizes, roles, f"{why}:picture:{text}")

    stages: dict[str, list[dict[str, Any]]] = {"before": [], "matmul": [], "after": []}
    for at, row in enumerate(way.collectives):
        title = f"{row.collective.replace('_', '-')} over {', '.join(row.axes)}"
        how = {"kind": "move", "title": title, "axes": row.axes, "role": roles.get(row.axes[0], ""), "move": at}
        stages[row.when].append(how | {"arrays": [drawn(row.array), drawn(row.result)]})
    if way.computes:
        line = parse_einsum(way.local)
        how = {"kind": "matmul", "title": "each chip multiplies what it has", "axes": [], "role": "compute"}
        stages["matmul"].append(how | {"arrays": [drawn(str(array)) for array in (*line.operands, line.output)]})
    return [stage for part in stages.values() for stage in part]
