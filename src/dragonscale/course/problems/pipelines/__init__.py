"""Problems of the chapter on pipelines: bubbles, what stays in memory, what is sent, stages that are not even."""

from dragonscale.course.problems.pipelines import bubbles, memory, stages  # isort: skip

__all__ = ["bubbles", "memory", "stages"]
