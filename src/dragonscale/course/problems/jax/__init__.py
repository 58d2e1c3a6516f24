"""Problems of the chapter on JAX: what a sharding lays where, what XLA inserts, collective matmuls. None needs JAX."""

# ruff: noqa: I001  the order of the imports is the order of the problems

from dragonscale.course.problems.jax import shardings
from dragonscale.course.problems.jax import shard_maps
from dragonscale.course.problems.jax import collective_matmuls
from dragonscale.course.problems.jax import overlap
from dragonscale.course.problems.jax import routing

__all__ = ["collective_matmuls", "overlap", "routing", "shard_maps", "shardings"]
