"""Arithmetic of intervals on arrays: unions, how much of a window they cover, time that several share; and look-ups.

Everything here takes starts and ends as arrays of nanoseconds and costs one sort, so that millions of events take
seconds.

>>> import numpy as np
>>> busy = union(np.array([0, 5, 20]), np.array([10, 12, 30]))
>>> busy
(array([ 0, 20]), array([12, 30]))
>>> covered(*busy)(np.array([0, 10, 25, 40])).tolist()
[0.0, 10.0, 17.0, 22.0]
"""

from collections.abc import Callable

import numpy as np

Covering = Callable[[np.ndarray], np.ndarray]
"""How much lies before each of some moments, in ns."""
Spans = tuple[np.ndarray, np.ndarray]
"""Starts and ends."""
NONE: Spans = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: np.ndarray, end: np.ndarray) -> Spans:
    """Intervals that overlap or touch, joined; in order."""
    some = end > start
    start, end = start[some], end[some]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > reached[:-1]
    last = np.append(first[1:], True)
    return start[first], reached[last]


def covered(start: np.ndarray, end: np.ndarray) -> Covering:
    """The length covered before a moment, by intervals that are in order and apart."""
    return _ramp(np.stack([start, end], 1).ravel(), np.stack([end - start, np.zeros_like(start)], 1).ravel())


def shared(start: np.ndarray, end: np.ndarray, hidden: Spans = NONE) -> Covering:
    """The same where intervals overlap, and those that run at a moment share it: with two at once each gets half.
    Nothing is gained where `hidden` (in order and apart) covers them.

    >>> import numpy as np
    >>> when = shared(np.array([0, 0]), np.array([10, 20]), (np.array([16]), np.array([30])))
    >>> (when(np.array([10, 20])) - when(np.array([0, 0]))).tolist()
    [5.0, 11.0]
    """
    moments, place = np.unique(np.concatenate([start, end, *hidden]), return_inverse=True)
    parts = np.split(place, np.cumsum([len(start), len(end), len(hidden[0])]))
    running, covering = (
        np.cumsum(np.bincount(up, minlength=len(moments)) - np.bincount(down, minlength=len(moments)))
        for up, down in ((parts[0], parts[1]), (parts[2], parts[3]))
    )
    lengths = np.append(np.diff(moments), 0)
    counts = (running > 0) & (covering == 0)
    return _ramp(moments, np.where(counts, lengths / np.maximum(running, 1), 0.0))


def _ramp(moments: np.ndarray, gained: np.ndarray) -> Covering:
    """What is gained from each moment to the next, added up and read between moments along a straight line."""
    if not len(moments):
        return lambda when: np.zeros(len(when))
    before = np.concatenate([[0.0], np.cumsum(gained[:-1])])
    return lambda when: np.interp(when, moments, before)


def outside(windows: np.ndarray) -> Spans:
    """All of time but some windows, which are in order and apart."""
    far = np.iinfo(np.int64).max // 4
    start, end = np.concatenate([[-far], windows[:, 1]]), np.concatenate([windows[:, 0], [far]])
    return start[end > start], end[end > start]


def without(start: np.ndarray, end: np.ndarray, window: tuple[int, int]) -> Spans:
    """What a window has beside intervals that are in order and apart: its gaps.

    >>> import numpy as np
    >>> without(np.array([2, 6]), np.array([4, 12]), (0, 10))
    (array([0, 4]), array([2, 6]))
    """
    first, last = window
    inside = slice(int(np.searchsorted(end, first, side="right")), int(np.searchsorted(start, last, side="left")))
    opens = np.concatenate([[first], np.maximum(end[inside], first)])
    closes = np.concatenate([np.minimum(start[inside], last), [last]])
    some = closes > opens
    return opens[some], closes[some]


def least_between(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The least of some values from each `low` on up to each `high`; anything where there are none between.

    >>> least_between(np.array([5, 3, 4, 1]), np.array([0, 2, 4]), np.array([2, 4, 4]))[:2].tolist()
    [3, 1]
    """
    none = np.iinfo(np.int64).max
    # `reduceat` takes one value where a stretch is empty; the value behind the last lets a stretch end there
    cuts = np.stack([low, np.maximum(high, low)], 1).ravel()
    return np.minimum.reduceat(np.append(values.astype(np.int64), none), cuts)[::2]


def looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, otherwise: int = -1) -> np.ndarray:
    """The value of each wanted key, of keys in order; `otherwise` where there is none.

    >>> looked_up(np.array([2, 5]), np.array([20, 50]), np.array([5, 3, 2])).tolist()
    [50, -1, 20]
    """
    if not len(keys):
        return np.full(len(wanted), otherwise)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], otherwise)
