"""Bytes in use over time, thinned where there are very many: of each stretch of time its fullest
moment and its last; the peak of each device, when it was, and a series thin enough to draw."""

import numpy as np

from dragonscale.evidence.profiles.recording import Recorder, Recording, Rows
from dragonscale.evidence.profiles.records import MemoryTime
from dragonscale.physics.hardware import Chip

_MOST_KEPT = 20_000
_MOST_SAMPLES = 4_000_000
_POINTS = 400
"""Points of a series; of each stretch its largest sample is kept, so that no peak is lost."""


class MemorySamples:
    """Collects samples of the memories of a recording's devices."""

    def __init__(self) -> None:
        self._rows = Rows(4)  # kind, device, moment, bytes

    def add(self, kind: int, device: int, at: int, size: int) -> None:
        """A sample."""
        if len(self._rows) < _MOST_SAMPLES:
            self._rows.add(kind, device, at, size)

    def into(self, recorder: Recorder, number: int, kind: int, device: int) -> None:
        """Hand those of one device to a recorder, as that of its device `number`."""
        kinds, devices, moments, sizes = self._rows.columns()
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


def memory_use(recording: Recording, chip: Chip | None) -> tuple[MemoryTime, ...]:
    """A line for each device that has samples."""
    found = []
    for device in sorted({sample.device for sample in recording.memory}):
        samples = [sample for sample in recording.memory if sample.device == device]
        when = np.maximum([one.at for one in samples], 0) / 1e9  # one before the first op is at its start
        size = np.array([one.bytes for one in samples], float)
        top = int(np.argmax(size))
        known = recording.devices[device].memory_bytes if 0 <= device < len(recording.devices) else None
        room = known or (chip.visible if chip is not None and device >= 0 else None)
        pieces = np.array_split(np.arange(len(size)), min(_POINTS, len(size)))
        kept = [int(piece[np.argmax(size[piece])]) for piece in pieces]
        series = tuple((float(when[one]), float(size[one])) for one in kept)
        found.append(MemoryTime(device, float(size[top]), float(when[top]), room, series))
    return tuple(found)
