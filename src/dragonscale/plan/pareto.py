"""The Pareto front of two costs, both of them better when smaller."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


def front(items: Sequence[Item], costs: Callable[[Item], tuple[float, float]]) -> list[Item]:
    """The items that no other item equals or beats in both costs; of equal items the first stays.

    >>> front([(1, 9), (2, 5), (3, 7), (4, 1)], lambda item: item)
    [(1, 9), (2, 5), (4, 1)]
    """
    best: list[Item] = []
    lowest = math.inf  # second cost of the items so far, which all have a smaller first one
    for item in sorted(items, key=costs):
        second = costs(item)[1]
        if second < lowest:
            best.append(item)
            lowest = second
    return best


class Front:
    """A growing front of (time, memory) pairs, each with a label, fed in blocks. Times and sizes have shape (members,)
    and are sorted: times rise and sizes fall."""

    def __init__(self) -> None:
        self.times: NDArray[np.float64] = np.empty(0)
        self.sizes: NDArray[np.float64] = np.empty(0)
        self.labels: list[Any] = []

    def offer(self, times: NDArray[np.float64], sizes: NDArray[np.float64], label: Callable[[int], Any]) -> None:
        """Add the pairs of a block that are on the front; `label(index)` makes the label of one of them."""
        candidates = np.arange(len(times))
        if len(self.times):
            # the smallest size of the front among those that are no slower
            before = np.searchsorted(self.times, times, side="right") - 1
            lowest = np.where(before >= 0, self.sizes[before], np.inf)
            candidates = np.flatnonzero(sizes < lowest)
        if not len(candidates):
            return
        added = candidates[_front_of(times[candidates], sizes[candidates])]
        times, sizes = np.concatenate([self.times, times[added]]), np.concatenate([self.sizes, sizes[added]])
        labels = [*self.labels, *map(label, added.tolist())]
        # new pairs may beat old ones as well
        front = _front_of(times, sizes)
        self.times, self.sizes, self.labels = times[front], sizes[front], [labels[index] for index in front]


def _front_of(times: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.int_]:
    """The indices of the pairs on the front, by rising time."""
    order = np.lexsort((sizes, times))
    lowest = np.minimum.accumulate(sizes[order])
    is_new_lowest = np.concatenate([[True], lowest[1:] < lowest[:-1]])
    return order[is_new_lowest]
