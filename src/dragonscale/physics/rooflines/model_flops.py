"""FLOPs of a model by the book's rule of thumb: 2 per parameter and token forward, 6 for training.

Every parameter of a matrix is multiplied and added once per token: 2 FLOPs. The backward pass does it twice, once for
the gradient of the activations and once for that of the weights. Hence 2·params·tokens forward and 6·params·tokens for
training. It leaves out attention's dot products, T/(8D) of the rest for a plain Transformer, and counts an embedding's
rows only if `params` does. Recomputing the forward pass in the backward pass (rematerialisation) adds 2.
"""

from dragonscale.errors import InputError
from dragonscale.physics.numbers import Number

MAX_RECOMPUTED = 2
"""Forward passes that a backward pass repeats, at most: 1 is all of it, 2 allows for a block that is done twice."""


def model_flops(active_params: Number, tokens: Number, training: bool = True, recomputed: Number = 0) -> Number:
    """2 FLOPs for each parameter, token and pass: 1 pass forward, 3 in training, and `recomputed` (0 to 1) repeated.

    A model uses `active_params` parameters for each of `tokens` tokens. `recomputed` is the fraction of the forward
    pass that the backward pass repeats: 1, all of it, if only the inputs of blocks are saved. It is not useful work, so
    an MFU leaves it out.

    >>> model_flops(37e9, 14.8e12)
    3.2856e+24
    >>> model_flops(1, 1, training=False), model_flops(1, 1), model_flops(1, 1, recomputed=1)
    (2, 6, 8)
    """
    if isinstance(recomputed, int | float) and not 0 <= recomputed <= MAX_RECOMPUTED:
        raise InputError(
            f"recomputed is {recomputed:g}; it counts forward passes that are done again, from 0 (nothing) to 1 "
            "(all of it)."
        )
    passes = 3 + recomputed if training else 1
    return 2 * passes * active_params * tokens
