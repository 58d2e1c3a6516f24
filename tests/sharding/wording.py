"""Steps and strategies in the book's words: `AllGather_X(A) then matmul`."""

from dragonscale.physics.notation import subscript
from dragonscale.physics.sharding.algebra import Strategy
from dragonscale.physics.sharding.reshard import Step

BOOK_NAMES = {
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
    "all_to_all": "AllToAll",
    "permute": "CollectivePermute",
    "slice": "Slice",
}
"""The book's names of collectives."""


def words(step: Step, full: bool = False) -> str:
    """A step as the book writes it, with the array's name or, if `full`, the whole array."""
    array = str(step.before).replace(", ", ",") if full or not step.before.name else step.before.name
    return f"{BOOK_NAMES[step.kind]}{subscript(step.axes)}({array})"


def told(strategy: Strategy) -> str:
    """A strategy in a few words.

    >>> from dragonscale.physics.notation import parse_einsum
    >>> from dragonscale.physics.sharding.algebra import derive
    >>> from dragonscale.physics.sharding.mesh import Mesh
    >>> mesh = Mesh({"X": 4})
    >>> [told(way) for way in derive(parse_einsum("A[I_X, J] @ B[J, K] -> C[I, K]"), mesh)]
    ['matmul then AllGather_X(C)', 'AllGather_X(A) then matmul']
    """
    before = [words(step) for step in strategy.before if not step.free]
    after = [words(step) for step in strategy.after if not step.free]
    return " then ".join([*before, "matmul", *after])
