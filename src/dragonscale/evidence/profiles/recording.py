"""A profile as every reader hands it on: devices, tracks, what ran on them and when.

An op is described once (`OpText`) however often it ran; its events are columns of numbers, so that a file of millions
of events stays small. Times are nanoseconds from the first event of the recording.

>>> record = Recorder("a trace")
>>> gpu = record.device("NVIDIA H200", "gpu")
>>> stream = record.track(gpu, "stream 7", "ops")
>>> record.event(stream, record.op(OpText("nvjet_tst_128x256", caller="aten::mm")), 1000, 500)
>>> record.event(stream, record.op(OpText("nvjet_tst_128x256", caller="aten::mm")), 2000, 500)
>>> made = record.made()
>>> len(made.ops), made.events.start.tolist(), made.events.duration.tolist(), made.seconds
(1, [0, 1000], [500, 500], 1.5e-06)
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

if TYPE_CHECKING:
    from dragonscale.evidence.xla.hlo_text import Module

TrackKind = Literal["ops", "async", "copies", "modules", "steps", "scopes", "host"]
"""`ops`: kernels, one after the other (a TPU core's ops, a CUDA stream); `async`: transfers that run beside them (a
TPU's asynchronous ops, a stream that only communicates); `copies`: memory copies and sets; `modules`: whole programs;
`steps`: the profiler's own steps; `scopes`: names that a user or framework laid over stretches of device time; `host`:
a thread of the host."""
MOST_EVENTS = 8_000_000
"""Events kept of one recording; what comes after is counted, and said."""

MOST_TRACKS, MOST_DEVICES = 4096, 512
"""Tracks and devices that are kept; what lies on others is counted, and said."""
LONGEST = 4000
"""Characters of a name, a scope or a caller that are kept."""


class OpText(msgspec.Struct, frozen=True):
    """What is known about an op, the same each time it runs. Everything but the name may be missing."""

    name: str
    """`fusion.12`, or the kernel's name."""
    text: str = ""
    """Its HLO instruction as text, with or without operands' shapes."""
    category: str = ""
    """The profiler's own word for its kind (`convolution fusion`, `gpu_memset`, `cpu_op`)."""
    scope: str = ""
    """Where in the user's program it comes from: JAX's `op_name`, PyTorch's modules, NVTX ranges; outermost first,
    joined by `/`."""
    source: str = ""
    """File and line."""
    module: str = ""
    """The program it belongs to (`jit_train_step`)."""
    caller: str = ""
    """The operator of the framework that launched it (`aten::mm`, `autograd::engine::…: MmBackward0`), outermost first,
    joined by `/`."""
    shapes: tuple[str, ...] = ()
    """Shapes of its operands in HLO's words (`bf16[8,128]`), where the profile has them apart from `text`."""
    flops: float | None = None
    """As the profiler counted them."""
    bytes: float | None = None
    """Bytes that it reads and writes, as the profiler counted them."""
    group: tuple[int, ...] = ()
    """The ranks of a collective's group, where they are known."""
    wire_bytes: float | None = None
    """Bytes of a collective's input on one rank, or of a copy."""
    launch: str = ""
    """What is known of the launch: grid, block, registers, shared memory."""
    hbm_bytes: float | None = None
    """Those of `bytes` that the profiler says went to or came from the device's main memory; the rest stayed on the
    chip."""
    causal: bool = False
    """Whether the profile says that an attention's mask is causal."""


class DeviceText(msgspec.Struct, frozen=True):
    """An accelerator (or the CPU as one), as the profile names it; rates only where the profile has them."""

    name: str
    kind: Literal["tpu", "gpu", "cpu", ""]
    index: int = 0
    flops: float | None = None
    bandwidth: float | None = None
    memory_bytes: float | None = None


class Track(msgspec.Struct, frozen=True):
    """A line of events: `device` is an index into `Recording.devices`, -1 for the host."""

    device: int
    name: str
    kind: TrackKind


class MemorySample(msgspec.Struct, frozen=True):
    """Bytes in use on a device at a moment."""

    device: int
    at: int
    bytes: float


@dataclass(frozen=True)
class Events:
    """Columns of equal length, sorted by start. `launched` is when the host asked for it, -1 where that is not known;
    `run` is the number of the step or launch of a program that the profiler says it belongs to, -1 where it does not.
    """

    start: np.ndarray
    duration: np.ndarray
    op: np.ndarray
    track: np.ndarray
    launched: np.ndarray
    run: np.ndarray

    @property
    def end(self) -> np.ndarray:
        """When each was over."""
        return self.start + self.duration

    def chosen(self, which: np.ndarray) -> "Events":
        """Those of a mask or of an index."""
        return Events(*(getattr(self, name)[which] for name in ("start", "duration", "op", "track", "launched", "run")))


@dataclass(frozen=True)
class Recording:
    """A profile. `programs` are the compiled modules by name, where the file holds them. `dropped` are events beyond
    `MOST_EVENTS`."""

    source: str
    devices: tuple[DeviceText, ...]
    tracks: tuple[Track, ...]
    ops: tuple[OpText, ...]
    events: Events
    memory: tuple[MemorySample, ...] = ()
    programs: "Mapping[str, Module]" = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dropped: int = 0
    software: str = ""
    """What wrote the file: `JAX/XProf`, `PyTorch/Kineto`, `Nsight Systems`, `XLA HLO`."""

    @property
    def seconds(self) -> float:
        """From the first event to the end of the last."""
        return float(self.events.end.max() - self.events.start.min()) / 1e9 if len(self.events.start) else 0.0

    def on(self, kind: TrackKind, device: int | None = None) -> np.ndarray:
        """Which events lie on tracks of a kind (and of one device), as a mask."""
        wanted = np.zeros(len(self.tracks) + 1, bool)
        wanted[[number for number in self.tracks_of(device) if self.tracks[number].kind == kind]] = True
        return wanted[self.events.track] if wanted.any() else np.zeros(len(self.events.track), bool)

    def tracks_of(self, device: int | None = None) -> Sequence[int]:
        """The numbers of a device's tracks, of all without one."""
        return range(len(self.tracks)) if device is None else self._device_tracks.get(device, ())

    def of_track(self, number: int) -> np.ndarray:
        """Where the events of a track stand, in order."""
        order, first = self._by_track
        return order[first[number] : first[number + 1]]

    @cached_property
    def _device_tracks(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, track in enumerate(self.tracks):
            found.setdefault(track.device, []).append(number)
        return found

    @cached_property
    def _by_track(self) -> tuple[np.ndarray, np.ndarray]:
        """Events sorted by their tracks, and where each track begins: one sort, however many tracks there are."""
        order = np.argsort(self.events.track, kind="stable")
        return order, np.searchsorted(self.events.track[order], np.arange(len(self.tracks) + 1))


def _numbered(run: np.ndarray) -> np.ndarray:
    """Numbers of runs in 32 bits: ids that are larger, or below -1, are numbered in their order.

    >>> _numbered(np.array([-1, 7, -978110861, -978110860, -978110861])).tolist()
    [-1, 7, 0, 1, 0]
    """
    large = (run < -1) | (run >= 1 << 31)
    found = np.where(large, -1, run)
    if large.any():
        found[large] = np.unique(run[large], return_inverse=True)[1]
    return found.astype(np.int32)


class Rows:
    """Rows of whole numbers, one behind the other as they come.

    >>> rows = Rows(2)
    >>> rows.add(1, 2)
    >>> rows.extend(np.array([3, 5]), np.array([4, 6]))
    >>> len(rows), [column.tolist() for column in rows.columns()]
    (3, [[1, 3, 5], [2, 4, 6]])
    """

    def __init__(self, width: int) -> None:
        self.width, self.values = width, array("q")

    def __len__(self) -> int:
        return len(self.values) // self.width

    def add(self, *row: int) -> None:
        """One more row."""
        self.values.extend(row)

    def extend(self, *columns: np.ndarray) -> None:
        """Many more rows, as columns."""
        self.values.frombytes(np.column_stack(columns).astype(np.int64).tobytes())

    def columns(self) -> list[np.ndarray]:
        """All rows as columns; no row can be added while they are used."""
        table = np.frombuffer(self.values, np.int64) if len(self.values) else np.zeros(0, np.int64)
        return list(table.reshape(-1, self.width).T)


class Recorder:
    """Collects a recording, event by event."""

    def __init__(self, source: str, software: str = "") -> None:
        self.source, self.software = source, software
        self.devices: list[DeviceText] = []
        self.tracks: list[Track] = []
        self.ops: dict[OpText, int] = {}
        self.memory: list[MemorySample] = []
        self.programs: dict[str, Module] = {}
        self.notes: list[str] = []
        self.dropped = 0
        self._rows = Rows(6)  # start, duration, op, track, launched, run

    def device(self, name: str, kind: Literal["tpu", "gpu", "cpu", ""], index: int = 0, **rates: float | None) -> int:
        """Add a device; its number."""
        self.devices.append(DeviceText(name, kind, index, **rates))
        return len(self.devices) - 1

    def known_device(self, index: int, *kinds: str) -> int:
        """The number of the device of some kinds with an index of its own; -1 where there is none yet."""
        places = (place for place, each in enumerate(self.devices) if each.index == index and each.kind in kinds)
        return next(places, -1)

    def track(self, device: int, name: str, kind: TrackKind) -> int:
        """Add a track; its number."""
        self.tracks.append(Track(device, name, kind))
        return len(self.tracks) - 1

    def op(self, text: OpText) -> int:
        """The number of an op; names longer than anything real are cut."""
        if max(len(text.name), len(text.scope), len(text.caller), len(text.source), len(text.module)) > LONGEST:
            words = {each: getattr(text, each)[:LONGEST] for each in ("name", "scope", "caller", "source", "module")}
            text = msgspec.structs.replace(text, **words)
        return self.ops.setdefault(text, len(self.ops))

    def event(self, track: int, op: int, start: int, duration: int, launched: int = -1, run: int = -1) -> None:
        """Add an event; times in nanoseconds of any clock, the same for all."""
        if len(self._rows) >= MOST_EVENTS:
            self.dropped += 1
        else:
            self._rows.add(start, duration, op, track, launched, run)

    def events(
        self, track: np.ndarray, op: np.ndarray, start: np.ndarray, duration: np.ndarray, run: np.ndarray
    ) -> int:
        """Add many events at once, as columns; the place of the first of them, for `launches`."""
        first = len(self._rows)
        room = max(0, min(len(op), MOST_EVENTS - first))
        self.dropped += len(op) - room
        self._rows.extend(*(each[:room] for each in (start, duration, op, track, np.full(len(op), -1), run)))
        return first

    def launches(self, first: int, times: np.ndarray) -> None:
        """Say when events from a place on were launched; -1 where that is not known."""
        some = times[: max(0, len(self._rows) - first)].astype(np.int64)
        at, width = first * self._rows.width + 4, self._rows.width
        self._rows.values[at : at + width * len(some) : width] = array("q", some.tobytes())

    def sample(self, device: int, at: int, size: float) -> None:
        """Add a sample of memory in use, on the clock of the events."""
        self.memory.append(MemorySample(device, at, size))

    def _bounded(self, columns: list[np.ndarray]) -> list[np.ndarray]:
        """Without events on tracks or devices beyond the most that are kept."""
        if len(self.tracks) <= MOST_TRACKS and len(self.devices) <= MOST_DEVICES:
            return columns
        kept = np.array([track.device < MOST_DEVICES for track in self.tracks])
        kept[MOST_TRACKS:] = False
        some = kept[columns[3]]
        self.memory = [each for each in self.memory if each.device < MOST_DEVICES]
        self.notes.append(
            f"The recording has {len(self.devices):,} devices and {len(self.tracks):,} tracks: {int(np.sum(~some)):,} "
            f"events beyond the first {MOST_DEVICES:,} devices or {MOST_TRACKS:,} tracks are left out."
        )
        return [each[some] for each in columns]

    def made(self) -> Recording:
        """The recording, its events in order and on a clock of its own."""
        columns = self._bounded(self._rows.columns())
        order = np.argsort(columns[0], kind="stable")
        start, duration, op, track, launched, run = (each[order] for each in columns)
        zero = int(start[0]) if len(start) else 0
        launched = np.where(launched >= 0, launched - zero, -1)
        events = Events(start - zero, duration, op.astype(np.int32), track.astype(np.int32), launched, _numbered(run))
        memory = sorted(self.memory, key=lambda sample: sample.at)
        samples = tuple(msgspec.structs.replace(sample, at=sample.at - zero) for sample in memory)
        return Recording(
            self.source,
            tuple(self.devices[:MOST_DEVICES]),
            tuple(self.tracks[:MOST_TRACKS]),
            tuple(self.ops),
            events,
            samples,
            self.programs,
            tuple(self.notes),
            self.dropped,
            self.software,
        )
