"""A profile of PyTorch: kernels on streams, and the operators on the host that launched them.

PyTorch's profiler (Kineto) writes the kernels of a GPU as it saw them and the host's operators, modules, annotations and calls of the driver as spans
on threads. A kernel names its launch by a correlation; the launch lies inside of operators (`aten::linear` in `aten::addmm`), those inside
of modules and of the user's annotations. So the words that say what a kernel is for (caller, shapes, scope, source) are gathered
from around its launch. The backward pass runs on a thread of its own, outside of every module: there each operator carries the sequence number of
the forward operator that it belongs to, and takes its scope. All kernels of a CUDA graph hang on the one launch of the graph.

Where no kernels were recorded, the CPU is the device, and its ops are the operators that did the work themselves (`torch_cpu.py`).
"""

import re
from array import array
from typing import Any

import msgspec
import numpy as np

from dragonscale.evidence.profiles.host_spans import HostSpans, Names, SpanKind
from dragonscale.evidence.profiles.json_stream import TraceEvent
from dragonscale.evidence.profiles.memory_samples import MemorySamples
from dragonscale.evidence.profiles.recording import MOST_EVENTS, OpText, Recorder
from dragonscale.evidence.profiles.torch_args import (
    DeviceArgs,
    HostArgs,
    MemoryArgs,
    collective_of,
    groups_of,
    launch_of,
    shapes_of,
    whole,
)

_KERNELS = frozenset({"kernel", "mtia_ccp_events", "concurrent_kernel"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_ANNOTATIONS = frozenset({"user_annotation", "python_annotation"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver", "runtime"})  # fmt: skip
_OPERATORS = frozenset({"cpu_op", "operator"})
_COLLECTIVE = re.compile(
    r"nccl|rccl|oneccl|onecclkernel|one_shot_all_?reduce|two_shot_all_?reduce|allreduce_kernel", re.IGNORECASE
)
_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_LIBRARY = re.compile(
    r"^(?:<|torch/|nn\.Module: |.*(?:site-packages|dist-packages|/lib/python\d)|(?:contextlib|threading|functools|runpy|enum)\.py)"
)
_CPU, _ACCELERATOR = 0, 1
_MOST_DIFFERENT = 1_000_000

_DEVICE = msgspec.json.Decoder(DeviceArgs)
_HOST = msgspec.json.Decoder(HostArgs)
_MEMORY = msgspec.json.Decoder(MemoryArgs)


def decoded(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw) -> Any:
    """An event's `args`, or none of them where they are no object."""
    try:
        return decoder.decode(raw) if len(raw) else decoder.decode(b"{}")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return decoder.decode(b"{}")


class KinetoEvents:
    """Collects PyTorch's events as they come; `record` makes tracks and ops of them."""

    def __init__(self) -> None:
        self.names = Names()
        self.spans = HostSpans(self.names)
        self.memory = MemorySamples()
        self.dropped = 0
        self._rows = [
            array("q") for _ in range(9)
        ]  # device, stream, start, end, name, correlation, external, details, what
        self._marks = [array("q") for _ in range(5)]  # annotations on a device: device, stream, start, end, name
        self._details: dict[tuple[Any, ...], int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}
        self._shapes: dict[tuple[str, ...], int] = {}
        self._frames: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._rows[0]) + len(self.spans)

    def add(self, event: TraceEvent, category: str, start: int, end: int) -> None:
        """A span of time of a category; those of no interest are passed over."""
        if category in _OPERATORS:
            self._operator(event, start, end)
        elif category in _CALLS:
            args = decoded(_HOST, event.args)
            self.spans.add(
                SpanKind.CALL, self._thread(event), self.names.number(event.name), start, end, whole(args.correlation)
            )
        elif category == "python_function":
            self._frame(event, start, end)
        elif category in _KERNELS or category in _COPIES:
            self._on_device(event, category, start, end)
        elif category in _ANNOTATIONS:
            self.spans.add(SpanKind.ANNOTATION, self._thread(event), self.names.number(event.name), start, end)
        elif category == "gpu_user_annotation":
            args = decoded(_DEVICE, event.args)
            device, stream = whole(args.device, whole(event.pid)), whole(args.stream, whole(event.tid))
            if len(self._marks[0]) >= _MOST_DIFFERENT:
                return
            for column, value in zip(
                self._marks, (device, stream, start, end, self.names.number(event.name)), strict=True
            ):
                column.append(value)

    def sample(self, event: TraceEvent, at: int) -> None:
        """An instant `[memory]`: what the allocator holds."""
        args = decoded(_MEMORY, event.args)
        kind, total = whole(args.kind), whole(args.total)
        if total >= 0:
            self.memory.add(_CPU if kind == 0 else _ACCELERATOR, max(whole(args.device), 0), at, total)

    def _thread(self, event: TraceEvent) -> int:
        return self._threads.setdefault((event.pid, event.tid), len(self._threads))

    def _operator(self, event: TraceEvent, start: int, end: int) -> None:
        args = decoded(_HOST, event.args)
        shapes = shapes_of(args.dims if args.dims is not None else args.old_dims, args.types)
        number = self._numbered(self._shapes, shapes) if shapes else -1
        external = whole(args.external if args.external is not None else args.old_external)
        backward = whole(args.forward_thread, 0) > 0
        name = self.names.number(event.name)
        self.spans.add(
            SpanKind.OPERATOR, self._thread(event), name, start, end, external, whole(args.sequence), number, backward
        )

    def _frame(self, event: TraceEvent, start: int, end: int) -> None:
        """A call in Python: a module, or a line of the user's own program; those of libraries say nothing that a reader looks for."""
        name = self.names.number(event.name)
        kept = self._frames.get(name)
        text = self.names.texts[name]
        if kept is None:
            kept = self._frames[name] = text.startswith("nn.Module: ") or not _LIBRARY.match(text)
        if kept:
            kind = SpanKind.MODULE if text.startswith("nn.Module: ") else SpanKind.FRAME
            self.spans.add(kind, self._thread(event), name, start, end)

    def _on_device(self, event: TraceEvent, category: str, start: int, end: int) -> None:
        if len(self._rows[0]) >= MOST_EVENTS:
            self.dropped += 1
            return
        args = decoded(_DEVICE, event.args)
        details: tuple[Any, ...] = (category, launch_of(args))
        if args.collective is not None:
            details = (*details, *collective_of(args), str(args.group)[:100])
        elif category in _COPIES and whole(args.bytes) >= 0:
            details = (*details, (), float(whole(args.bytes)), (), "")
        row = (
            whole(args.device, whole(event.pid)), whole(args.stream, whole(event.tid)), start, end, self.names.number(event.name),
            whole(args.correlation), whole(args.external), self._numbered(self._details, details), category in _COPIES,
        )  # fmt: skip
        for column, value in zip(self._rows, row, strict=True):
            column.append(value)

    def _numbered(self, known: dict[Any, int], one: Any) -> int:
        """The number of something that comes again and again; beyond a million different ones, that of the first."""
        return known.setdefault(one, len(known)) if len(known) < _MOST_DIFFERENT else known.get(one, 0)

    # --- all collected

    def record(self, recorder: Recorder, beside: dict[str, Any], threads: dict[tuple[Any, Any], str]) -> None:
        """Put everything into a recorder: the device's events first, so that a bound on their number drops the host's."""
        recorder.dropped += self.dropped
        self.spans.nest()
        shapes = list(self._shapes)
        steps = _Steps(self.spans)
        if len(self._rows[0]):
            devices = self._devices(recorder, beside)
            self._record_kernels(recorder, devices, shapes, groups_of(beside), steps)
            self._record_marks(recorder, devices)
            for index, number in devices.items():
                self.memory.into(recorder, number, _ACCELERATOR, index)
        else:
            from dragonscale.evidence.profiles.torch_cpu import record_cpu

            record_cpu(recorder, self.spans, shapes, steps.of(self.spans.start))
            self.memory.into(recorder, 0, _CPU, 0)
        steps.record(recorder)
        self._record_host(recorder, threads)
        _say_where(recorder, beside)

    def _devices(self, recorder: Recorder, beside: dict[str, Any]) -> dict[int, int]:
        """The devices with events, by the number that the file gives them."""
        listed = beside.get("deviceProperties")
        known = (
            {whole(one.get("id")): one for one in listed if isinstance(one, dict)} if isinstance(listed, list) else {}
        )
        devices: dict[int, int] = {}
        for index in sorted(set(self._rows[0]))[:4096]:
            about = known.get(index, known.get(0, {}) if len(known) == 1 else {})
            memory = whole(about.get("totalGlobalMem"))
            name = str(about.get("name", f"GPU {index}"))[:200]
            devices[index] = recorder.device(name, "gpu", index, memory_bytes=float(memory) if memory > 0 else None)
        return devices

    def _record_kernels(
        self,
        recorder: Recorder,
        devices: dict[int, int],
        shapes: list[tuple[str, ...]],
        groups: dict[str, tuple[int, ...]],
        steps: "_Steps",
    ) -> None:
        spans, texts = self.spans, self.names.texts
        device, stream, start, end, name, correlation, external, details, copies = (
            np.frombuffer(each, dtype=np.int64) for each in self._rows
        )
        call = spans.calls().find(correlation)
        owner = np.where(call >= 0, spans.parent[call] if len(spans.parent) else -1, -1)
        operator = spans.operators().find(external)
        owner = np.where(owner >= 0, owner, np.where(call >= 0, -1, operator))
        owner = np.where((owner < 0) & (operator >= 0), operator, owner)
        launched = np.where(call >= 0, spans.start[call] if len(spans.start) else -1, -1)
        run = np.where(launched >= 0, steps.of(launched), -1)
        forward = spans.forward_paths()
        about = list(self._details)
        tracks = self._tracks(recorder, devices, device, stream, name, copies)
        made: dict[tuple[int, ...], int] = {}
        around: dict[int, tuple[int, int, int]] = {}
        rows = zip(
            *(each.tolist() for each in (device, stream, start, end, name, details, copies, owner, launched, run)),
            strict=True,
        )
        for on, lane, begin, finish, named, detail, copied, inside, asked, step in rows:
            if on not in devices:
                recorder.dropped += 1
                continue
            found = around.get(inside)
            if found is None:
                found = around[inside] = self._around(inside, forward)
            key = (named, detail, *found)
            op = made.get(key)
            if op is None:
                op = made[key] = recorder.op(self._op(texts[named], about[detail], found, shapes, groups))
            recorder.event(tracks[on, lane, copied], op, begin, finish - begin, asked, step)

    def _around(self, span: int, forward: dict[int, int]) -> tuple[int, int, int]:
        """Of the span that a launch lies in: its path, the forward operator's path, and the nearest shapes."""
        spans, shapes, before = self.spans, -1, -1
        path = int(spans.path[span]) if span >= 0 else 0
        while span >= 0 and (shapes < 0 or before < 0):
            if shapes < 0:
                shapes = int(spans.shapes[span])
            if before < 0 and spans.backward[span]:
                before = forward.get(int(spans.sequence[span]), -1)
            span = int(spans.parent[span])
        return path, before, shapes

    def _op(
        self,
        name: str,
        about: tuple[Any, ...],
        found: tuple[int, int, int],
        shapes: list[tuple[str, ...]],
        groups: dict[str, tuple[int, ...]],
    ) -> OpText:
        path, before, shape = found
        category, launch, group, sent, moved, group_name = about if len(about) == 6 else (*about, (), None, (), "")
        scope = self.spans.scope(path) if before < 0 else self.spans.forward_scope(path, before)
        return OpText(
            name, category=category, scope=scope, source=self.spans.source(path) or (self.spans.source(before) if before > 0 else ""),
            caller=self.spans.caller(path), shapes=moved or (shapes[shape] if shape >= 0 else ()), group=group or groups.get(group_name, ()),
            wire_bytes=sent, launch=launch,
        )  # fmt: skip

    def _tracks(
        self,
        recorder: Recorder,
        devices: dict[int, int],
        device: np.ndarray,
        stream: np.ndarray,
        name: np.ndarray,
        copies: np.ndarray,
    ) -> dict[tuple[int, int, int], int]:
        """A track for each stream; where one has kernels and copies, two. A stream on which nothing but collectives run is `async`."""
        sends = np.array([bool(_COLLECTIVE.search(one)) for one in self.names.texts] or [False])[name]
        lanes = np.stack([device, stream, copies], axis=1)
        unique, which = np.unique(lanes, axis=0, return_inverse=True)
        computes = np.bincount(which.ravel(), weights=~sends, minlength=len(unique))
        tracks: dict[tuple[int, int, int], int] = {}
        for (on, lane, copied), kernels in zip(unique.tolist(), computes.tolist(), strict=True):
            if on in devices:
                kind = "copies" if copied else "ops" if kernels else "async"
                tracks[on, lane, copied] = recorder.track(
                    devices[on], f"stream {lane}{' copies' if copied else ''}", kind
                )
        return tracks

    def _record_marks(self, recorder: Recorder, devices: dict[int, int]) -> None:
        """Annotations as they lie over the device's time; the profiler's own steps among them are steps."""
        tracks: dict[tuple[int, int, bool], int] = {}
        for device, stream, start, end, name in zip(*self._marks, strict=True):
            text = self.names.texts[name]
            step = _STEP.match(text)
            if device not in devices:
                continue
            lane = (device, stream, bool(step))
            if lane not in tracks:
                tracks[lane] = recorder.track(
                    devices[device],
                    f"stream {stream} {'steps' if step else 'annotations'}",
                    "steps" if step else "scopes",
                )
            op = recorder.op(OpText("ProfilerStep" if step else text, category="gpu_user_annotation"))
            recorder.event(tracks[lane], op, start, end - start, run=int(step.group(1)) if step else -1)

    def _record_host(self, recorder: Recorder, threads: dict[tuple[Any, Any], str]) -> None:
        """The host's threads: calls of the driver, annotations, and operators that lie in no other operator."""
        spans, tracks = self.spans, {}
        titles = {number: threads.get(thread, f"thread {thread[1]}") for thread, number in self._threads.items()}
        outer = (spans.parent < 0) | (spans.kind[spans.parent] != SpanKind.OPERATOR)
        kept = np.flatnonzero(
            (spans.kind == SpanKind.CALL)
            | (spans.kind == SpanKind.ANNOTATION)
            | ((spans.kind == SpanKind.OPERATOR) & outer)
        )
        words = {SpanKind.CALL: "runtime", SpanKind.ANNOTATION: "user_annotation", SpanKind.OPERATOR: "cpu_op"}
        columns = (
            spans.thread[kept].tolist(),
            spans.kind[kept].tolist(),
            spans.name[kept].tolist(),
            spans.start[kept].tolist(),
            spans.end[kept].tolist(),
        )
        for thread, kind, name, start, end in zip(*columns, strict=True):
            if thread not in tracks:
                tracks[thread] = recorder.track(-1, titles.get(thread, "thread")[:200], "host")
            text = self.names.texts[name]
            if kind == SpanKind.ANNOTATION and _STEP.match(text):
                continue
            recorder.event(
                tracks[thread], recorder.op(OpText(text, category=words[SpanKind(kind)])), start, end - start
            )


class _Steps:
    """The profiler's own steps, on the host."""

    def __init__(self, spans: HostSpans) -> None:
        numbers = {
            number: int(found.group(1)) for number, text in enumerate(spans.names.texts) if (found := _STEP.match(text))
        }
        rows = (
            np.flatnonzero(np.isin(spans.name, list(numbers)) & (spans.kind == SpanKind.ANNOTATION))
            if numbers
            else np.zeros(0, int)
        )
        rows = rows[np.argsort(spans.start[rows], kind="stable")]
        self.start, self.end = spans.start[rows], spans.end[rows]
        self.number = np.array([numbers[one] for one in spans.name[rows].tolist()], dtype=np.int64)

    def of(self, moments: np.ndarray) -> np.ndarray:
        """The step of each moment, -1 outside of all."""
        if not len(self.start):
            return np.full(len(moments), -1)
        at = np.maximum(np.searchsorted(self.start, moments, side="right") - 1, 0)
        return np.where((moments >= self.start[at]) & (moments < self.end[at]), self.number[at], -1)

    def record(self, recorder: Recorder) -> None:
        """The steps as the host saw them."""
        if len(self.start):
            track, op = (
                recorder.track(-1, "steps", "steps"),
                recorder.op(OpText("ProfilerStep", category="user_annotation")),
            )
            for start, end, number in zip(self.start.tolist(), self.end.tolist(), self.number.tolist(), strict=True):
                recorder.event(track, op, start, end - start, run=number)


def _say_where(recorder: Recorder, beside: dict[str, Any]) -> None:
    info = beside.get("distributedInfo")
    if isinstance(info, dict) and whole(info.get("world_size")) > 1:
        recorder.notes.append(
            f"This is rank {whole(info.get('rank'))} of {whole(info.get('world_size'))} ({str(info.get('backend', ''))[:40]})."
        )
