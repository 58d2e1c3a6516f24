"""Problems of the chapter on training LLaMA-3."""

from dragonscale.course.problems.llama3_training import dividing, planning

__all__ = ["dividing", "planning"]
