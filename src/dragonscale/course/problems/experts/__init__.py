"""Problems of the chapter on experts: what they weigh, how they are fed, how tokens reach them."""

from dragonscale.course.problems.experts import weights, exchange, load  # isort: skip

__all__ = ["exchange", "load", "weights"]
