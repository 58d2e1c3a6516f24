"""What a fleet's tokens cost, and how many prefill replicas keep a decode replica full. Floats, arrays or symbols."""

from dragonscale.physics.numbers import Number


def usd_per_million(tokens_per_second: Number, chips: Number, usd_per_chip_hour: Number) -> Number:
    """Dollars for a million tokens that `chips` chips make at a rate of `tokens_per_second` together.

    >>> round(usd_per_million(234.3, 1, 1.2), 2)
    1.42
    """
    return chips * usd_per_chip_hour * 1e6 / tokens_per_second / 3600


def pool_ratio(prefill: Number, batch: Number, step: Number, output: Number) -> Number:
    """Prefill replicas that keep one decode replica full: requests that end there per second, times the seconds that a
    prompt takes of a prefill replica (its latency over how many run at once).

    >>> round(pool_ratio(0.91, 32, 0.019, 512), 1)  # the book: three to one
    3.0
    """
    return batch / (step * output) * prefill
