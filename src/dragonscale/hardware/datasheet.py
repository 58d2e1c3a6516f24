"""Reading datasheets: figures that are not what they seem."""

from dragonscale.numbers import Number


def dense_rate(advertised: Number, kept: int = 2, of: int = 4) -> Number:
    """The FLOP/s for ordinary matrices from a figure "with sparsity".

    Such a figure counts the multiplications by zeros that are skipped when `kept` of every `of` weights are not zero; the
    units themselves are no faster. NVIDIA's datasheets print it for Tensor Cores since the A100, with 2 of 4.

    >>> dense_rate(1979e12)
    989500000000000.0
    """
    return advertised * kept / of
