"""Which wires each mesh axis gets, for many meshes at once.

Under switches an axis is a stride and a size, so arrays need nothing special. On a torus the axes of each distinct mesh
are laid over the slice once, and the rings found are spread back over the arrays.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.physics.collectives import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.group import joined
from dragonscale.physics.hardware import Slice, Torus
from dragonscale.physics.numbers import Number, alone, is_array, product
from dragonscale.physics.sharding.mesh import Mesh, make_mesh

MOST_RINGS = 3


@dataclass(frozen=True)
class Wires:
    """The wires of every mesh axis of a batch of plans; `possible` is False where a mesh does not fit the torus."""

    piece: Slice
    axes: dict[str, Any]
    rings: dict[str, tuple[Ring, ...]]
    pods: dict[str, Any]
    possible: Any
    order: tuple[str, ...]

    @cached_property
    def _groups(self) -> dict[tuple[str, ...], Group]:
        """Groups already found: many tensors travel over the same axes."""
        return {}

    @cached_property
    def mesh(self) -> Mesh:
        """The sizes alone."""
        return Mesh(self.axes)

    @cached_property
    def single(self) -> frozenset[str]:
        """Axes that have one chip in every mesh: nothing travels over them (a letter may stand for any number)."""
        return frozenset(
            name
            for name, size in self.axes.items()
            if (bool((size == 1).all()) if is_array(size) else isinstance(size, int) and size == 1)
        )

    def of_one(self) -> "Wires":
        """The wires of a single mesh, in plain numbers."""
        rings = {name: tuple(Ring(**alone(vars(ring))) for ring in found) for name, found in self.rings.items()}
        return replace(self, axes=alone(self.axes), rings=rings, pods=alone(self.pods), possible=self.possible.item())

    def group(self, names: tuple[str, ...]) -> Group:
        """The chips along some axes and the wires between them."""
        if names not in self._groups:
            self._groups[names] = self._found(names)
        return self._groups[names]

    def _found(self, names: tuple[str, ...]) -> Group:
        chip = self.piece.chip
        if not isinstance(chip.network, Torus):
            return self._switched(names)
        rings = tuple(ring for name in names for ring in self.rings[name])
        inner = Rings(joined(rings) if len(names) > 1 else rings, chip.network.link, chip.network.hop_latency)
        pods = product(self.pods[name] for name in names)
        if chip.dcn is None or numpy.all(pods == 1):
            return inner
        return Stacked(inner, Wide(pods, chip.dcn, chip.dcn_latency))

    def _switched(self, names: tuple[str, ...]) -> Switches:
        order = [name for name in self.order if name in self.axes]
        slowest = min(order.index(name) for name in names)
        faster = product(self.axes[name] for name in order[slowest + 1 :])
        mine = product(self.axes[name] for name in order[slowest + 1 :] if name in names)
        levels = self.piece.chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
        return Switches(product(self.axes[name] for name in names), levels, faster / mine)


def lay_wires(axes: dict[str, Number], piece: Slice, order: tuple[str, ...]) -> Wires:
    """Wires for meshes given as arrays of axis sizes, all of one length; `order` names the axes, slowest first."""
    arrays = {name: numpy.atleast_1d(numpy.asarray(axes[name])) for name in order}
    count = max(len(array) for array in arrays.values())
    arrays = {name: numpy.broadcast_to(array, (count,)) for name, array in arrays.items()}
    if not isinstance(piece.chip.network, Torus):
        return Wires(piece, arrays, {}, {}, numpy.ones(count, bool), order)
    table = numpy.stack([arrays[name] for name in order], axis=1).astype(int)
    distinct, inverse = numpy.unique(table, axis=0, return_inverse=True)
    laid = [_lay_one(row, piece, order) for row in distinct]
    rings: dict[str, tuple[Ring, ...]] = {}
    pods: dict[str, Any] = {}
    for name in order:
        columns = []
        for place in range(MOST_RINGS):
            found = [_nth(one, name, place) for one in laid]
            parts = (numpy.array([ring[part] for ring in found])[inverse.ravel()] for part in range(4))
            columns.append(Ring(*parts))
        rings[name] = tuple(column for column in columns if numpy.any(column.size > 1)) or (Ring(1),)
        pods[name] = numpy.array([1 if one is None else one.pods.get(name, 1) for one in laid])[inverse.ravel()]
    possible = numpy.array([one is not None for one in laid])[inverse.ravel()]
    return Wires(piece, arrays, rings, pods, possible, order)


def _lay_one(row: Any, piece: Slice, order: tuple[str, ...]) -> Any:
    try:
        return make_mesh({name: int(size) for name, size in zip(order, row, strict=True)}, piece.chip, piece)
    except InputError:
        return None


def _nth(mesh: Any, name: str, place: int) -> tuple[float, float, float, float]:
    rings = () if mesh is None else mesh.rings[name]
    none = (1.0, 0.0, 1.0, -1.0)
    return next(
        ((float(one.size), float(one.closed), float(one.share), float(one.axis)) for one in rings[place:]), none
    )
