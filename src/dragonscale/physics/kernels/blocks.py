"""Long arrays in blocks: temporary results of a formula then stay in the processor's cache, which is several times
faster."""

from collections.abc import Callable

from dragonscale.physics.numbers import Number, is_array, widened

BLOCK = 16_384
"""Elements of a block: 128 KiB of floats."""


def evaluate(formula: Callable[..., Number], *values: Number) -> Number:
    """`formula(*values)` element by element; the values are numbers, symbols or arrays that broadcast together.

    >>> import numpy
    >>> evaluate(lambda a, b: a * b, numpy.arange(40_000), 2).sum()
    np.float64(1599960000.0)
    """
    values = tuple(widened(value) for value in values)
    arrays = [value for value in values if is_array(value)]
    if not arrays or (max(array.size for array in arrays) <= BLOCK and len({array.shape for array in arrays}) == 1):
        return formula(*values)
    import numpy

    shape = numpy.broadcast_shapes(*(array.shape for array in arrays))
    flat = [numpy.broadcast_to(value, shape).reshape(-1) if is_array(value) else value for value in values]
    size = next(value.size for value in flat if is_array(value))
    result = numpy.empty(size)
    for start in range(0, size, BLOCK):
        part = slice(start, start + BLOCK)
        result[part] = formula(*(value[part] if is_array(value) else value for value in flat))
    return result.reshape(shape)
