"""Matmuls that hide their collective: shards travel round a ring while the matmul of the last one is computed.

A blocking collective waits for all bytes before the first FLOP. A ring can do better: every chip multiplies the shard
it has while the next arrives from its neighbour, so that only the first or last hop is exposed. Three collectives can
be taken apart in this way, over a mesh axis Y:

| collective | line | what travels |
|---|---|---|
| AllGather | `A[B, D_Y] · W[D, F_Y] -> C[B, F_Y]` or `A[B_Y, D] · W[D, F_Y] -> C[B, F_Y]` | shards of A |
| ReduceScatter | `A[B, F_Y] · W[F_Y, D] -> C[B, D_Y]` or `-> C[B_Y, D]` | growing sums of C |
| AllReduce | `A[B, F_Y] · W[F_Y, D] -> C[B, D]` | sums of a tile of C, then its shards, under the next tile |

With `both_ways` the wires of both directions are used (see `rings`).

The functions with an `axis` are for one chip's view, inside `jax.shard_map`; `collective_matmul` reads a line of the
book's notation and gives the function of whole arrays. Loops are unrolled, so that the compiler sees what may overlap.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from dragonscale.errors import InputError
from dragonscale.physics.notation import Array, Einsum, parse_einsum
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.runtime.rings import Ring, RingShard, after, gathering, run, scattering, whole


def gather_matmul(
    x: jax.Array, weight: jax.Array, axis: str, summed: bool = True, both_ways: bool = False
) -> jax.Array:
    """AllGather(x) · weight. `summed`: x[…, d/Y] is gathered along the dim that is summed; else x[…, t/Y, d] along its
    rows."""
    width = x.shape[-1 if summed else -2]
    dim = x.ndim - (1 if summed else 2)

    def add(shard: RingShard, made: jax.Array | None) -> jax.Array:
        rows = jax.lax.dynamic_slice_in_dim(weight, shard.source * width + shard.start, shard.value.shape[-1], 0)
        part = jnp.matmul(shard.value, rows, preferred_element_type=jnp.float32)
        return part if made is None else made + part

    def put(shard: RingShard, made: jax.Array | None) -> jax.Array:
        rows = shard.value @ after(weight, made)
        whole = (*x.shape[:-2], jax.lax.axis_size(axis) * width, weight.shape[-1])
        so_far = jnp.zeros(whole, x.dtype) if made is None else made
        return jax.lax.dynamic_update_slice_in_dim(so_far, rows, shard.source * width + shard.start, dim)

    (result,) = run(axis, dim, gathering(x, axis, dim, add if summed else put, both_ways))
    return result.astype(x.dtype)


def matmul_scatter(
    x: jax.Array, weight: jax.Array, axis: str, columns: bool = True, both_ways: bool = False
) -> jax.Array:
    """ReduceScatter(x · weight), where x[…, f/Y] and weight[f/Y, d] hold parts of the summed dim. The result is split
    along its `columns` (d), or along its rows, the last dim but one."""
    return run(axis, x.ndim - 1, _scattering(x, weight, axis, columns, both_ways))[0]


def _scattering(x: jax.Array, weight: jax.Array, axis: str, columns: bool, both_ways: bool) -> Ring:
    width = (weight.shape[-1] if columns else x.shape[-2]) // jax.lax.axis_size(axis)

    def product(chip: jax.Array, made: jax.Array | None) -> jax.Array:
        if columns:
            return after(x, made) @ jax.lax.dynamic_slice_in_dim(weight, chip * width, width, weight.ndim - 1)
        return jax.lax.dynamic_slice_in_dim(x, chip * width, width, x.ndim - 2) @ after(weight, made)

    return scattering(product, width, axis, x.ndim - (1 if columns else 2), both_ways)


def matmul_reduce(x: jax.Array, weight: jax.Array, axis: str, tiles: int = 2, both_ways: bool = False) -> jax.Array:
    """AllReduce(x · weight), tile by tile of its columns: a tile's finished parts are passed round in the same messages
    as the sums of the next one, under that one's matmuls. Only the last tile's way round is not hidden."""
    dim = x.ndim - 1
    parts: list[jax.Array] = []
    own: jax.Array | None = None
    for tile in jnp.split(weight, tiles, axis=-1):
        under_way = [] if own is None else [whole(own, axis, dim, both_ways)]
        own, *done = run(axis, dim, _scattering(after(x, own), tile, axis, True, both_ways), *under_way)
        parts += done
    assert own is not None
    return jnp.concatenate([*parts, *run(axis, dim, whole(own, axis, dim, both_ways))], -1)


@dataclass(frozen=True)
class Pattern:
    """Which collective hides in a line, over which axis; `inner` says that the dim concerned is the last of its array
    (the summed one of a gather, the columns of a scatter)."""

    collective: str
    axis: str
    inner: bool


def pattern_of(line: Einsum) -> Pattern:
    """The collective matmul that computes a line `A[…, d] · W[d, f] -> C[…, f]`.

    >>> pattern_of(parse_einsum("A[B_X, D_Y] @ W[D, F_Y] -> C[B_X, F_Y]"))
    Pattern(collective='all_gather', axis='Y', inner=True)
    >>> pattern_of(parse_einsum("A[B_X, D_Y] @ W[D_Y, F] -> C[B_X, F]"))
    Pattern(collective='all_reduce', axis='Y', inner=True)
    """
    left, right, out = _operands(line)
    summed, rows, columns = left.dims[-1], left.dims[-2], right.dims[-1]
    if summed.axes and summed.axes == right.dims[0].axes:
        axis = _one(summed.axes, line)
        if out.dims[-1].axes == (axis,) and not columns.axes and out.dims[-2].axes == rows.axes:
            return Pattern("reduce_scatter", axis, True)
        if out.dims[-2].axes == (axis,) and not rows.axes and out.dims[-1].axes == columns.axes:
            return Pattern("reduce_scatter", axis, False)
        if out.dims[-2].axes == rows.axes and out.dims[-1].axes == columns.axes:
            return Pattern("all_reduce", axis, True)
    if out.dims[-1].axes == columns.axes and not right.dims[0].axes:
        if summed.axes and out.dims[-2].axes == rows.axes:
            return Pattern("all_gather", _one(summed.axes, line), True)
        if rows.axes and not summed.axes and not out.dims[-2].axes:
            return Pattern("all_gather", _one(rows.axes, line), False)
    raise InputError(
        f"The line '{line}' is no collective matmul; it should gather one operand's shards ('A[B, D_Y] @ W[D, F_Y] -> "
        "C[B, F_Y]') or add up partial sums ('A[B, F_Y] @ W[F_Y, D] -> C[B, D_Y]')."
    )


def _operands(line: Einsum) -> tuple[Array, Array, Array]:
    if len(line.operands) == 2:
        left, right = line.operands
        fits = len(right.dims) == 2 and len(left.dims) >= 2
        if fits and (*left.names[:-1], right.names[1]) == line.output.names and left.names[-1] == right.names[0]:
            return left, right, line.output
    raise InputError(
        f"The line '{line}' is not a matmul of rows with a matrix; write it like 'A[B, D] @ W[D, F] -> C[B, F]'."
    )


def _one(axes: tuple[str, ...], line: Einsum) -> str:
    if len(axes) != 1:
        raise InputError(f"In '{line}' the dim to gather or add up is split over {len(axes)} axes; a ring needs one.")
    return axes[0]


def collective_matmul(
    text: str, mesh: Mesh | AbstractMesh, both_ways: bool = False, tiles: int = 2
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The overlapped function of whole arrays for a line such as `A[B_X, D_Y] @ W[D, F_Y] -> C[B_X, F_Y]`."""
    line = parse_einsum(text)
    pattern = pattern_of(line)
    named = {axis for array in (*line.operands, line.output) for dim in array.dims for axis in dim.axes}
    if missing := named - set(mesh.shape):
        raise InputError(f"The line '{line}' names the axis {min(missing)}, which the mesh {dict(mesh.shape)} lacks.")

    def local(x: jax.Array, weight: jax.Array) -> jax.Array:
        if pattern.collective == "all_reduce":
            return matmul_reduce(x, weight, pattern.axis, tiles, both_ways)
        hidden = gather_matmul if pattern.collective == "all_gather" else matmul_scatter
        return hidden(x, weight, pattern.axis, pattern.inner, both_ways)

    def checked(x: jax.Array, weight: jax.Array) -> jax.Array:
        tiled = tiles * mesh.shape[pattern.axis] if pattern.collective == "all_reduce" else 1
        _check_sizes(line, mesh, (x, weight), tiled)
        return mapped(x, weight)

    specs = tuple(to_partition_spec(array) for array in line.operands)
    # A sum that was passed round is the same everywhere, which the types of permutes cannot say: hence no check.
    mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=to_partition_spec(line.output), check_vma=False)
    return checked


def _check_sizes(line: Einsum, mesh: Mesh | AbstractMesh, operands: tuple[jax.Array, ...], tiled: int) -> None:
    """Every dim must divide by the axes that split it, and the columns of an AllReduce by its tiles."""
    sizes: dict[str, int] = {}
    for array, value in zip(line.operands, operands, strict=True):
        named = zip(array.names, value.shape, strict=False)
        if len(array.dims) != value.ndim or any(sizes.setdefault(name, size) != size for name, size in named):
            raise InputError(f"Operands of shapes {[each.shape for each in operands]} are not those of '{line}'.")
    for array in (*line.operands, line.output):
        for dim in array.dims:
            ways = math.prod(mesh.shape[axis] for axis in dim.axes)
            ways = math.lcm(ways, tiled) if array is line.output and dim is array.dims[-1] else ways
            if sizes[dim.name] % ways:
                raise InputError(
                    f"In '{line}' the dim {dim.name} of {sizes[dim.name]} cannot be cut into {ways} equal parts."
                )
