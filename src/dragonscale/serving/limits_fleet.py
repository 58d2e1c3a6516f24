"""What fits, how fast it turns over, how many of each pool, and what a token costs.

The quantities that a plan of serving comes down to once the times of its phases are known, by whatever model: the book's
floors (`limits`) or expected times. Floats, arrays or symbols throughout.

>>> from dragonscale.hardware import load_chip
>>> v5e = load_chip("v5e")
>>> print(smallest_slice(v5e, 70e9))
v5e:2x4
>>> largest_batch(8 * v5e.hbm.capacity, 70e9, 163840 * 8192)
43
>>> round(usd_per_million(234.3, 1, v5e.price), 2)
1.42
"""

import math

from dragonscale.hardware import Chip, Slice, Torus
from dragonscale.hardware.slices import chips_to_hold, possible_shapes
from dragonscale.numbers import Number, floor, maximum
from dragonscale.training.rules_of_thumb import run_cost


def free_bytes(memory: Number, weights: Number, reserved: Number = 0) -> Number:
    """Bytes left for caches beside the weights and whatever else is `reserved`; below 0 where the weights do not fit."""
    return memory - weights - reserved


def largest_batch(memory: Number, weights: Number, cache: Number, reserved: Number = 0) -> Number:
    """Whole sequences of `cache` bytes that fit beside the weights; 0 where not even one does.

    All in bytes of one copy of the model, or of one chip of it.
    """
    return maximum(floor(free_bytes(memory, weights, reserved) / cache), 0)


def smallest_slice(chip: Chip, size: float) -> Slice | None:
    """The smallest slice of one pod whose memory holds `size` bytes, or None where even a pod does not.

    GPUs come in powers of two within a node, so that heads divide, and in whole nodes beyond.
    """
    network = chip.network
    if isinstance(network, Torus):
        shapes = possible_shapes(chip)
        fitting = [shape for shape in shapes if math.prod(shape) * chip.hbm.capacity >= size]
        return Slice(chip, fitting[0]) if fitting else None
    node = network.levels[0].degree
    count = chips_to_hold(chip, size)
    within = 2 ** math.ceil(math.log2(max(count, 1)))
    return Slice(chip, (within if within <= node else chips_to_hold(chip, size, node),))


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


def pool_ratio(prefill: Number, batch: Number, step: Number, output: Number) -> Number:
    """Prefill replicas that keep one decode replica full: prompts that end there per second, times the seconds that one
    prompt takes of a prefill replica (its latency over how many it does at once).

    >>> round(pool_ratio(0.91, 32, 0.019, 512), 1)  # the book: three to one
    3.0
    """
    return requests_per_second(batch, step, output) * prefill


def usd_per_million(tokens_per_second: Number, chips: Number, usd_per_chip_hour: Number) -> Number:
    """Dollars for a million tokens that so many chips make at a rate."""
    return run_cost(chips, 1e6 / tokens_per_second, usd_per_chip_hour)
