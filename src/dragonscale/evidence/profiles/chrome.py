"""Chrome traces: the JSON in which PyTorch's profiler, JAX's and TensorFlow's write what they saw.

The format says how a span of time is written, not what it means; who wrote the file is told by the events themselves.
PyTorch gives each a category (`kernel`, `cpu_op`), XProf names processes (`/device:TPU:0`, `/host:CPU`) and threads
(`XLA Ops`). A trace in which neither is found (a browser's, say) has no device's time in it, and is refused.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, printable, shorten
from dragonscale.evidence.profiles.jax_trace import JaxEvents
from dragonscale.evidence.profiles.json_stream import EventStream, TraceEvent
from dragonscale.evidence.profiles.kineto import KinetoEvents
from dragonscale.evidence.profiles.kineto_tracks import record_kineto
from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.listener import Listener

_FARTHEST = 4 * 10**15  # microseconds: the year 2096, and in nanoseconds still within 63 bits
_MOST_NAMED = 100_000
_DEEPEST = 1000
_NOTHING_UNTIL = 5_000_000
"""A trace that has shown no span of interest in so many events is none."""


class _Named(msgspec.Struct, gc=False):
    name: Any = None
    labels: Any = None


_NAMED = msgspec.json.Decoder(_Named)


def read(path: Path, listener: Listener) -> Recording:
    """The recording in a Chrome trace."""
    trace = _Trace(EventStream(path, listener))
    for batch in trace.stream:
        trace.add(batch)
        if trace.stream.events > _NOTHING_UNTIL and not len(trace.torch) and not len(trace.jax):
            break
    recorder = Recorder(path.name)
    trace.record(recorder, shorten(str(path)))
    return recorder.made()


class _Trace:
    """One trace, while its events come."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.torch, self.jax = KinetoEvents(), JaxEvents()
        self.processes: dict[Any, str] = {}
        self.threads: dict[tuple[Any, Any], str] = {}
        self.open: dict[tuple[Any, Any], list[tuple[TraceEvent, int]]] = {}
        self.odd: Counter[str] = Counter()

    def add(self, batch: list[TraceEvent]) -> None:
        """Events, each by its phase."""
        handlers, spans = self.torch.handlers, self.jax.add
        for event in batch:
            phase = event.ph
            if phase == "X":
                ts, dur = event.ts, event.dur or 0
                if ts is None or not -_FARTHEST < ts < _FARTHEST or not 0 <= dur < _FARTHEST:
                    self._odd(ts)
                    continue
                start = round(ts * 1000)
                end = round((ts + dur) * 1000)
                if event.cat is None:
                    spans(event, start, end)
                elif handler := handlers.get(event.cat) or handlers.get(event.cat.lower()):
                    handler(event, start, end)
            elif phase and phase not in ("s", "f", "t"):
                self._other(event)

    def _odd(self, moment: float | None) -> None:
        timeless = moment is None or not -_FARTHEST < moment < _FARTHEST
        self.odd["without a time that can be read" if timeless else "with a negative or impossible duration"] += 1

    def _other(self, event: TraceEvent) -> None:
        """Names, instants, and spans whose begin and end are events of their own."""
        if event.ph == "M":
            self._name(event)
            return
        if event.ts is None or not -_FARTHEST < event.ts < _FARTHEST:
            self._odd(None)
            return
        at, lane = round(event.ts * 1000), (event.pid, event.tid)
        if event.ph in ("i", "I") and event.name == "[memory]":
            self.torch.sample(event, at)
        elif event.ph == "B" and (lane in self.open or len(self.open) < _MOST_NAMED):
            waiting = self.open.setdefault(lane, [])
            if len(waiting) < _DEEPEST:
                waiting.append((event, at))
        elif event.ph == "E" and self.open.get(lane):
            begun, start = self.open[lane].pop()
            if begun.cat is None:
                self.jax.add(begun, start, max(at, start))
            elif handler := self.torch.handlers.get(begun.cat.lower()):
                handler(begun, start, max(at, start))

    def _name(self, event: TraceEvent) -> None:
        named = event.decoded(_NAMED)
        if isinstance(named.name, str) and len(self.processes) + len(self.threads) < _MOST_NAMED:
            if event.name == "process_name":
                self.processes[event.pid] = named.name[:500]
            elif event.name == "thread_name":
                self.threads[event.pid, event.tid] = named.name[:500].strip()

    def record(self, recorder: Recorder, named: str) -> None:
        """Everything into the recorder, by who wrote it."""
        stream = self.stream
        if self.jax.any(self.processes):
            recorder.software = "JAX/XProf"
            self.jax.record(recorder, self.processes, self.threads)
            if not recorder.devices:
                recorder.notes.append(
                    "The profile holds no device's ops: no TPU or GPU, and no op of XLA's CPU backend on the host's "
                    "threads."
                )
        elif len(self.torch):
            recorder.software = "PyTorch/Kineto"
            record_kineto(self.torch, recorder, stream.beside, self.threads)
        elif stream.cut:
            raise InputError(
                f"{named} is no whole Chrome trace: {stream.cut}, and no device's time was found before that."
            )
        else:
            events = f"{stream.events:,} events, but without tracks of a device"
            what = events if stream.events else "no events of a trace"
            raise InputError(
                f"{named} is a JSON file with {what}; profiles of JAX (trace.json.gz), PyTorch (Kineto) and "
                "TensorFlow are read."
            )
        self._say(recorder)

    def _say(self, recorder: Recorder) -> None:
        stream = self.stream
        if stream.cut:
            recorder.notes.append(
                f"The file is not whole: {printable(stream.cut)}; what came before it ({stream.events:,} events) "
                "was read."
            )
        if stream.unreadable:
            recorder.notes.append(f"{stream.unreadable:,} entries could not be read and were left out.")
        recorder.notes.extend(f"{count:,} events {what} were left out." for what, count in self.odd.items())
        if more := self.torch.spans.dropped:
            recorder.notes.append(f"{more:,} spans of the host beyond the first ten million were left out.")
