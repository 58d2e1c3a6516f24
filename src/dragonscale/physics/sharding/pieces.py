"""The pieces of a kernel's arrays that one chip has, and what they make of a matmul: its m, n, k, batch and experts.

Sizes and mesh axes may be numbers or arrays of one length.
"""

from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, maximum, product
from dragonscale.physics.sharding.mesh import Mesh


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
