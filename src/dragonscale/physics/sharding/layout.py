"""Sharded arrays on one chip: local shapes, bytes, replication, and which block a chip holds.

Sizes and mesh axes may be numbers, arrays of one length or symbols; divisibility is checked where they are whole
numbers.
"""

from dragonscale.errors import InputError
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, subscript
from dragonscale.physics.notation.array import without
from dragonscale.physics.numbers import Number, maximum, product
from dragonscale.physics.sharding.mesh import Mesh

DEFAULT_DTYPE = "bf16"
Sizes = dict[str, Number]


def check_layout(array: Array, sizes: Sizes, mesh: Mesh) -> None:
    """Refuse axes that the mesh lacks and dims that do not divide."""
    mesh.size(*array.axes, *array.partial)
    for dim in array.dims:
        size, shards = sizes.get(dim.name), mesh.size(*dim.axes)
        if isinstance(size, int) and isinstance(shards, int) and size % shards:
            axes = subscript(dim.axes)[1:]
            raise InputError(
                f"The dim {dim.name}={size} of {array} does not divide into {shards} parts (mesh axes {axes})."
            )


def local_shape(array: Array, sizes: Sizes, mesh: Mesh) -> tuple[Number, ...]:
    """The shape of one chip's block.

    >>> from dragonscale.physics.notation import parse_array
    >>> local_shape(parse_array("A[I_XY, J]"), {"I": 1024, "J": 4096}, Mesh({"X": 8, "Y": 2}))
    (64, 4096)
    """
    check_layout(array, sizes, mesh)
    shape: list[Number] = []
    for dim in array.dims:
        size, shards = sizes[dim.name], mesh.size(*dim.axes)
        if isinstance(size, int) and isinstance(shards, int):
            shape.append(size // shards)
        else:
            shape.append(size / shards)
    return tuple(shape)


def local_bytes(array: Array, sizes: Sizes, mesh: Mesh) -> Number:
    """Bytes of one chip's block."""
    elements = product(sizes[dim.name] / mesh.size(*dim.axes) for dim in array.dims)
    return elements * dtype_bytes(array.dtype or DEFAULT_DTYPE)


def total_bytes(array: Array, sizes: Sizes, mesh: Mesh) -> Number:
    """Bytes over all chips, copies included."""
    return local_bytes(array, sizes, mesh) * mesh.chips


def replicated_over(array: Array, mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes along which every chip holds the same block."""
    return without(mesh.axes, (*array.axes, *array.partial))


def block_of(axes: tuple[str, ...], position: dict[str, int], mesh: Mesh) -> int:
    """The index of the block that a chip holds of a dim split over `axes`; the first axis is the major one.

    >>> mesh = Mesh({"X": 2, "Y": 2})
    >>> block_of(("X", "Y"), {"X": 0, "Y": 1}, mesh), block_of(("Y", "X"), {"X": 0, "Y": 1}, mesh)
    (1, 2)
    """
    # a number in mixed radix: the position along each axis is a digit, its size the base
    block = 0
    for axis in axes:
        block = block * mesh.axes[axis] + position[axis]
    return block


def local_size(name: str, size: Number, shards: Number) -> Number:
    """The entries of a dim on one chip: at least one, except of a token's experts (x), of which a chip may compute a
    fraction of one on average."""
    if name == "x":
        return size / shards
    return maximum(size / shards, 1)


def local_sizes(arrays: tuple[Array, ...], sizes: dict[str, Number], mesh: Mesh) -> dict[str, Number]:
    """The size of each index on one chip."""
    local: dict[str, Number] = {}
    for array in arrays:
        for dim in array.dims:
            if dim.name not in local:
                local[dim.name] = local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes))
    return local


def local_elements(array: Array, sizes: dict[str, Number], mesh: Mesh, without: tuple[str, ...] = ()) -> Number:
    """Elements of one chip's shard of an array; the dims `without` are left out of the product."""
    dims = [dim for dim in array.dims if dim.name not in without]
    return product(local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes)) for dim in dims)
