"""The wires of each mesh axis, for a batch of meshes at once.

Under switches an axis is a stride and a size, so arrays need nothing special. On a torus the axes of each distinct mesh
are laid over the slice once, and their rings are gathered back to the meshes of the batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonscale.errors import InputError
from dragonscale.physics.collectives import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.group import joined
from dragonscale.physics.hardware import Slice, Torus, Tree
from dragonscale.physics.numbers import Number, alone, is_array, product
from dragonscale.physics.sharding.mesh import Mesh, make_mesh

MAX_RINGS = 3
"""Parts of torus axes that one mesh axis runs over, at most: a torus has three axes."""


@dataclass(frozen=True)
class Wires:
    """The wires of every mesh axis of a batch of plans. Sizes are arrays over the plans, of shape (plans,), or numbers
    for one plan. `possible` is False where a mesh does not fit the torus; `order` names the axes, slowest first."""

    slice: Slice
    axes: dict[str, Any]
    rings: dict[str, tuple[Ring, ...]]
    pods: dict[str, Any]
    possible: Any
    order: tuple[str, ...]

    @cached_property
    def _groups(self) -> dict[tuple[str, ...], Group]:
        """Groups by axes, made once: many tensors travel over the same axes."""
        return {}

    @cached_property
    def mesh(self) -> Mesh:
        """The sizes alone."""
        return Mesh(self.axes)

    @cached_property
    def single(self) -> frozenset[str]:
        """Axes that have one chip in every mesh: nothing travels over them (a symbol may stand for any number)."""
        names: list[str] = []
        for name, size in self.axes.items():
            if (isinstance(size, int) or is_array(size)) and np.all(size == 1):
                names.append(name)
        return frozenset(names)

    def of_one(self) -> "Wires":
        """The wires of a batch of one mesh, in plain numbers."""
        plain: dict[str, tuple[Ring, ...]] = {}
        for name, rings in self.rings.items():
            plain[name] = tuple(Ring(**alone(vars(ring))) for ring in rings)
        return replace(self, axes=alone(self.axes), rings=plain, pods=alone(self.pods), possible=self.possible.item())

    def group(self, names: tuple[str, ...]) -> Group:
        """The chips along some axes and the wires between them."""
        if names not in self._groups:
            self._groups[names] = self._group(names)
        return self._groups[names]

    def _group(self, names: tuple[str, ...]) -> Group:
        chip = self.slice.chip
        if not isinstance(chip.network, Torus):
            return self._switched(names, chip.network)
        rings = tuple(ring for name in names for ring in self.rings[name])
        if len(names) > 1:
            rings = joined(rings)
        inner = Rings(rings, chip.network.link, chip.network.hop_latency)
        pods = product(self.pods[name] for name in names)
        if chip.dcn is None or np.all(pods == 1):
            return inner
        return Stacked(inner, Wide(pods, chip.dcn, chip.dcn_latency))

    def _switched(self, names: tuple[str, ...], network: Tree) -> Switches:
        # axes faster than the slowest of the group, but for the group's, lie between its chips
        order = [name for name in self.order if name in self.axes]
        slowest = min(order.index(name) for name in names)
        faster = order[slowest + 1 :]
        inside = product(self.axes[name] for name in faster if name in names)
        stride = product(self.axes[name] for name in faster) / inside
        return Switches(product(self.axes[name] for name in names), network.levels, stride)


def lay_wires(axes: dict[str, Number], slice_: Slice, order: tuple[str, ...]) -> Wires:
    """Wires for meshes given as arrays of axis sizes, all of shape (plans,); `order` names the axes, slowest first."""
    columns = np.broadcast_arrays(*(np.atleast_1d(axes[name]) for name in order))
    arrays = dict(zip(order, columns, strict=True))  # each (plans,)
    if not isinstance(slice_.chip.network, Torus):
        return Wires(slice_, arrays, {}, {}, np.ones(len(columns[0]), bool), order)
    table = np.stack(columns, axis=1).astype(int)  # (plans, axes)
    distinct, inverse = np.unique(table, axis=0, return_inverse=True)  # (meshes, axes), the mesh of each plan
    inverse = inverse.ravel()  # (plans,); NumPy 2.0 gave it two dims
    meshes = [_lay_mesh(sizes, slice_, order) for sizes in distinct]
    rings: dict[str, tuple[Ring, ...]] = {}
    pods: dict[str, Any] = {}
    for name in order:
        # (plans, rings, numbers of a ring) to (rings, numbers, plans)
        by_plan = np.array([_ring_numbers(mesh, name) for mesh in meshes])[inverse]
        by_ring = np.ascontiguousarray(by_plan.transpose(1, 2, 0))
        used = [Ring(*ring) for ring in by_ring if np.any(ring[0] > 1)]
        rings[name] = tuple(used) or (Ring(1),)
        pods[name] = np.array([1 if mesh is None else mesh.pods.get(name, 1) for mesh in meshes])[inverse]
    possible = np.array([mesh is not None for mesh in meshes])[inverse]
    return Wires(slice_, arrays, rings, pods, possible, order)


def _lay_mesh(sizes: NDArray[np.int_], slice_: Slice, order: tuple[str, ...]) -> Mesh | None:
    """One mesh on the slice; None where its sizes do not fit the torus."""
    try:
        return make_mesh(dict(zip(order, sizes.tolist(), strict=True)), slice_.chip, slice_)
    except InputError:
        return None


def _ring_numbers(mesh: Mesh | None, name: str) -> NDArray[np.float64]:
    """Size, closed, share and axis of each ring that a mesh axis runs over, of shape (MAX_RINGS, 4); missing rings have
    one chip."""
    table = np.tile((1.0, 0.0, 1.0, -1.0), (MAX_RINGS, 1))
    if mesh is not None:
        for index, ring in enumerate(mesh.rings[name]):
            table[index] = ring.size, ring.closed, ring.share, ring.axis
    return table
