"""Rewards by a rule, which random weights can learn too, and what answers are worth beside others to the same prompt.

>>> RULES["low"]([1, 2, 9], 10), RULES["sorted"]([1, 2, 2, 0], 10), RULES["short"]([5, 5], 10)
(0.6666666666666666, 0.6666666666666666, -2.0)
>>> advantages([1.0, 0.0, 2.0, 2.0], group=2).round(2).tolist()
[1.0, -1.0, 0.0, 0.0]
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy

Rule = Callable[[Sequence[int], int], float]
"""The reward of an answer's tokens, of a vocabulary so large."""


def _low(tokens: Sequence[int], vocabulary: int) -> float:
    """The part of tokens that are in the lower half of the vocabulary."""
    return sum(token < vocabulary / 2 for token in tokens) / max(len(tokens), 1)


def _sorted(tokens: Sequence[int], _: int) -> float:
    """The part of tokens that are no smaller than the one before."""
    return sum(one <= after for one, after in pairwise(tokens)) / max(len(tokens) - 1, 1)


RULES: dict[str, Rule] = {"low": _low, "sorted": _sorted, "short": lambda tokens, _: -float(len(tokens))}
SPREAD = 1e-6
"""Below it answers are worth the same."""


def advantages(rewards: Sequence[float], group: int) -> numpy.ndarray:
    """Rewards over the mean of their group, in its standard deviations (GRPO, arXiv:2402.03300)."""
    each = numpy.asarray(rewards, float).reshape(-1, group)
    apart = each - each.mean(1, keepdims=True)
    return (apart / (each.std(1, keepdims=True) + SPREAD)).ravel()
