"""The host's planes: what its threads did, as far as it explains a device's time, and the ops of XLA's CPU backend.

A host has hundreds of threads and, where Python is traced, an event for each call. Kept are: steps that a program
marked, launches, and everything that lasts long enough to hold up a device; pools of threads, brief Python frames and
moments without a duration are not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.event_columns import Wanted, events
from dragonscale.evidence.profiles.programs import Programs
from dragonscale.evidence.profiles.recording import OpText, Recorder, Rows, TrackKind
from dragonscale.evidence.profiles.xplane_ops import APART, op_text
from dragonscale.evidence.profiles.xspace import EntryText, Line, Plane, StatValue, read_line

MOST_HOST_EVENTS = 2_000_000
_MOST_SAMPLES = 200_000
_MOST_ROWS = 1_000_000
_SKIPPED = ("ThreadpoolListener::", "end: ", "ThunkExecutor::", "Wait: pending_threads", "Wait for rendezvous")
_BRIEF, _BRIEF_FRAME = 1_000, 20_000
"""Nanoseconds below which an event, or a Python frame, is left out."""
_TPU_LAUNCH = 12
"""XProf's number for the tie between the enqueueing of a program and its run on a TPU."""
_HOST_APART = APART | {
    "step_num",
    "device_ordinal",
    "_pt",
    "bytes_allocated",
    "bytes_reserved",
    "index_on_host",
    "allocator_name",
}
_ALLOCATOR = re.compile(r"(?:GPU|TPU)_(\d+)")


@dataclass(frozen=True)
class _Row:
    """What an event of a thread becomes: an op on a track; or a sample of memory, where it has bytes."""

    op: int
    track: int
    run: int = -1
    least: int = 0
    launches: bool = False
    sampled: tuple[int, float] | None = None


class HostPlane:
    """A host's plane in the making."""

    def __init__(self, plane: Plane, record: Recorder, programs: Programs, uses_cuda: bool) -> None:
        self.plane, self.record, self.programs, self.uses_cuda = plane, record, programs, uses_cuda
        self._tracks: dict[tuple[int, str], int] = {}
        self._found: list[tuple[np.ndarray, np.ndarray]] = []
        self._kept = 0

    def read(self) -> Iterator[int]:
        """Read the plane; how many bytes each line was, as they are done."""
        wanted = Wanted(self.plane, _HOST_APART, ("correlation_id",) if self.uses_cuda else ("_p",), ("run_id",))
        for span in self.plane.lines:
            self._line(read_line(self.plane, span), wanted)
            yield span[1] - span[0]

    @property
    def calls(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids of launches and when they began, sorted by id."""
        if not self._found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ids, starts = (np.concatenate([each[place] for each in self._found]) for place in (0, 1))
        order = np.argsort(ids, kind="stable")
        return ids[order], starts[order]

    def _line(self, line: Line, wanted: Wanted) -> None:
        rows, sampled = Rows(5), dict[int, tuple[int, float]]()

        def lookup(number: int, apart: tuple[bytes, ...]) -> int:
            row = self._row(line, self.plane.entry(number), self.plane.apart(apart))
            if row is None or len(rows) >= _MOST_ROWS:
                return -1
            if row.sampled:
                sampled[len(rows)] = row.sampled
            rows.add(row.op, row.track, row.run, row.least, row.launches)
            return len(rows) - 1

        for columns in events(line, wanted, lookup):
            op, track, run, least, launches = (each[columns.op] for each in rows.columns())
            calls = (launches > 0) & (columns.link != -1)
            if calls.any():
                self._found.append((columns.link[calls], columns.start[calls]))
            duration = columns.end - columns.start
            kept = (op >= 0) & (duration >= least)
            run = np.where(run >= 0, run, columns.run)
            kept &= np.cumsum(kept) <= MOST_HOST_EVENTS - self._kept
            self._kept += int(kept.sum())
            self.record.events(track[kept], op[kept], columns.start[kept], duration[kept], run[kept])
            for place in np.flatnonzero(op < 0):
                device, size = sampled[int(columns.op[place])]
                if len(self.record.memory) < _MOST_SAMPLES:
                    self.record.sample(device, int(columns.start[place]), size)

    def _row(self, line: Line, entry: EntryText, stats: dict[str, StatValue]) -> _Row | None:
        if isinstance(stats.get("hlo_op"), str):
            return self._cpu_op(line, entry, stats)
        if isinstance(stats.get("bytes_allocated"), int):
            return self._sample(stats)
        name = entry.name or entry.shown
        launches = self.uses_cuda or stats.get("_pt") == _TPU_LAUNCH
        if not name or name.startswith(_SKIPPED):
            return None
        step = stats.get("step_num")
        if isinstance(step, int) and 0 <= step < 1 << 31:
            return _Row(self.record.op(OpText(name)), self._track(-1, name, "steps"), step)
        least = _BRIEF_FRAME if name.startswith("$") else 0 if launches else _BRIEF
        return _Row(self.record.op(OpText(name.split("#")[0])), self._track(-1, line.name, "host"), -1, least, launches)

    def _cpu_op(self, line: Line, entry: EntryText, stats: dict[str, StatValue]) -> _Row:
        """An op of XLA's CPU backend; without a device's number it is the first device's."""
        ordinal = stats.get("device_ordinal")
        index = ordinal if isinstance(ordinal, int) and 0 <= ordinal < 1 << 16 else 0
        devices = self.record.devices
        device = next((place for place, each in enumerate(devices) if (each.kind, each.index) == ("cpu", index)), -1)
        if device < 0:
            device = self.record.device("CPU", "cpu", index)
        text = op_text(entry.name, entry.shown, entry.stats | stats, self.programs)
        return _Row(self.record.op(text), self._track(device, line.name, "ops"))

    def _sample(self, stats: dict[str, StatValue]) -> _Row | None:
        """Bytes in use on a device, as its allocator counted them; the host's own allocators are left out."""
        allocator = stats.get("allocator_name")
        match = _ALLOCATOR.match(allocator) if isinstance(allocator, str) else None
        index = int(match[1][:5]) if match else stats.get("index_on_host")
        device = next(
            (place for place, each in enumerate(self.record.devices) if each.index == index and each.kind != "cpu"), -1
        )
        size = sum(value for key in ("bytes_allocated", "bytes_reserved") if isinstance(value := stats.get(key), int))
        return _Row(-1, -1, sampled=(device, float(size))) if device >= 0 and size >= 0 else None

    def _track(self, device: int, name: str, kind: TrackKind) -> int:
        key = (device, f"{kind}:{name}")
        if key not in self._tracks:
            self._tracks[key] = self.record.track(device, name, kind)
        return self._tracks[key]
