"""Planes of a profile: TPU cores and GPUs with their lines as tracks, and the host's threads.

A host has hundreds of threads and, where Python is traced, an event for each call. Kept is what explains a device's
time: steps that a program marked, launches, and everything that lasts long enough to hold up a device; pools of
threads, brief Python frames and moments without a duration are not. The ops of XLA's CPU backend lie on the host's
threads too.
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dragonscale.evidence.profiles.cuda_graphs import OpRow, graph_instructions
from dragonscale.evidence.profiles.event_columns import Columns, Wanted, events
from dragonscale.evidence.profiles.hlo_proto import Programs
from dragonscale.evidence.profiles.intervals import looked_up
from dragonscale.evidence.profiles.protobuf import Message
from dragonscale.evidence.profiles.recording import OpText, Recorder, Rows, Track, TrackKind
from dragonscale.evidence.profiles.xplane_ops import APART, GRAPH, line_kind, op_text, settled_kind
from dragonscale.evidence.profiles.xspace import EntryText, Plane, PlaneLine, StatValue, read_line

_PLANE = re.compile(r"/device:(TPU|GPU):(\d+)(.*)")
_MOST_ROWS = 300_000
"""Different ops of one line; real ones have thousands."""
_MODULE = re.compile(r"(.*)\((\d+)\)")


class DevicePlane:
    """A device in the making."""

    def __init__(self, plane: Plane, record: Recorder, programs: Programs) -> None:
        self.plane, self.record, self.programs = plane, record, programs
        match = _PLANE.fullmatch(plane.name)
        self.kind: Literal["tpu", "gpu", "cpu", ""] = "" if match is None else "tpu" if match[1] == "TPU" else "gpu"
        self.index = int(match[2][:6]) if match else 0
        self.part = match[3].strip() if match else ""
        self.links: list[tuple[int, np.ndarray]] = []
        """For each batch of events: the place of the first, and what each is linked to."""

    def read(self) -> Iterator[int]:
        """Read the plane; how many bytes each line was, as they are done."""
        if not self.kind or (self.part and "SparseCore" not in self.part):
            yield sum(end - start for start, end in self.plane.lines)
            return
        device = self._device()
        apart = APART | GRAPH if self.kind == "gpu" else APART
        wanted = Wanted(self.plane, apart, ("correlation_id", "_c"), ("run_id",))
        lines = [read_line(self.plane, span) for span in self.plane.lines]
        self._name_programs(lines)
        for line in lines:
            kind = self._kind(line.name)
            if kind is not None:
                self._line(line, wanted, device, kind)
            yield line.span[1] - line.span[0]

    def _device(self) -> int:
        stats = self.plane.stats(Message(self.plane.data, span) for span in self.plane.own)
        names = [stats.get(key) for key in ("device_type_string", "gpu_device_name", "device_vendor")]
        name = next((name for name in names if isinstance(name, str)), "")
        known = self.record.known_device(self.index, self.kind)
        return (
            known
            if known >= 0
            else self.record.device(
                name or self.kind.upper(),
                self.kind,
                self.index,
                flops=_rate(stats, "peak_teraflops_per_second", 1e12),
                bandwidth=_rate(stats, "peak_hbm_bw_gigabytes_per_second", 1e9) or _rate(stats, "memory_bandwidth", 1),
                memory_bytes=_rate(stats, "memory_size", 1),
            )
        )

    def _kind(self, name: str) -> TrackKind | None:
        kind = line_kind(name, self.kind == "gpu", bool(self.part))
        return None if self.part and kind != "async" else kind

    def _name_programs(self, lines: list[PlaneLine]) -> None:
        """Programs that the file does not hold still have names: those of the modules that ran."""
        if any(line.name == "XLA Modules" for line in lines):
            for number in self.plane.table:
                match = _MODULE.fullmatch(self.plane.entry(number).name)
                if match:
                    self.programs.call(int(match[2][:20]), match[1])

    def _line(self, line: PlaneLine, wanted: Wanted, device: int, kind: TrackKind) -> None:
        name = f"{self.part} {line.name}".strip()
        track = self.record.track(device, name, kind)
        rows: list[OpRow] = []

        def lookup(number: int, apart: tuple[bytes, ...]) -> int:
            if len(rows) >= _MOST_ROWS:
                return -1
            entry = self.plane.entry(number)
            rows.append(OpRow(entry.name, entry.shown, entry.stats | self.plane.apart(apart)))
            return len(rows) - 1

        # The kernels of a CUDA graph are known only when all of it has been seen, so its line waits.
        held: list[Columns] = []
        ops = array("q")
        for columns in events(line, wanted, lookup):
            if self.kind == "gpu":
                held.append(columns)
            else:
                ops.extend(self._ops(rows[len(ops) :], {}))
                self._add(columns, track, kind, np.array(ops), rows)
        if self.kind == "gpu":
            ops.extend(self._ops(rows, graph_instructions(rows, held, self.programs)))
            for columns in held:
                self._add(columns, track, kind, np.array(ops), rows)
            self.record.tracks[track] = Track(device, name, settled_kind(kind, (row.name for row in rows)))

    def _ops(self, rows: list[OpRow], instructions: dict[int, str]) -> list[int]:
        """The numbers of the ops of rows; `instructions` are those that were found for kernels of graphs, by the row's
        place."""
        texts = (row if place not in instructions else row.of(instructions[place]) for place, row in enumerate(rows))
        return [self.record.op(op_text(row.name, row.shown, row.stats, self.programs)) for row in texts]

    def _add(self, columns: Columns, track: int, kind: TrackKind, ops: np.ndarray, rows: list[OpRow]) -> None:
        run = columns.run
        if kind == "steps":
            own = np.array([int(row.name[:9]) if row.name.isdecimal() else -1 for row in rows])[columns.op]
            run = np.where(own >= 0, own, run)
        op = ops[columns.op]
        first = self.record.events(np.full(len(op), track), op, columns.start, columns.end - columns.start, run)
        if (columns.link != -1).any():
            self.links.append((first, columns.link))

    def launch(self, calls: "tuple[np.ndarray, np.ndarray]") -> None:
        """Say when the host asked for each event, from the calls' ids and starts, sorted by id."""
        ids, starts = calls
        for first, links in self.links if len(ids) else ():
            self.record.launches(first, looked_up(ids, starts, links))


def _rate(stats: dict[str, StatValue], name: str, unit: float) -> float | None:
    value = stats.get(name)
    return float(value) * unit if isinstance(value, int | float) and 0 < value < 1e30 else None


MOST_HOST_EVENTS = 2_000_000
_MOST_SAMPLES = 200_000
_MOST_HOST_ROWS = 1_000_000
_SKIPPED = ("ThreadpoolListener::", "end: ", "ThunkExecutor::", "Wait: pending_threads", "Wait for rendezvous")
_BRIEF, _BRIEF_FRAME = 1_000, 20_000
"""Nanoseconds below which an event, or a Python frame, is left out."""
_TPU_LAUNCH = 12
"""XProf's number for the tie between the enqueueing of a program and its run on a TPU."""
_HOST_APART = APART | {"step_num", "device_ordinal", "_pt"}
_HOST_APART |= {"bytes_allocated", "bytes_reserved", "index_on_host", "allocator_name"}
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

    def _line(self, line: PlaneLine, wanted: Wanted) -> None:
        rows, sampled = Rows(5), dict[int, tuple[int, float]]()

        def lookup(number: int, apart: tuple[bytes, ...]) -> int:
            row = self._row(line, self.plane.entry(number), self.plane.apart(apart))
            if row is None or len(rows) >= _MOST_HOST_ROWS:
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

    def _row(self, line: PlaneLine, entry: EntryText, stats: dict[str, StatValue]) -> _Row | None:
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

    def _cpu_op(self, line: PlaneLine, entry: EntryText, stats: dict[str, StatValue]) -> _Row:
        """An op of XLA's CPU backend; without a device's number it is the first device's."""
        ordinal = stats.get("device_ordinal")
        index = ordinal if isinstance(ordinal, int) and 0 <= ordinal < 1 << 16 else 0
        device = self.record.known_device(index, "cpu")
        if device < 0:
            device = self.record.device("CPU", "cpu", index)
        text = op_text(entry.name, entry.shown, entry.stats | stats, self.programs)
        return _Row(self.record.op(text), self._track(device, line.name, "ops"))

    def _sample(self, stats: dict[str, StatValue]) -> _Row | None:
        """Bytes in use on a device, as its allocator counted them; the host's own allocators are left out."""
        allocator = stats.get("allocator_name")
        match = _ALLOCATOR.match(allocator) if isinstance(allocator, str) else None
        index = int(match[1][:5]) if match else stats.get("index_on_host")
        device = self.record.known_device(index, "tpu", "gpu") if isinstance(index, int) else -1
        size = sum(value for key in ("bytes_allocated", "bytes_reserved") if isinstance(value := stats.get(key), int))
        return _Row(-1, -1, sampled=(device, float(size))) if device >= 0 and size >= 0 else None

    def _track(self, device: int, name: str, kind: TrackKind) -> int:
        key = (device, f"{kind}:{name}")
        if key not in self._tracks:
            self._tracks[key] = self.record.track(device, name, kind)
        return self._tracks[key]
