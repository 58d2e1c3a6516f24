"""Matmuls that hide their collective: pieces travel round a ring while the product of the last one is computed.

A blocking collective waits for all bytes before the first FLOP. A ring can do better: every chip multiplies the piece it
has while the next arrives from its neighbour, so that only the first or last hop is exposed. Three collectives can be
taken apart in this way, over a mesh axis Y:

| collective | line | what travels |
|---|---|---|
| AllGather | `A[B, D_Y] · W[D, F_Y] -> C[B, F_Y]` or `A[B_Y, D] · W[D, F_Y] -> C[B, F_Y]` | pieces of A |
| ReduceScatter | `A[B, F_Y] · W[F_Y, D] -> C[B, D_Y]` or `-> C[B_Y, D]` | growing sums of C |
| AllReduce | `A[B, F_Y] · W[F_Y, D] -> C[B, D]` | sums of a tile of C, then its pieces, while the next tile is computed |

Chips of a ring have a wire in each direction. `both_ways` uses both: pieces travel half as far, and where the ring is even
the farthest piece comes in halves from either side.

The functions with an `axis` are for one chip's view, inside `jax.shard_map`; `collective_matmul` reads a line of the
book's notation and gives the function of whole arrays. Loops are unrolled, so that the compiler sees what may overlap.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from dragonscale.errors import InputError
from dragonscale.notation import Array, Einsum, parse_einsum
from dragonscale.sharding.partition_spec import to_partition_spec


@dataclass(frozen=True)
class Hops:
    """How far pieces travel in each direction of a ring; `halved` says that the last hop carries half a piece each way."""

    left: int
    right: int
    halved: bool

    @property
    def steps(self) -> int:
        """Hops that follow one another."""
        return max(self.left, self.right)

    @property
    def piece_times(self) -> float:
        """Time on the wires, in units of one piece over one link."""
        return self.steps - 0.5 if self.halved else float(self.steps)


def hops(size: int, both_ways: bool = False, divisible: bool = True) -> Hops:
    """The hops of a ring of `size` chips; an even ring halves its farthest piece if that is `divisible` by two.

    >>> hops(8), hops(8, both_ways=True).piece_times
    (Hops(left=7, right=0, halved=False), 3.5)
    """
    if not both_ways:
        return Hops(size - 1, 0, False)
    halved = size % 2 == 0 and divisible
    return Hops(size // 2, size // 2 if halved else (size - 1) // 2, halved)


def piece_held(chip: int, step: int, size: int) -> int:
    """Whose piece a chip multiplies at a step when pieces travel left.

    >>> [piece_held(1, step, 4) for step in range(4)]
    [1, 2, 3, 0]
    """
    return (chip + step) % size


@dataclass(frozen=True)
class Piece:
    """What a chip has of another's shard: `start` is where in that shard it begins."""

    source: jax.Array
    start: int
    value: jax.Array


def _shift(value: jax.Array, axis: str, by: int) -> jax.Array:
    size = jax.lax.axis_size(axis)
    return jax.lax.ppermute(value, axis, [(chip, (chip + by) % size) for chip in range(size)])


def travelling(x: jax.Array, axis: str, dim: int, both_ways: bool = False) -> Iterator[Piece]:
    """Every chip's shard of x, the own one first, each as soon as it arrives: an AllGather along `dim`, piece by piece."""
    size, mine = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    way = hops(size, both_ways, x.shape[dim] % 2 == 0)
    yield Piece(mine, 0, x)
    leftward = rightward = x
    for step in range(1, way.steps + 1):
        last = way.halved and step == way.steps
        if step <= way.left:
            half = x.shape[dim] // 2 if last else x.shape[dim]
            leftward = _shift(jax.lax.slice_in_dim(leftward, 0, half, axis=dim), axis, -1)
            yield Piece((mine + step) % size, 0, leftward)
        if step <= way.right:
            start = x.shape[dim] // 2 if last else 0
            rightward = _shift(jax.lax.slice_in_dim(rightward, start, x.shape[dim], axis=dim), axis, 1)
            yield Piece((mine - step) % size, start, rightward)


def gather_matmul(
    x: jax.Array, weight: jax.Array, axis: str, summed: bool = True, both_ways: bool = False
) -> jax.Array:
    """AllGather(x) · weight. `summed`: x[…, d/Y] is gathered along the dim that is summed; else x[…, t/Y, d] along its rows."""
    width = x.shape[-1 if summed else -2]
    if summed:
        total: jax.Array | None = None
        for piece in travelling(x, axis, x.ndim - 1, both_ways):
            at = piece.source * width + piece.start
            rows = jax.lax.dynamic_slice_in_dim(weight, at, piece.value.shape[-1], 0)
            part = jnp.matmul(piece.value, rows, preferred_element_type=jnp.float32)
            total = part if total is None else total + part
        assert total is not None
        return total.astype(x.dtype)
    size = jax.lax.axis_size(axis)
    result = jnp.zeros((*x.shape[:-2], size * width, weight.shape[-1]), x.dtype)
    for piece in travelling(x, axis, x.ndim - 2, both_ways):
        at = piece.source * width + piece.start
        result = jax.lax.dynamic_update_slice_in_dim(result, piece.value @ weight, at, x.ndim - 2)
    return result


def scattered_sum(product: Callable[[jax.Array], jax.Array], axis: str, dim: int, both_ways: bool = False) -> jax.Array:
    """A ReduceScatter of partial sums that do not exist yet: `product(chip)` computes the part that a chip shall have.

    Sums travel towards their owner and grow at every chip on the way; what the owner computes itself comes last.
    """
    size, mine = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    width = jax.eval_shape(product, mine).shape[dim]
    way = hops(size, both_ways, width % 2 == 0)
    far = product((mine + size // 2) % size) if way.halved else None
    left: jax.Array | None = None
    right: jax.Array | None = None
    for step in range(way.steps, 0, -1):
        if far is not None and step == way.steps:
            left = _shift(jax.lax.slice_in_dim(far, 0, width // 2, axis=dim), axis, -1)
            right = _shift(jax.lax.slice_in_dim(far, width // 2, width, axis=dim), axis, 1)
            continue
        if step <= way.left:
            left = _shift(_joined(left, product((mine - step) % size), dim, 0), axis, -1)
        if step <= way.right:
            right = _shift(_joined(right, product((mine + step) % size), dim, width), axis, 1)
    return _joined(right, _joined(left, product(mine), dim, 0), dim, width)


def _joined(sum_so_far: jax.Array | None, part: jax.Array, dim: int, end: int) -> jax.Array:
    """A sum plus one more part; a sum of half the width belongs to the beginning (`end` 0) or the end of the part."""
    if sum_so_far is None:
        return part
    missing = part.shape[dim] - sum_so_far.shape[dim]
    if missing:
        edges = [(0, 0)] * part.ndim
        edges[dim] = (missing, 0) if end else (0, missing)
        sum_so_far = jnp.pad(sum_so_far, edges)
    return sum_so_far + part


def matmul_scatter(
    x: jax.Array, weight: jax.Array, axis: str, columns: bool = True, both_ways: bool = False
) -> jax.Array:
    """ReduceScatter(x · weight), where x[…, f/Y] and weight[f/Y, d] hold parts of the summed dim. The result is split along
    its `columns` (d), or along its rows, the last dim but one."""
    size = jax.lax.axis_size(axis)

    def product(chip: jax.Array) -> jax.Array:
        if columns:
            width = weight.shape[-1] // size
            return x @ jax.lax.dynamic_slice_in_dim(weight, chip * width, width, weight.ndim - 1)
        width = x.shape[-2] // size
        return jax.lax.dynamic_slice_in_dim(x, chip * width, width, x.ndim - 2) @ weight

    return scattered_sum(product, axis, x.ndim - 1 if columns else x.ndim - 2, both_ways)


def gather_ring(x: jax.Array, axis: str, dim: int, both_ways: bool = False) -> jax.Array:
    """The AllGather itself as a ring, for what is overlapped with other work."""
    width, shape = x.shape[dim], list(x.shape)
    shape[dim] *= jax.lax.axis_size(axis)
    result = jnp.zeros(shape, x.dtype)
    for piece in travelling(x, axis, dim, both_ways):
        at = piece.source * width + piece.start
        result = jax.lax.dynamic_update_slice_in_dim(result, piece.value, at, dim)
    return result


def matmul_reduce(x: jax.Array, weight: jax.Array, axis: str, tiles: int = 2, both_ways: bool = False) -> jax.Array:
    """AllReduce(x · weight), tile by tile of its columns: while a finished tile is passed round, the next is computed."""
    parts = [
        gather_ring(matmul_scatter(x, tile, axis, both_ways=both_ways), axis, x.ndim - 1, both_ways)
        for tile in jnp.split(weight, tiles, axis=-1)
    ]
    return jnp.concatenate(parts, -1)


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
    missing = {axis for array in (*line.operands, line.output) for dim in array.dims for axis in dim.axes} - set(
        mesh.shape
    )
    if missing:
        raise InputError(f"The line '{line}' names the axis {min(missing)}, which the mesh {dict(mesh.shape)} lacks.")

    def local(x: jax.Array, weight: jax.Array) -> jax.Array:
        if pattern.collective == "all_gather":
            return gather_matmul(x, weight, pattern.axis, pattern.inner, both_ways)
        if pattern.collective == "reduce_scatter":
            return matmul_scatter(x, weight, pattern.axis, pattern.inner, both_ways)
        return matmul_reduce(x, weight, pattern.axis, tiles, both_ways)

    specs = tuple(to_partition_spec(array) for array in line.operands)
    # A sum that was passed round is the same everywhere, which the types of permutes cannot say: hence no check.
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=to_partition_spec(line.output), check_vma=False)
