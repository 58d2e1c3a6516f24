"""Which answers nobody beats in everything: the Pareto front of two costs, both of them better when smaller."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy

Item = TypeVar("Item")


def front(items: Sequence[Item], costs: Callable[[Item], tuple[float, float]]) -> list[Item]:
    """The items that no other item equals or beats in both costs; of equals the first stays.

    >>> front([(1, 9), (2, 5), (3, 7), (4, 1)], lambda item: item)
    [(1, 9), (2, 5), (4, 1)]
    """
    kept, least = list[Item](), math.inf
    for (_, second), item in sorted(((costs(item), item) for item in items), key=lambda pair: pair[0]):
        if second < least:
            kept.append(item)
            least = second
    return kept


class Front:
    """A growing front of (time, memory) pairs with a label each, fed by blocks."""

    def __init__(self) -> None:
        self.times: Any = numpy.empty(0)
        self.sizes: Any = numpy.empty(0)
        self.labels: list[Any] = []

    def offer(self, times: Any, sizes: Any, label: Callable[[int], Any]) -> None:
        """Add what of a block stands on the front; `label(place)` names a member of the block."""
        if len(self.times):
            place = numpy.searchsorted(self.times, times, side="right") - 1
            best = numpy.where(place >= 0, self.sizes[place], numpy.inf)
            places = numpy.flatnonzero(sizes < best)
        else:
            places = numpy.arange(len(times))
        if not len(places):
            return
        order = places[numpy.lexsort((sizes[places], times[places]))]
        lowest = numpy.minimum.accumulate(sizes[order])
        first = numpy.concatenate([[True], lowest[1:] < lowest[:-1]])
        self._merge(times[order[first]], sizes[order[first]], [label(int(one)) for one in order[first]])

    def _merge(self, times: Any, sizes: Any, labels: list[Any]) -> None:
        times, sizes = numpy.concatenate([self.times, times]), numpy.concatenate([self.sizes, sizes])
        labels = [*self.labels, *labels]
        order = numpy.lexsort((sizes, times))
        lowest = numpy.minimum.accumulate(sizes[order])
        kept = order[numpy.concatenate([[True], lowest[1:] < lowest[:-1]])]
        self.times, self.sizes, self.labels = times[kept], sizes[kept], [labels[one] for one in kept]
