"""Chrome traces: the JSON in which PyTorch's profiler, JAX's and TensorFlow's write what they saw.

The format says how a span of time is written, not what it means; who wrote the file is told by the events themselves. PyTorch gives each a category
(`kernel`, `cpu_op`), XProf names processes (`/device:TPU:0`, `/host:CPU`) and threads (`XLA Ops`). A trace in which neither is found (a browser's, say)
has no device's time in it, and is refused.
"""

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, printable, shorten
from dragonscale.evidence.profiles.jax_trace import JaxEvents
from dragonscale.evidence.profiles.json_stream import EventStream, TraceEvent
from dragonscale.evidence.profiles.kineto import KinetoEvents
from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.listener import Listener

_MOST_MICROSECONDS = Decimal(10) ** 15 * 9  # the year 2255, and in nanoseconds still within 63 bits
_MOST_NAMED = 100_000


class _Named(msgspec.Struct, gc=False):
    name: Any = None
    labels: Any = None


_NAMED = msgspec.json.Decoder(_Named)


def read(path: Path, listener: Listener) -> Recording:
    """The recording in a Chrome trace."""
    trace = _Trace(EventStream(path, listener))
    for batch in trace.stream:
        for event in batch:
            trace.add(event)
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

    def add(self, event: TraceEvent) -> None:
        """One event, by its phase."""
        phase = event.ph
        if phase == "X":
            start = self._moment(event.ts)
            if start is not None:
                end = self._end(event, start)
                if end is not None:
                    self._span(event, start, end)
        elif phase == "M":
            self._name(event)
        elif phase == "B":
            start = self._moment(event.ts)
            waiting = self.open.setdefault((event.pid, event.tid), []) if len(self.open) < _MOST_NAMED else []
            if start is not None and len(waiting) < 10_000:
                waiting.append((event, start))
        elif phase == "E":
            end, waiting = self._moment(event.ts), self.open.get((event.pid, event.tid))
            if end is not None and waiting:
                begun, start = waiting.pop()
                self._span(begun, start, max(end, start))
        elif phase in ("i", "I") and event.name == "[memory]":
            at = self._moment(event.ts)
            if at is not None:
                self.torch.sample(event, at)

    def _moment(self, at: Decimal | None) -> int | None:
        """Nanoseconds of a moment in microseconds."""
        if at is None or not at.is_finite() or not -_MOST_MICROSECONDS < at < _MOST_MICROSECONDS:
            self.odd["without a time that can be read"] += 1
            return None
        return int(at * 1000)

    def _end(self, event: TraceEvent, start: int) -> int | None:
        if event.dur is None:
            return start
        if not event.dur.is_finite() or not 0 <= event.dur < _MOST_MICROSECONDS:
            self.odd["with a negative or impossible duration"] += 1
            return None
        assert event.ts is not None
        return max(int((event.ts + event.dur) * 1000), start)

    def _span(self, event: TraceEvent, start: int, end: int) -> None:
        if event.cat:
            self.torch.add(event, event.cat.lower(), start, end)
        if not event.cat or event.cat.lower() in ("op", "xla"):
            self.jax.add(event, start, end)

    def _name(self, event: TraceEvent) -> None:
        try:
            named = _NAMED.decode(event.args)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return
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
        elif len(self.torch):
            recorder.software = "PyTorch/Kineto"
            self.torch.record(recorder, stream.beside, self.threads)
        elif stream.cut:
            raise InputError(
                f"{named} is no whole Chrome trace: {stream.cut}, and no device's time was found before that."
            )
        else:
            what = f"{stream.events:,} events" if stream.events else "no events"
            raise InputError(
                f"{named} is a JSON file with {what}, but without tracks of a device; profiles of JAX (trace.json.gz), PyTorch (Kineto) and "
                "TensorFlow are read."
            )
        self._say(recorder)

    def _say(self, recorder: Recorder) -> None:
        stream = self.stream
        if stream.cut:
            recorder.notes.append(
                f"The file is not whole: {printable(stream.cut)}; what came before it ({stream.events:,} events) was read."
            )
        if stream.unreadable:
            recorder.notes.append(f"{stream.unreadable:,} entries could not be read and were left out.")
        recorder.notes.extend(f"{count:,} events {what} were left out." for what, count in self.odd.items())
        if self.torch.spans.dropped:
            recorder.notes.append(
                f"{self.torch.spans.dropped:,} spans of the host beyond the first ten million were left out."
            )
