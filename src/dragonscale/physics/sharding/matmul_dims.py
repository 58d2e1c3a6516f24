"""The indices of a sharded einsum as those of a matmul: its m, n, k, batch and experts."""

from typing import NamedTuple

from dragonscale.physics.notation import Array


class MatmulDims(NamedTuple):
    """The names of the indices that make up the m, n and k of a matmul, its batch, and the experts of a grouped one."""

    rows: list[str]
    columns: list[str]
    contracted: list[str]
    batch: list[str]
    experts: list[str]


def matmul_dims(arrays: tuple[Array, ...]) -> MatmulDims:
    """The indices of a matmul (grouped, if experts are selected) of the first two arrays into the last."""
    experts = {dim.name for array in arrays for dim in array.dims if dim.select}
    # of the rows (..., m, k), the weights (..., k, n) and the result (..., m, n); experts only choose the weights
    left, right, out = (set(array.names) - experts for array in (arrays[0], arrays[1], arrays[-1]))
    # an index of all three is looped over, as the sequences and heads of attention are
    batch = left & right & out
    return MatmulDims(
        rows=sorted((left & out) - batch),
        columns=sorted((right & out) - batch),
        contracted=sorted((left | right) - out),
        batch=sorted(batch),
        experts=sorted(experts),
    )
