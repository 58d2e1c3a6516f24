"""Gathers that put idle mesh axes to work."""

from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import Step, reshard


def spread_gather(source: Array, target: Array, mesh: Mesh) -> tuple[Step, ...]:
    """Steps from `source` to `target` that let idle mesh axes carry a share of a gather.

    Chips along an axis that splits nothing hold copies. If each first keeps only its part of the copy (which is free),
    the gather that follows runs over that axis' wires too: AllGather_X of [B_X, D_Y] on a cube becomes AllGather_XZ of
    [B_XZ, D_Y], the same bytes over twice the links.

    >>> from dragonscale.physics.notation import parse_array
    >>> cube = Mesh({"X": 4, "Y": 4, "Z": 4})
    >>> for step in spread_gather(parse_array("A[B_X, D_Y]"), parse_array("A[B, D_Y]"), cube):
    ...     print(step)
    slice_Z A[B_X, D_Y] -> A[B_XZ, D_Y]
    all_gather_XZ A[B_XZ, D_Y] -> A[B, D_Y]
    """
    held = {*source.axes, *source.partial, *target.axes, *target.partial}
    idle = tuple(axis for axis in mesh.axes if axis not in held)
    layout = {dim.name: dim.axes for dim in source.dims}
    gathered = next((d.name for d in source.dims if d.axes and not target.dim(d.name).axes), None)
    if gathered is None or not idle:
        return reshard(source, target, mesh)
    spread = source.with_layout(layout | {gathered: (*layout[gathered], *idle)}, source.partial)
    return (*reshard(source, spread, mesh), *reshard(spread, target, mesh))
