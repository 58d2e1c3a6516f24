"""What a sharding means on each chip: local shapes, bytes, replication, and which block a chip holds.

Sizes may be numbers, arrays or symbols; divisibility is checked where they are whole numbers.

The pieces of a kernel's arrays that one chip has, and what they make of a matmul: its m, n, k, batch and experts.

Sizes and mesh axes may be numbers or arrays of one length.
"""

from dragonscale.errors import InputError
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, subscript
from dragonscale.physics.numbers import Number, maximum, product
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


def local_size(name: str, size: Number, ways: Number) -> Number:
    """The part of a dim that one chip has: at least one, but for a token's experts, of which a chip may have a part."""
    return size / ways if name == "x" else maximum(size / ways, 1)


def local_sizes(arrays: tuple[Array, ...], sizes: dict[str, Number], mesh: Mesh) -> dict[str, Number]:
    """The size of each index on one chip."""
    found: dict[str, Number] = {}
    for array in arrays:
        for dim in array.dims:
            if dim.name not in found:
                found[dim.name] = local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes))
    return found


def local_elements(array: Array, sizes: dict[str, Number], mesh: Mesh, without: tuple[str, ...] = ()) -> Number:
    """Elements of one chip's piece of an array, but for some dims."""
    return product(
        local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes)) for dim in array.dims if dim.name not in without
    )


MatmulDims = tuple[list[str], list[str], list[str], list[str], list[str]]


def matmul_dims(arrays: tuple[Array, ...]) -> MatmulDims:
    """The indices that make up m, n, k, the batch, and the experts of a (grouped) matmul: two operands and a result."""
    first, second, out = arrays[0], arrays[1], arrays[-1]
    experts = [dim.name for array in arrays for dim in array.dims if dim.select]
    names = [set(array.names) - set(experts) for array in (first, second, out)]
    every = sorted(names[0] | names[1] | names[2])
    batch = [name for name in every if all(name in held for held in names)]
    summed = [name for name in every if name not in names[2]]
    rows = [name for name in every if name in names[0] and name in names[2] and name not in batch]
    columns = [name for name in every if name in names[1] and name in names[2] and name not in batch]
    return rows, columns, summed, batch, sorted(set(experts))
