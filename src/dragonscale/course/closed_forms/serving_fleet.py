"""What fits, how fast it turns over, how many of each pool, and what a token costs.

The quantities that a plan of serving comes down to once the times of its phases are known, by whatever model: the
book's floors (`limits`) or expected times. Floats, arrays or symbols throughout.

>>> largest_batch(8 * 16e9, 70e9, 163840 * 8192)
43
"""

from dragonscale.physics.numbers import Number, floor, maximum


def free_bytes(memory: Number, weights: Number, reserved: Number = 0) -> Number:
    """Bytes left for caches beside the weights and whatever else is `reserved`; below 0 where the
    weights do not fit."""
    return memory - weights - reserved


def largest_batch(memory: Number, weights: Number, cache: Number, reserved: Number = 0) -> Number:
    """Whole sequences of `cache` bytes that fit beside the weights, none (0) where not even one does.

    All in bytes of one copy of the model, or of one chip of it.
    """
    return maximum(floor(free_bytes(memory, weights, reserved) / cache), 0)


def requests_per_second(batch: Number, step: Number, output: Number) -> Number:
    """Requests that a replica finishes per second when its batch is always full: each takes `output` steps.

    >>> round(requests_per_second(43, 0.019, 512), 2)
    4.42
    """
    return batch / (step * output)


def finished_per_step(batch: Number, output: Number) -> Number:
    """Sequences that end in a decode step, on average."""
    return batch / output


def evicted_per_step(batch: Number, prompt: Number, output: Number) -> Number:
    """Cached tokens that a decode step frees, on average: a sequence that ends takes its prompt and its output along.

    >>> evicted_per_step(32, 8192, 4096)
    96.0
    """
    return finished_per_step(batch, output) * (prompt + output)
