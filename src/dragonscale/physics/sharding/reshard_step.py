"""One move of an array from layout to layout: the step that resharding, strategies and their costs are made of.

>>> from dragonscale.physics.notation import parse_array
>>> step = Step("all_gather", ("X",), parse_array("A[I_X, J]"), parse_array("A[I, J]"))
>>> print(step, step.volume({"I": 8, "J": 4}, Mesh({"X": 2})))
all_gather_X A[I_X, J] -> A[I, J] 64.0
"""

from dataclasses import dataclass

from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.notation import Array, subscript
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.layout import Sizes, local_bytes
from dragonscale.physics.sharding.mesh import Mesh

Layout = dict[str, tuple[str, ...]]
"""The mesh axes of each dim, major first."""


@dataclass(frozen=True)
class Step:
    """One move: the array before and after it, and the mesh axes it runs over."""

    kind: str
    axes: tuple[str, ...]
    before: Array
    after: Array

    def __str__(self) -> str:
        return f"{self.kind}{subscript(self.axes)} {self.before} -> {self.after}"

    @property
    def free(self) -> bool:
        """Whether nothing travels."""
        return self.kind == "slice"

    def wire_bytes(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that each chip sends."""
        if self.free:
            return 0
        return wire_bytes(self.kind, self.volume(sizes, mesh), mesh.size(*self.axes))

    def volume(self, sizes: Sizes, mesh: Mesh) -> Number:
        """The bytes of the array as one group sees them: see `dragonscale.physics.collectives.cost`."""
        if self.free:
            return 0
        if self.kind in ("all_gather", "permute"):
            return local_bytes(self.after, sizes, mesh)
        local = local_bytes(self.before, sizes, mesh)
        if self.kind == "all_to_all":
            return local * mesh.size(*self.axes)  # the sum over the group's chips
        return local


def layout_of(array: Array) -> Layout:
    """The mesh axes of each dim."""
    return {dim.name: dim.axes for dim in array.dims}


def moved_axes(now: Layout, then: Layout, mesh: Mesh) -> tuple[str, ...]:
    """The axes along which blocks travel between two layouts: those whose position in a dim differs.

    >>> moved_axes({"I": ("X", "Y", "Z")}, {"I": ("Y", "X", "Z")}, Mesh({"X": 2, "Y": 2, "Z": 2}))
    ('X', 'Y')
    """
    moved: set[str] = set()
    for dim, axes in now.items():
        before, after = list(axes), list(then[dim])
        # axes that stay at the major end, then those at the minor end of the same blocks
        while before and after and before[0] == after[0]:
            before, after = before[1:], after[1:]
        while set(before) == set(after) and before and before[-1] == after[-1]:
            before, after = before[:-1], after[:-1]
        moved.update(before, after)
    return tuple(axis for axis in mesh.axes if axis in moved)
