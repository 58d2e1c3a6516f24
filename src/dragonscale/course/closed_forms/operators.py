"""Collectives as matrices, which says what their backward passes are.

Write the state of p chips as one long vector, chip after chip, and every collective is a linear map. With u a column of
p ones and ⊗ the Kronecker product, copying an array of n elements to p chips is u ⊗ I, and adding p copies up is its
transpose uᵀ ⊗ I. An AllGather of n elements per chip gives every chip a copy of all n·p; a ReduceScatter adds up p
copies and leaves each chip its part. Reverse-mode differentiation multiplies by the transpose, so each is the backward
pass of the other.

>>> transpose_of("all_gather"), transpose_of("reduce_scatter"), transpose_of("broadcast")
('reduce_scatter', 'all_gather', 'reduce')
>>> transpose_of("all_reduce"), transpose_of("all_to_all")
('all_reduce', 'all_to_all')
"""

from typing import Any

from dragonscale.errors import unknown

OPERATORS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce", "all_to_all")


def as_matrix(kind: str, elements: int, chips: int) -> Any:
    """The matrix of a collective over `chips` chips, as a NumPy array.

    `elements` is what each chip holds before an AllGather and after a ReduceScatter; the array that is broadcast,
    reduced or all-reduced; and for an AllToAll, the piece that each chip has for each other.

    >>> as_matrix("broadcast", 1, 2) @ [7]
    array([7, 7])
    >>> as_matrix("reduce", 1, 2) @ [8, 9]
    array([17])
    >>> as_matrix("all_gather", 2, 3).shape
    (18, 6)
    >>> as_matrix("all_to_all", 1, 2) @ [1, 2, 3, 4]
    array([1, 3, 2, 4])
    """
    import numpy

    def copies(size: int) -> Any:
        return numpy.kron(numpy.ones((chips, 1), dtype=int), numpy.eye(size, dtype=int))

    if kind not in OPERATORS:
        raise unknown("collective", kind, OPERATORS)
    if kind in ("broadcast", "reduce", "all_reduce"):
        copy = copies(elements)
        return {"broadcast": copy, "reduce": copy.T, "all_reduce": copy @ copy.T}[kind]
    if kind == "all_to_all":
        places = numpy.arange(chips * chips * elements).reshape(chips, chips, elements)
        return numpy.eye(places.size, dtype=int)[places.swapaxes(0, 1).ravel()]
    gather = copies(elements * chips)
    return gather if kind == "all_gather" else gather.T


def transpose_of(kind: str) -> str:
    """The collective that the backward pass needs where the forward pass has this one."""
    import numpy

    wanted = as_matrix(kind, 2, 3).T
    return next(other for other in OPERATORS if numpy.array_equal(as_matrix(other, 2, 3), wanted))
