"""A plane of a TPU core or a GPU: what the chip is, and its lines as tracks."""

import re
from array import array
from collections.abc import Iterator
from typing import Literal

import numpy as np

from dragonscale.evidence.profiles.cuda_graphs import OpRow, graph_instructions
from dragonscale.evidence.profiles.event_columns import Columns, Wanted, events
from dragonscale.evidence.profiles.intervals import looked_up
from dragonscale.evidence.profiles.programs import Programs
from dragonscale.evidence.profiles.recording import Recorder, Track, TrackKind
from dragonscale.evidence.profiles.xplane_ops import APART, GRAPH, line_kind, op_text, settled_kind
from dragonscale.evidence.profiles.xspace import Line, Plane, StatValue, read_line

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
        wanted = Wanted(
            self.plane, APART | GRAPH if self.kind == "gpu" else APART, ("correlation_id", "_c"), ("run_id",)
        )
        lines = [read_line(self.plane, span) for span in self.plane.lines]
        self._name_programs(lines)
        for line in lines:
            kind = self._kind(line.name)
            if kind is not None:
                self._line(line, wanted, device, kind)
            yield line.span[1] - line.span[0]

    def _device(self) -> int:
        stats = self.plane.stats(self.plane.own)
        name = next(
            (
                value
                for key in ("device_type_string", "gpu_device_name", "device_vendor")
                if isinstance(value := stats.get(key), str)
            ),
            "",
        )
        for number, known in enumerate(self.record.devices):
            if (known.kind, known.index) == (self.kind, self.index):
                return number
        return self.record.device(
            name or self.kind.upper(),
            self.kind,
            self.index,
            flops=_rate(stats, "peak_teraflops_per_second", 1e12),
            bandwidth=_rate(stats, "peak_hbm_bw_gigabytes_per_second", 1e9) or _rate(stats, "memory_bandwidth", 1),
            memory_bytes=_rate(stats, "memory_size", 1),
        )

    def _kind(self, name: str) -> TrackKind | None:
        kind = line_kind(name, self.kind == "gpu", bool(self.part))
        return None if self.part and kind != "async" else kind

    def _name_programs(self, lines: list[Line]) -> None:
        """Programs that the file does not hold still have names: those of the modules that ran."""
        if any(line.name == "XLA Modules" for line in lines):
            for number in self.plane.table:
                match = _MODULE.fullmatch(self.plane.entry(number).name)
                if match:
                    self.programs.call(int(match[2][:20]), match[1])

    def _line(self, line: Line, wanted: Wanted, device: int, kind: TrackKind) -> None:
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
