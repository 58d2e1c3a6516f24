"""A recording, read as a performance engineer would: steps, own times, groups against rooflines, communication, gaps, waste, memory.

This module only calls the others in their order and puts what they find into one record; each part is a module of its own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import ProfileReading

if TYPE_CHECKING:
    from dragonscale.hardware import Chip


@dataclass(frozen=True)
class Analysis:
    """What stands behind a reading. `roles` has one entry for each op of the recording (`evidence/profiles/attribution.py`); `own` is the own
    time of each event in ns (without what is nested in it); `windows` are starts and ends of the kept steps in ns, one row each; `device`
    is the device that the reading tells about."""

    reading: ProfileReading
    recording: Recording
    roles: list[Any]
    own: np.ndarray
    windows: np.ndarray
    device: int
    chip: "Chip | None"
