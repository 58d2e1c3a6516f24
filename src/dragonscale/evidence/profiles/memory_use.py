"""Memory over a recording: the peak of each device, when it was, and a series thin enough to draw."""

from typing import TYPE_CHECKING

import numpy as np

from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import MemoryTime

if TYPE_CHECKING:
    from dragonscale.physics.hardware import Chip

_POINTS = 400
"""Points of a series; of each stretch its largest sample is kept, so that no peak is lost."""


def memory_use(recording: Recording, chip: "Chip | None") -> tuple[MemoryTime, ...]:
    """A line for each device that has samples."""
    found = []
    for device in sorted({sample.device for sample in recording.memory}):
        samples = [sample for sample in recording.memory if sample.device == device]
        when, size = np.array([one.at for one in samples]) / 1e9, np.array([one.bytes for one in samples], float)
        top = int(np.argmax(size))
        known = recording.devices[device].memory_bytes if 0 <= device < len(recording.devices) else None
        room = known or (chip.visible if chip is not None and device >= 0 else None)
        pieces = np.array_split(np.arange(len(size)), min(_POINTS, len(size)))
        kept = [int(piece[np.argmax(size[piece])]) for piece in pieces]
        series = tuple((float(when[one]), float(size[one])) for one in kept)
        found.append(MemoryTime(device, float(size[top]), float(when[top]), room, series))
    return tuple(found)
