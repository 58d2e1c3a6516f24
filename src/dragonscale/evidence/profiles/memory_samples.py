"""Bytes in use over time, thinned where there are very many: of each stretch of time its fullest
moment and its last."""

from array import array

import numpy as np

from dragonscale.evidence.profiles.recording import Recorder

_MOST_KEPT = 20_000
_MOST_SAMPLES = 4_000_000


class MemorySamples:
    """Collects samples of the memories of a recording's devices."""

    def __init__(self) -> None:
        self._columns = [array("q") for _ in range(4)]  # kind, device, moment, bytes

    def add(self, kind: int, device: int, at: int, size: int) -> None:
        """A sample."""
        if len(self._columns[0]) < _MOST_SAMPLES:
            for column, value in zip(self._columns, (kind, device, at, size), strict=True):
                column.append(value)

    def into(self, recorder: Recorder, number: int, kind: int, device: int) -> None:
        """Hand those of one device to a recorder, as that of its device `number`."""
        if not len(self._columns[0]):
            return
        kinds, devices, moments, sizes = (np.frombuffer(each, dtype=np.int64) for each in self._columns)
        rows = np.flatnonzero((kinds == kind) & (devices == device))
        rows = rows[np.argsort(moments[rows], kind="stable")]
        for row in thinned(rows, sizes).tolist():
            recorder.sample(number, int(moments[row]), float(sizes[row]))


def thinned(rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """All rows where they are few; else of each of many equal stretches the row of the largest size and the last row.

    >>> thinned(np.arange(3), np.array([5, 9, 1])).tolist()
    [0, 1, 2]
    """
    if len(rows) <= _MOST_KEPT:
        return rows
    parts = np.array_split(rows, _MOST_KEPT // 2)
    return np.unique(np.concatenate([[part[np.argmax(sizes[part])], part[-1]] for part in parts]))
