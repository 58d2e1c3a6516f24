"""SQLite exports of Nsight Systems (`nsys export --type sqlite`): kernels, copies, the calls that launched them, and
NVTX ranges.

An export is a table for each kind of event. Versions differ in columns (and tables are only there where something was
recorded), so each is read by what it has. Kernels and calls share a correlation within a process; an NVTX range lies on
a thread as an operator of PyTorch does, and the ranges around a launch are the kernel's scope. Two writers of ranges
are understood further: PyTorch's `emit_nvtx`, whose ranges are operators with sequence numbers, and XLA, whose ranges
name the instruction. Ranges that count (`step 12`, `iteration 3`) are steps.

The file is opened for reading only and taken as it stands (`immutable`): nothing beside it is looked at or written.
Rows stream through a cursor.
"""

import re
import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.profiles.host_spans import SpanKind
from dragonscale.evidence.profiles.json_stream import whole
from dragonscale.evidence.profiles.kineto import ACCELERATOR, DeviceArgs, KinetoEvents, launch_of
from dragonscale.evidence.profiles.kineto_tracks import record_kineto
from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.listener import Listener

_KERNEL, _MEMCPY, _MEMSET, _GRAPH, _RUNTIME = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)
_RANGES, _MEMORY = "NVTX_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS"
_ON_GPU = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
"""Columns of what ran on a device."""
_LONGEST_VALUE = 4 << 20
_PUSHED, _STARTED = 59, 60
"""Types of NVTX ranges: those that nest on their thread, and those that begin and end anywhere."""
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_ON_DEVICE, _ALLOCATED = 2, 0
_VERSION = re.compile(r"_v\d+$")
_COUNTS = re.compile(r"(?:.*[^a-z])?(?:step|iteration|iter|batch)s?[\s_#:=.]*(\d{1,9})\b.*", re.IGNORECASE | re.DOTALL)
_EMITTED = re.compile(r"(.+?), (?:seq = (\d{1,18}))?(?:, )?(?:op_id = \d+)?")
_XLA = re.compile(r"(?:TSL:)?(\w+):#(.*)#")
_FARTHEST = 4 * 10**18


def read(path: Path, listener: Listener) -> Recording:
    """The recording in an export of Nsight Systems."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        raise InputError(f"{shorten(str(path))} is a packed SQLite file; unpack it first (gunzip).")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            return _Export(database, path, listener).recording()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise InputError(f"{shorten(str(path))} is an SQLite file that cannot be read: {str(error)[:120]}.") from None


class _Export:
    """One export while it is read: its rows become what a trace of PyTorch would hold."""

    def __init__(self, database: sqlite3.Connection, path: Path, listener: Listener) -> None:
        self.path, self.listener, self.database = path, listener, database
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        # only tables: a view of the same name could be a query without end
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchmany(10_000)
        self.tables = {str(one[0]): self._columns(str(one[0])) for one in names}
        self.events = KinetoEvents()
        self.names: dict[int, int] = {}
        self.gpus: dict[tuple[int, int], int] = {}
        self.graphs = self.odd = self.done = 0
        counted = (_KERNEL, _MEMCPY, _MEMSET, _GRAPH, _RUNTIME, _RANGES, "StringIds")
        self.total = sum(map(self._count, counted)) or 1

    def recording(self) -> Recording:
        """All of it."""
        if not any(self.tables.get(one) for one in (_KERNEL, _MEMCPY, _GRAPH)):
            raise InputError(
                f"{shorten(str(self.path))} is an SQLite file without kernels of a GPU; give an export of Nsight "
                "Systems (nsys export --type sqlite) of a run recorded with --trace=cuda."
            )
        self._name_everything()
        self._match_devices()
        self._kernels()
        self._copies()
        self._calls()
        self._ranges()
        self._memory()
        recorder = Recorder(self.path.name, "Nsight Systems")
        record_kineto(self.events, recorder, {"deviceProperties": self._properties()}, self._threads())
        self._say(recorder)
        return recorder.made()

    # --- tables

    def _columns(self, table: str) -> frozenset[str]:
        quoted = table.replace('"', '""')
        return frozenset(str(one[1]) for one in self.database.execute(f'PRAGMA table_info("{quoted}")').fetchmany(1000))

    def _count(self, table: str) -> int:
        """How many rows, about: the number of the last."""
        if not self.tables.get(table):
            return 0
        try:
            return max(whole(self.database.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0], 0), 0)
        except sqlite3.Error:  # a table without row numbers
            return 0

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table with these columns, none for those that it has not."""
        there = self.tables.get(table)
        if not there:
            return
        wanted = ", ".join(f'"{one}"' if one in there else "NULL" for one in columns)
        cursor = self.database.execute(f"SELECT {wanted} FROM {table}")
        while rows := cursor.fetchmany(4096):
            self.done += len(rows)
            self.listener.step(min(self.done, self.total), self.total)
            yield from rows

    def _name_everything(self) -> None:
        """The texts that events refer to; exports hold many more (symbols of stacks), which are passed over."""
        used = array("q")
        wanted = [(_KERNEL, "demangledName"), (_KERNEL, "shortName"), (_RUNTIME, "nameId"), (_RANGES, "textId")]
        for table, column in (*wanted, ("ThreadNames", "nameId")):
            if column in self.tables.get(table, ()):
                found = self.database.execute(f'SELECT DISTINCT "{column}" FROM {table}')
                used.extend(whole(one[0]) for one in found)
        kept = set(used)
        for number, text in self._rows("StringIds", "id", "value"):
            if whole(number) in kept and isinstance(text, str):
                self.names[whole(number)] = self.events.names.number(text)

    def _named(self, *numbers: Any) -> int:
        """The first of these that names a text; an old export has the text itself."""
        for one in numbers:
            if isinstance(one, str) and one and not one.isdigit():
                return self.events.names.number(one)
            found = self.names.get(whole(one))
            if found is not None:
                return found
        return self.events.names.number("(no name)")

    # --- devices

    def _match_devices(self) -> None:
        """A process counts its own devices: which GPU its number 0 is."""
        for gpu, number, process in self._rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
            if len(self.gpus) < 100_000 and whole(gpu) >= 0:
                self.gpus[whole(process), whole(number)] = whole(gpu)

    def _device(self, process: int, number: Any) -> int:
        return self.gpus.get((process, whole(number)), max(whole(number), 0))

    def _properties(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for number, name, memory, rate in self._rows("TARGET_INFO_GPU", "id", "name", "totalMemory", "memoryBandwidth"):
            if len(found) < 4096:
                named = {"name": name} if isinstance(name, str) and name else {}
                found.append({"id": whole(number), **named, "totalGlobalMem": memory, "memoryBandwidth": rate})
        return found

    def _threads(self) -> dict[Any, str]:
        texts, rows = self.events.names.texts, self._rows("ThreadNames", "nameId", "globalTid")
        names = {whole(thread): texts[self._named(name)] for name, thread in rows}
        return {thread: f"thread {thread[1]} ({names.get(thread[0], '?')})" for thread in self.events.threads}

    # --- what ran

    def _span(self, start: Any, end: Any) -> tuple[int, int] | None:
        """Two moments, or none where they are none."""
        if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < _FARTHEST:
            return start, end
        self.odd += 1
        return None

    def _on_device(self, row: tuple[Any, ...], name: int, details: tuple[Any, ...], copied: bool) -> None:
        start, end, device, stream, correlation, process = row[:6]
        span = self._span(start, end)
        if span:
            place, link = self._device(_process(process), device), _link(_process(process), correlation)
            self.events.put((place, whole(stream), *span, name, link, -1), details, copied)

    def _kernels(self) -> None:
        sizes = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
        sizes += ["registersPerThread", "staticSharedMemory", "dynamicSharedMemory"]
        for row in self._rows(_KERNEL, *_ON_GPU, "demangledName", "shortName", *sizes):
            shared = max(whole(row[15], 0), 0) + max(whole(row[16], 0), 0)
            launch = launch_of(DeviceArgs(grid=[*row[8:11]], block=[*row[11:14]], registers=row[14], shared=shared))
            self._on_device(row, self._named(row[6], row[7]), ("kernel", launch), False)
        for row in self._rows(_GRAPH, *_ON_GPU, "graphId"):
            self.graphs += 1
            self._on_device(row, self.events.names.number(f"CUDA graph {whole(row[6])}"), ("graph", ""), False)

    def _copies(self) -> None:
        for table, word in ((_MEMCPY, "Memcpy"), (_MEMSET, "Memset")):
            for row in self._rows(table, *_ON_GPU, "bytes", "copyKind"):
                kind = _COPY_KINDS.get(whole(row[7]), "") if table == _MEMCPY else ""
                size = float(whole(row[6])) if whole(row[6]) >= 0 else None
                name = self.events.names.number(f"{word} {kind}".strip())
                self._on_device(row, name, (f"gpu_{word.lower()}", "", (), size, (), ""), True)

    # --- the host

    def _thread(self, identity: Any) -> int:
        known = self.events.threads
        return known.setdefault((whole(identity), whole(identity) & 0xFFFFFF), len(known))

    def _calls(self) -> None:
        plain: dict[int, int] = {}
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        for start, end, thread, correlation, name in self._rows(_RUNTIME, *columns):
            span = self._span(start, end)
            if span:
                named = self._named(name)
                if named not in plain:
                    plain[named] = self.events.names.number(_VERSION.sub("", self.events.names.texts[named]))
                link = _link(_process(thread), correlation)
                self.events.spans.add(SpanKind.CALL, self._thread(thread), plain[named], *span, link)

    def _ranges(self) -> None:
        """NVTX ranges. Marks have no end and are passed over."""
        columns = ("start", "end", "eventType", "text", "textId", "globalTid")
        for start, end, kind, text, number, thread in self._rows(_RANGES, *columns):
            if end is None or whole(kind, _PUSHED) not in (_PUSHED, _STARTED):
                continue
            span = self._span(start, end)
            name = text if isinstance(text, str) and text else self.events.names.texts[self._named(number)]
            if span:
                self._range(name[:2000], span, self._thread(thread), whole(kind, _PUSHED) == _PUSHED)

    def _range(self, name: str, span: tuple[int, int], thread: int, nests: bool) -> None:
        events, number = self.events, self.events.names.number
        if found := _COUNTS.fullmatch(name):
            events.spans.add(SpanKind.ANNOTATION, thread, number(f"ProfilerStep#{found[1]}"), *span)
        elif (found := _EMITTED.match(name)) and (found[2] or "op_id" in name):
            word, sequence = found[1].removeprefix("aten::"), whole(found[2])
            backward = "Backward" in word
            events.spans.add(SpanKind.OPERATOR, thread, number(found[1]), *span, sequence=sequence, backward=backward)
        elif found := _XLA.match(name):
            about = dict(one.split("=", 1) for one in found[2].split(",") if "=" in one)
            word = about.get("hlo_op") or about.get("name") or about.get("hlo_module") or found[1]
            kind = SpanKind.OPERATOR if "hlo_op" in about else SpanKind.ANNOTATION
            if kind == SpanKind.OPERATOR and about.get("name"):
                events.spans.add(SpanKind.ANNOTATION, thread, number(about["name"]), *span)
            events.spans.add(kind, thread, number(word), *span)
        elif nests:
            events.spans.add(SpanKind.ANNOTATION, thread, number(name), *span)

    def _memory(self) -> None:
        """What was allocated on each device, as the sum of what was asked for and given back."""
        held: dict[int, int] = {}
        columns = ("start", "globalPid", "deviceId", "bytes", "memKind", "memoryOperationType")
        for start, process, device, size, kind, what in self._rows(_MEMORY, *columns):
            if whole(kind, _ON_DEVICE) == _ON_DEVICE and whole(size) >= 0 and whole(start) >= 0:
                one = self._device(_process(process), device)
                held[one] = held.get(one, 0) + (whole(size) if whole(what) == _ALLOCATED else -whole(size))
                self.events.memory.add(ACCELERATOR, one, whole(start), max(held[one], 0))

    def _say(self, recorder: Recorder) -> None:
        if self.graphs:
            recorder.notes.append(
                f"{self.graphs:,} launches of CUDA graphs were recorded as a whole; --cuda-graph-trace=node "
                "records their kernels."
            )
        if self.odd:
            recorder.notes.append(f"{self.odd:,} rows without times that can be read were left out.")


def _process(identity: Any) -> int:
    """The process in a serialized id of a process or thread."""
    return whole(identity) >> 24 & 0xFFFFFF if whole(identity) >= 0 else 0


def _link(process: int, correlation: Any) -> int:
    """A correlation, which counts within a process, as a number of its own."""
    number = whole(correlation)
    return process << 32 | number & 0xFFFFFFFF if number > 0 else -1
