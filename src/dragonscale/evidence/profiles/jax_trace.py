"""Traces that JAX, XProf and TensorFlow export: an XSpace's planes as processes, its lines as threads.

`jax.profiler.trace` leaves a `trace.json.gz` beside the `xplane.pb`. It is the smaller witness: no compiled programs,
at most a million events, and all statistics as text. What it has is named as in the xplane and is read the same way, so
a recording of either is the same as far as this file goes: a TPU's `XLA Ops` are its ops, a GPU's streams are (the
lines that XProf derives from them are not: they are the same kernels again), and XLA's CPU backend has its ops on the
host's threads, where an event names an instruction.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np

from dragonscale.evidence.profiles.host_spans import Names
from dragonscale.evidence.profiles.intervals import looked_up
from dragonscale.evidence.profiles.json_stream import TraceEvent, whole
from dragonscale.evidence.profiles.recording import MOST_EVENTS, OpText, Recorder, Rows
from dragonscale.evidence.profiles.xplane_ops import LAUNCHING, NAMING, line_kind, op_text, settled_kind

_DEVICE = re.compile(r"/device:(TPU|GPU|CPU):(\d{1,6})\s*(.*)")
_MOST_ROWS = MOST_EVENTS + MOST_EVENTS // 4
_XPROF_MOST = 1_000_000
_STEP = -2
"""Marks a step where an op of the CPU has its device."""


_WORDS = (*NAMING, *LAUNCHING)
"""Statistics that say what an op is, XProf writes them all as strings; others need not."""
_COUNTS = ("flops", "model_flops", "bytes_accessed", "raw_bytes_accessed")
_PLACES = ("device_ordinal", "device_duration_ps", "run_id", "step_num", "correlation_id")
JaxArgs: Any = msgspec.defstruct("JaxArgs", [(name, Any, None) for name in (*_WORDS, *_COUNTS, *_PLACES)], gc=False)
"""Statistics of an event."""
_ARGS = msgspec.json.Decoder(JaxArgs)
_NONE = JaxArgs()


def _count(value: Any) -> float | None:
    try:
        return float(value[:40] if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None


def op_of(name: str, values: Sequence[Any]) -> OpText:
    """An op by its name and by the values of the statistics that say what it is, in their order.

    >>> stats = {"long_name": "%fusion.3 = bf16[8,8] fusion(%a)", "tf_op": "jit(f)/mlp/dot_general:", "flops": "1024"}
    >>> made = op_of("fusion.3", [stats.get(name) for name in (*_WORDS, *_COUNTS)])
    >>> made.name, made.scope, made.flops
    ('fusion.3', 'jit(f)/mlp/dot_general', 1024.0)
    """
    stats = dict(zip((*_WORDS, *_COUNTS), values, strict=False))
    counts = {name: number for name in _COUNTS if (number := _count(stats.get(name))) is not None}
    return op_text(name, "", {name: stats[name] for name in _WORDS if stats.get(name) is not None} | counts, None)


class JaxEvents:
    """Collects events that carry no category; `record` makes tracks of them once the names of their processes are
    known."""

    def __init__(self) -> None:
        self._names = Names()
        self._lanes: dict[tuple[Any, Any], int] = {}
        self._ops: dict[tuple[Any, ...], int] = {}
        self._rows = Rows(7)  # lane, start, end, op, run, link, ordinal
        self.dropped = 0

    def add(self, event: TraceEvent, start: int, end: int) -> None:
        """A span of time."""
        if len(self._rows) >= _MOST_ROWS or len(self._ops) >= 2_000_000:
            self.dropped += 1
            return
        args = event.decoded(_ARGS) if len(event.args) > 2 else _NONE
        name = self._names.number(event.name)
        key: tuple[Any, ...] = (name,)
        if args is not _NONE:
            fields = msgspec.structs.astuple(args)[: len(_WORDS) + len(_COUNTS)]
            key = (name, *(one if isinstance(one, str | int | float) else None for one in fields))
            exact = whole(args.device_duration_ps)
            if exact >= 0:
                end = start + (exact + 500) // 1000
        lane = self._lanes.setdefault((event.pid, event.tid), len(self._lanes))
        op = self._ops.setdefault(key, len(self._ops))
        on_cpu = whole(args.device_ordinal, 0) if args.hlo_op is not None else -1
        step = whole(args.step_num)
        run, marked = (step, _STEP) if step >= 0 else (whole(args.run_id), on_cpu)
        self._rows.add(lane, start, end, op, run, whole(args.correlation_id), marked)

    def __len__(self) -> int:
        return len(self._rows)

    def any(self, processes: dict[Any, str]) -> bool:
        """Whether these are events of XProf: processes are named after its planes."""
        named = [one for one in processes.values() if one.startswith(("/device:", "/host:"))]
        return bool(named) and len(self._rows) > 0

    def record(self, recorder: Recorder, processes: dict[Any, str], threads: dict[tuple[Any, Any], str]) -> None:
        """Put everything into a recorder: devices first, so that a bound on events drops the host's."""
        lane, start, end, op, run, link, ordinal = self._rows.columns()
        run, numbers = run.copy(), np.full(len(self._ops), -1)
        texts = [op_of(self._names.texts[key[0]], key[1:]) for key in self._ops]
        titles = [(processes.get(pid, ""), threads.get((pid, tid), str(tid))) for pid, tid in self._lanes]
        lanes = [(*title, rows) for title, rows in zip(titles, _grouped(lane, len(titles)), strict=True)]
        asked = _launched(link, start, np.array([not process.startswith("/device:") for process, _ in titles])[lane])
        tracks = chain(_on_devices(recorder, lanes, texts, op, run), _on_hosts(recorder, lanes, ordinal))
        for rows, track, ran in tracks:
            for each in np.unique(op[rows]).tolist():
                if numbers[each] < 0:
                    numbers[each] = recorder.op(texts[each])
            on, runs = np.full(len(rows), track), run[rows] if ran else np.full(len(rows), -1)
            first = recorder.events(on, numbers[op[rows]], start[rows], end[rows] - start[rows], runs)
            if ran:
                recorder.launches(first, asked[rows])
        if len(lane) + self.dropped >= 0.99 * _XPROF_MOST:
            recorder.notes.append(
                "The trace is as long as XProf makes one, a million events: there may have been more; xplane.pb "
                "has them all."
            )


_Lanes = list[tuple[str, str, np.ndarray]]
"""Names of processes and threads, with the rows of their events."""
_OnTracks = Iterator[tuple[np.ndarray, int, bool]]
"""Rows, the track that they lie on, and whether they ran: spans of the host belong to no run."""


def _on_devices(recorder: Recorder, lanes: _Lanes, texts: list[OpText], op: np.ndarray, run: np.ndarray) -> _OnTracks:
    """The lines of devices; steps there are numbered by their names."""
    streams = {process for process, thread, _ in lanes if thread.startswith("Stream")}
    devices: dict[str, int] = {}
    for process, thread, rows in lanes:
        found = _DEVICE.match(process)
        kind = line_kind(thread, process in streams, "SparseCore" in found[3]) if found else None
        if not found or kind is None:
            continue
        if process not in devices:
            devices[process] = recorder.device(*_named(found))
        kind = settled_kind(kind, {texts[each].name for each in np.unique(op[rows]).tolist()})
        if kind == "steps":
            run[rows] = [whole(texts[each].name) for each in op[rows].tolist()]
        yield rows, recorder.track(devices[process], thread, kind), True


def _on_hosts(recorder: Recorder, lanes: _Lanes, ordinal: np.ndarray) -> _OnTracks:
    """The host's threads; where no device has a process of its own, ops of XLA's CPU backend are among their
    events."""
    hosts = [(thread, rows) for process, thread, rows in lanes if not _DEVICE.match(process)]
    has_device, cpus = bool(recorder.devices), dict[int, int]()
    for thread, rows in hosts if not has_device else ():
        on_cpu = ordinal[rows]
        for index in sorted(set(on_cpu[on_cpu >= 0].tolist())):
            if index not in cpus:
                cpus[index] = recorder.device("CPU", "cpu", index)
            yield rows[on_cpu == index], recorder.track(cpus[index], thread, "ops"), True
    marked = [rows[ordinal[rows] == _STEP] for _, rows in hosts]
    if any(map(len, marked)):
        yield np.concatenate(marked), recorder.track(-1, "Steps", "steps"), True
    for thread, rows in hosts:
        rest = rows[ordinal[rows] != _STEP] if has_device else rows[ordinal[rows] == -1]
        if len(rest):
            yield rest, recorder.track(-1, thread, "host"), False


def _named(found: re.Match[str]) -> "tuple[str, Literal['tpu', 'gpu', 'cpu', ''], int]":
    kinds: dict[str, Literal["tpu", "gpu", "cpu", ""]] = {"TPU": "tpu", "GPU": "gpu", "CPU": "cpu"}
    return found[3].strip(" ()") or found[1], kinds[found[1]], int(found[2])


def _grouped(lane: np.ndarray, lanes: int) -> list[np.ndarray]:
    order = np.argsort(lane, kind="stable")
    return np.split(order, np.searchsorted(lane[order], np.arange(1, lanes))) if lanes else []


def _launched(link: np.ndarray, start: np.ndarray, host: np.ndarray) -> np.ndarray:
    """When the host made the call that an event's correlation names; -1 where that is not known."""
    rows = np.flatnonzero(host & (link > 0))
    rows = rows[np.argsort(link[rows], kind="stable")]
    return looked_up(link[rows], start[rows], link)
