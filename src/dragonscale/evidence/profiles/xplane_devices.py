"""A plane of a TPU core or a GPU: what the chip is, and its lines as tracks."""

import re
from collections.abc import Iterator
from typing import Literal

import numpy as np

from dragonscale.evidence.profiles.programs import Programs
from dragonscale.evidence.profiles.recording import Recorder, Track, TrackKind
from dragonscale.evidence.profiles.xplane_ops import APART, op_text
from dragonscale.evidence.profiles.xspace import Line, Plane, StatValue, Wanted, events, read_line

_PLANE = re.compile(r"/device:(TPU|GPU):(\d+)(.*)")
_LINES: dict[str, TrackKind] = {
    "XLA Modules": "modules",
    "Async XLA Ops": "async",
    "Host Offload Ops": "async",
    "Steps": "steps",
    "Framework Name Scope": "scopes",
    "TensorFlow Name Scope": "scopes",
    "XLA TraceMe": "scopes",
    "Sparse Core Ops": "async",
}
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
        wanted = Wanted(self.plane, APART, ("correlation_id", "_c"), ("run_id",))
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
        if name == "XLA Ops":
            return None if self.kind == "gpu" else "async" if self.part else "ops"
        if name.startswith("Stream") and self.kind == "gpu":
            return "ops"
        return None if self.part and _LINES.get(name) != "async" else _LINES.get(name)

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
        rows: list[int] = []
        numbers: list[int] = []
        steps = kind == "steps"

        def lookup(number: int, apart: tuple[bytes, ...]) -> int:
            entry = self.plane.entry(number)
            stats: dict[str, StatValue] = entry.stats | self.plane.apart(apart)
            rows.append(self.record.op(op_text(entry.name, entry.shown, stats, self.programs)))
            numbers.append(int(entry.name[:9]) if steps and entry.name.isdecimal() else -1)
            return len(rows) - 1

        for columns in events(line, wanted, lookup):
            op, own = np.array(rows)[columns.op], np.array(numbers)[columns.op]
            run = np.where(own >= 0, own, columns.run)
            first = self.record.events(np.full(len(op), track), op, columns.start, columns.end - columns.start, run)
            if (columns.link != -1).any():
                self.links.append((first, columns.link))
        if self.kind == "gpu" and kind == "ops":
            self._settle(track, name, rows)

    def _settle(self, track: int, name: str, rows: list[int]) -> None:
        """A stream that only copies, or only runs NCCL's kernels, is no stream of ops."""
        ops = list(self.record.ops)
        used = [ops[each] for each in set(rows)]
        device = self.record.tracks[track].device
        if used and all("nccl" in each.name.lower() for each in used):
            self.record.tracks[track] = Track(device, name, "async")
        elif used and all(each.name.lower().startswith(("memcpy", "memset")) for each in used):
            self.record.tracks[track] = Track(device, name, "copies")

    def launch(self, calls: "tuple[np.ndarray, np.ndarray]") -> None:
        """Say when the host asked for each event, from the calls' ids and starts, sorted by id."""
        ids, starts = calls
        if not len(ids):
            return
        for first, links in self.links:
            place = np.minimum(np.searchsorted(ids, links), len(ids) - 1)
            self.record.launches(first, np.where((ids[place] == links) & (links != -1), starts[place], -1))


def _rate(stats: dict[str, StatValue], name: str, unit: float) -> float | None:
    value = stats.get(name)
    return float(value) * unit if isinstance(value, int | float) and 0 < value < 1e30 else None
