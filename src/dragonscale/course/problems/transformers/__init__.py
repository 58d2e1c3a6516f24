"""Problems of the chapter on Transformers, in the order in which they are asked."""

from dragonscale.course.problems.transformers import counting, attention, experts, memory, runs  # isort: skip

__all__ = ["attention", "counting", "experts", "memory", "runs"]
