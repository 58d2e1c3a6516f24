"""Problems of the chapter on training, in the order in which they are asked."""

from dragonscale.course.problems.training import layer, held, data, tensor, mixed, across  # isort: skip

__all__ = ["across", "data", "held", "layer", "mixed", "tensor"]
