"""Whether a loss is where it should be: spikes are remarked on, and a run that diverges is ended.

A spike is a loss far above those before it: above their median by six median deviations (four standard deviations of
numbers that scatter evenly) and by a twentieth. While one lasts no checkpoint is written over a good one. A run has
diverged when half of what it had learnt is lost: the median of its last losses lies above the middle between the best
such median and a guess (the logarithm of the vocabulary).
"""

import math
import statistics
from collections import deque
from collections.abc import Iterable

BEFORE, LAST = 50, 20
"""Losses that one is held against, and those whose median counts."""
DEVIATIONS, LEAST, LEARNT = 6, 1.05, 0.9
"""How far above the median a spike is, in median deviations and at least; what part of a guess the best is, before
anything can be lost."""


class LossWatch:
    """The losses of a run, with those `before` it where it goes on.

    >>> watch = LossWatch(vocab=1000, before=[3.0 + 0.01 * (step % 5) for step in range(50)])
    >>> watch.take(3.05), watch.take(4.0), watch.diverged
    (False, True, False)
    >>> all([watch.take(6.5) for _ in range(20)]), watch.diverged
    (True, True)
    """

    def __init__(self, vocab: int, before: Iterable[float] = ()) -> None:
        self.guess, self.best, self.diverged = math.log(vocab), math.inf, False
        self.losses: deque[float] = deque(maxlen=BEFORE)
        for loss in before:
            self.take(loss)

    def take(self, loss: float) -> bool:
        """One more; whether it is a spike."""
        spike = False
        if len(self.losses) >= LAST:
            middle = statistics.median(self.losses)
            spread = statistics.median(abs(one - middle) for one in self.losses)
            spike = loss > max(middle + DEVIATIONS * spread, LEAST * middle)
        self.losses.append(loss)
        if len(self.losses) >= LAST:
            now = statistics.median(list(self.losses)[-LAST:])
            self.best = min(self.best, now)
            self.diverged = self.best < LEARNT * self.guess and now > (self.best + self.guess) / 2
        return spike
