"""Problems of the chapter on training."""

from dragonscale.course.problems.training import across, data, held, layer, mixed, tensor

__all__ = ["across", "data", "held", "layer", "mixed", "tensor"]
