"""What a sharding means on each chip: local shapes, bytes, replication, and which block a chip holds.

Sizes may be numbers, arrays or symbols; divisibility is checked where they are whole numbers.
"""

from dragonscale.errors import InputError
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, subscript
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.sharding.mesh import Mesh

DEFAULT_DTYPE = "bf16"
Sizes = dict[str, Number]


def check_layout(array: Array, sizes: Sizes, mesh: Mesh) -> None:
    """Refuse axes that the mesh lacks and dims that do not divide."""
    mesh.size(*array.axes, *array.partial)
    for dim in array.dims:
        size, ways = sizes.get(dim.name), mesh.size(*dim.axes)
        if isinstance(size, int) and isinstance(ways, int) and size % ways:
            what = f"The dim {dim.name}={size} of {array}"
            raise InputError(f"{what} does not divide into {ways} parts (mesh axes {subscript(dim.axes)[1:]}).")


def local_shape(array: Array, sizes: Sizes, mesh: Mesh) -> tuple[Number, ...]:
    """The shape of one chip's block.

    >>> from dragonscale.physics.notation import parse_array
    >>> local_shape(parse_array("A[I_XY, J]"), {"I": 1024, "J": 4096}, Mesh({"X": 8, "Y": 2}))
    (64, 4096)
    """
    check_layout(array, sizes, mesh)
    splits = [(sizes[dim.name], mesh.size(*dim.axes)) for dim in array.dims]
    return tuple(n // ways if isinstance(n, int) and isinstance(ways, int) else n / ways for n, ways in splits)


def local_bytes(array: Array, sizes: Sizes, mesh: Mesh) -> Number:
    """Bytes of one chip's block."""
    elements = product(sizes[dim.name] / mesh.size(*dim.axes) for dim in array.dims)
    return elements * dtype_bytes(array.dtype or DEFAULT_DTYPE)


def total_bytes(array: Array, sizes: Sizes, mesh: Mesh) -> Number:
    """Bytes over all chips, copies included."""
    return local_bytes(array, sizes, mesh) * mesh.chips


def replicated_over(array: Array, mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes along which every chip holds the same block."""
    return tuple(axis for axis in mesh.axes if axis not in array.axes and axis not in array.partial)


def block_of(axes: tuple[str, ...], position: dict[str, int], mesh: Mesh) -> int:
    """Which block of a dim split over `axes` a chip holds: the first axis is the major one.

    >>> mesh = Mesh({"X": 2, "Y": 2})
    >>> block_of(("X", "Y"), {"X": 0, "Y": 1}, mesh), block_of(("Y", "X"), {"X": 0, "Y": 1}, mesh)
    (1, 2)
    """
    block = 0
    for axis in axes:
        block = block * mesh.axes[axis] + position[axis]
    return block
