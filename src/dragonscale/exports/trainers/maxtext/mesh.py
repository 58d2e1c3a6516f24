"""MaxText's mesh: an `ici_` axis inside a slice and a `dcn_` axis between slices for each kind of parallelism.

The product of the `ici_` axes is the devices of a slice and that of the `dcn_` axes the slices. A slice is what JAX
calls one: a TPU slice, a GPU node, or an NVLink domain of racks. A TPU7x chip is two devices to JAX (so are chips of v2
and v3); those of v4 and v5p are one ("megacore"). A plan counts chips, so on TPU7x the `fsdp` axis is twice the plan's.

Slices are given to the slowest axes of a plan, as its own mesh does (`sharding.mesh`).

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.plan_file import parse_plan
>>> piece = parse_slice("v5p:8x8x8*2")
>>> mesh_keys(parse_plan("data=2,fsdp=128,tensor=4"), piece)["dcn_data_parallelism"]
2
>>> slices_of(parse_slice("h100:64")), slices_of(parse_slice("gb200:72"))
(8, 1)
"""

import math
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import whole
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.chip import Tree
from dragonscale.training.legality import family
from dragonscale.training.plan import AXES, Plan

TERMS = load_terms("maxtext")

AXIS = {"pipe": "pipeline", "data": "data", "fsdp": "fsdp", "expert": "expert", "context": "context"}
"""MaxText's name of each axis; `tensor` has two."""
READ = TERMS.tables["axes_read"]
_TWO = ("v2", "v3", "tpu7x")


def devices_per_chip(chip: Chip) -> int:
    """JAX devices of a chip."""
    return 2 if chip.name in _TWO else 1


def slices_of(piece: Slice) -> int:
    """Slices as JAX counts them: pods of TPUs, or NVLink domains of GPUs."""
    if not isinstance(piece.chip.network, Tree):
        return piece.pods
    return -(-piece.chips // min(piece.chip.network.levels[0].degree, piece.chips))


def tensor_axis(chip: Chip) -> str:
    """The axis that tensor parallelism lies on. Between blocks `tensor` splits the model dim and `tensor_sequence` the
    sequence, with as many bytes moved and kept; MaxText's guide recommends the second for GPUs, and its TPU recipes
    take the first."""
    return "tensor" if family(chip) == "tpu" else "tensor_sequence"


def mesh_keys(plan: Plan, piece: Slice) -> dict[str, int]:
    """The mesh of a plan. All axes are said, so that none is filled in."""
    slices, over = slices_of(piece), dict.fromkeys(AXES, 1)
    left = slices
    for axis in AXES:  # slowest first
        over[axis] = math.gcd(getattr(plan, axis), left)
        left //= over[axis]
    if left > 1:
        raise TERMS.refused("parts_of_slices", slices=slices, piece=piece, plan=plan)
    names = {**AXIS, "tensor": tensor_axis(piece.chip)}
    inside = {axis: getattr(plan, axis) // over[axis] for axis in AXES}
    inside["fsdp" if plan.zero == 3 else "data"] *= devices_per_chip(piece.chip)
    between = {f"dcn_{names[axis]}_parallelism": over[axis] for axis in AXES}
    return between | {f"ici_{names[axis]}_parallelism": inside[axis] for axis in AXES}


def degrees(table: Mapping[str, Any], piece: Slice | None, shown: str) -> dict[str, int]:
    """A plan's degrees of a config's mesh: what it leaves to be filled in (-1) is filled in, pairs of cores are one
    chip."""
    every = [(way, name) for way in ("ici", "dcn") for names in READ.values() for name in names]
    sizes = {(way, name): _size(table, way, name, shown) for way, name in every}
    two = devices_per_chip(piece.chip) if piece is not None else 1
    for way in ("ici", "dcn"):
        _fill(sizes, way, _devices(way, piece, two), shown)
    found = {axis: math.prod(sizes["ici", name] * sizes["dcn", name] for name in names) for axis, names in READ.items()}
    for axis in ("fsdp", "data", "tensor", "expert", "context"):
        if two > 1 and found[axis] % two == 0:
            found[axis] //= two
            break
    if piece is not None and math.prod(found.values()) != piece.chips:
        mesh = ", ".join(f"{axis}={size}" for axis, size in found.items() if size > 1) or "data=1"
        raise TERMS.wrong("mesh_chips", shown=shown, mesh=mesh, piece=piece, ranks=math.prod(found.values()))
    return found


def _devices(way: str, piece: Slice | None, two: int) -> int:
    if piece is None:
        return 0
    return slices_of(piece) if way == "dcn" else piece.chips // slices_of(piece) * two


def _size(table: Mapping[str, Any], way: str, name: str, shown: str) -> int:
    key = f"{way}_{name}_parallelism"
    usual = -1 if key in ("ici_fsdp_parallelism", "dcn_data_parallelism") else 1
    size = whole(table.get(key, usual), key, -1)
    if not size:
        raise InputError(f"In {shown} {key} is 0; write a whole number, or -1 for what is left.")
    return size


def _fill(sizes: dict[tuple[str, str], int], way: str, devices: int, shown: str) -> None:
    """Fill in the axis that is left open. Without a slice, what is left is one."""
    open_axes = [key for key in sizes if key[0] == way and sizes[key] == -1]
    rest = math.prod(sizes[key] for key in sizes if key[0] == way and sizes[key] != -1)
    if len(open_axes) > 1:
        names = " and ".join(f"{way}_{name}_parallelism" for _, name in open_axes)
        raise InputError(f"In {shown} {names} are both -1; one axis can be left open.")
    if not open_axes:
        return
    if not devices and way == "ici":
        raise TERMS.wrong("open_axis", shown=shown, way=way, axis=open_axes[0][1])
    if devices and devices % rest:
        what = "slices" if way == "dcn" else "devices of a slice"
        raise InputError(f"In {shown} the {way}_ axes come to {rest}, which does not divide the {devices} {what}.")
    sizes[open_axes[0]] = max(devices // rest, 1)
