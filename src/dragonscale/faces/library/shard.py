"""`ds.shard`: what a sharded einsum needs.

>>> import dragonscale as ds
>>> found = ds.shard("A[I, J_X] @ B[J_X, K] -> C[I, K]", on="v5e:4x4", sizes={"I": 1024, "J": 8192, "K": 1024})
>>> [move.collective for move in found.best[0].collectives], found.best[0].bound_by
(['all_reduce'], 'network')
>>> [row.replicas for row in found.forward[0].arrays]
[4, 4, 16]
"""

from dragonscale.app.questions.operations import ShardQuestion
from dragonscale.app.shard.ask import ask
from dragonscale.faces.library.asking import asking

shard = asking(
    "shard",
    ShardQuestion,
    ask,
    """
    Which collectives a sharded einsum, a chain of them or a reshard needs, and what they cost.

    Returns a `ShardReport`: `.forward` and `.backward` have for each einsum its arrays (local shapes, bytes,
    replicas) and the ways to do it, cheapest first; `.best` the cheapest way of each.
    """,
)
