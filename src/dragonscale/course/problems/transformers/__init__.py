"""Problems of the chapter on Transformers."""

from dragonscale.course.problems.transformers import attention, counting, experts, memory, runs

__all__ = ["attention", "counting", "experts", "memory", "runs"]
