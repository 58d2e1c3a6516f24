"""Attention over keys that lie in several places: partial softmaxes and how they combine.

Each part of the keys gives the largest score M, the sum L of exp(score − M), and the values weighted by the same
exponentials, O, not yet divided by L. Two parts combine by bringing both to the larger M. The operation is associative
and commutative, so it serves flash attention (parts of one chip's keys, one after the other), a KV cache split over
chips (an AllReduce with this sum in place of +) and ring attention alike.

>>> both = combine(Partial(3.0, 2.5), Partial(5.0, 1.25))
>>> both.largest, round(both.total, 6)
(5.0, 1.588338)
"""

from dataclasses import dataclass

from dragonscale.physics.numbers import Number, exp, maximum


@dataclass(frozen=True)
class Partial:
    """The softmax of some of the keys: largest score, sum of exponentials, and weighted values (0 if not wanted)."""

    largest: Number
    total: Number
    values: Number = 0

    @property
    def output(self) -> Number:
        """The attention's output, if these were all the keys."""
        return self.values / self.total


def combine(first: Partial, second: Partial) -> Partial:
    """The softmax over the keys of both parts.

    >>> import math
    >>> parts = [Partial(score, 1.0, value) for score, value in ((1.0, 10.0), (2.0, 20.0), (0.5, 5.0))]
    >>> whole = combine(combine(parts[0], parts[1]), parts[2])
    >>> weights = [math.exp(score) for score in (1.0, 2.0, 0.5)]
    >>> math.isclose(whole.output, sum(w * v for w, v in zip(weights, (10, 20, 5))) / sum(weights))
    True
    """
    largest = maximum(first.largest, second.largest)
    here, there = exp(first.largest - largest), exp(second.largest - largest)
    return Partial(largest, here * first.total + there * second.total, here * first.values + there * second.values)
