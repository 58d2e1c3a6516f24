"""Problems of the chapter on training LLaMA-3, in the order in which they are asked."""

from dragonscale.course.problems.llama3_training import planning, dividing  # isort: skip

__all__ = ["dividing", "planning"]
