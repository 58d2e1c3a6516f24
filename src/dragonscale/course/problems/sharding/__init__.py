"""Problems of the chapter on sharding: layouts, sharded matmuls, collectives, and choices between them."""

# ruff: noqa: I001  the order of the imports is the order of the problems

from dragonscale.course.problems.sharding import layouts
from dragonscale.course.problems.sharding import matmuls
from dragonscale.course.problems.sharding import rings
from dragonscale.course.problems.sharding import collectives
from dragonscale.course.problems.sharding import axes
from dragonscale.course.problems.sharding import choices
from dragonscale.course.problems.sharding import slices

__all__ = ["axes", "choices", "collectives", "layouts", "matmuls", "rings", "slices"]
