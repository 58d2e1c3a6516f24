"""FLOPs of elementwise functions and of reductions over a row, for each element of the result.

A FLOP here is one arithmetic operation of the function as it is usually written, an exponential, a root or a division
counted as one. Most of these run on the vector unit and are bound by memory by an order of magnitude, so the count
decides little; what matters is that every array crosses memory once.

>>> flops_per_element("softmax"), flops_per_element("relu"), flops_per_element("anything")
(5, 1, 1)
"""

from dragonscale.tables import beside

FLOPS: dict[str, int] = beside(__file__, "elementwise.toml")
"""FLOPs for each element of the result; the file beside this module gives the definitions."""


def flops_per_element(function: str) -> int:
    """FLOPs of a function for each element of its result; 1 for a function that is not in the table."""
    return FLOPS.get(function.lower().replace("_", ""), 1)
