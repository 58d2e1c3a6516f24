"""Elementwise functions and reductions over a row, and the FLOPs they take for each element.

A FLOP here is one arithmetic operation of the function as it is usually written, an exponential, a root
or a division counted as one. Most of these run on the vector unit and are bound by memory by an order of
magnitude, so the count decides little; what matters is that every array crosses memory once.

>>> flops_per_element("softmax"), flops_per_element("relu"), flops_per_element("anything")
(5, 1, 1)
"""

FLOPS = {
    "add": 1,  # x + y
    "sub": 1,
    "mul": 1,
    "relu": 1,  # max(x, 0)
    "sigmoid": 4,  # 1 / (1 + exp(-x))
    "silu": 4,  # x / (1 + exp(-x))
    "swish": 4,
    "gelu": 9,  # x/2 · (1 + tanh(c·(x + a·x³))): two for x³, one each for a, +, c, tanh, +, · and /2
    "swiglu": 5,  # silu(gate) · up
    "geglu": 10,  # gelu(gate) · up
    "softmax": 5,  # the largest, subtract, exp, the sum, divide
    "rmsnorm": 4,  # square, the sum, times 1/rms, times the weight
    "layernorm": 7,  # the mean, subtract, square, the sum, times 1/sigma, times the weight, plus the bias
    "rope": 3,  # x·cos + turned x·sin
}
"""FLOPs for each element of the result, by the definitions beside them."""


def flops_per_element(function: str) -> int:
    """FLOPs of a function for each element of its result; one for a function that is not known."""
    return FLOPS.get(function.lower().replace("_", ""), 1)
