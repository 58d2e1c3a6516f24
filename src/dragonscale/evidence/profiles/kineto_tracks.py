"""Tracks and ops of a profile of PyTorch.

A kernel names its launch by a correlation; the launch lies inside of operators (`aten::linear` in `aten::addmm`), those
inside of modules and of the user's annotations. So the words that say what a kernel is for (caller, shapes, scope,
source) are gathered from around its launch. The backward pass runs on a thread of its own, outside of every module:
there each operator carries the sequence number of the forward operator that it belongs to, and takes its scope. All
kernels of a CUDA graph hang on the one launch of the graph.

Where no kernels were recorded, the CPU is the device, and its ops are the operators that did the work themselves.
An operator of PyTorch calls others: `aten::linear` is `aten::addmm` and little else, but `aten::add` calls
`aten::empty` for its output and then works itself. So an operator counts as the one at work where those inside of it
take less than half of its time; otherwise they do. What only leads from one to the other (the engine of autograd, a
compiled region) is never an op itself unless nothing lies in it.
"""

import re
from typing import Any

import numpy as np

from dragonscale.evidence.profiles.host_spans import HostSpans, SpanKind, in_parts
from dragonscale.evidence.profiles.json_stream import whole
from dragonscale.evidence.profiles.kineto import ACCELERATOR, CPU, KinetoEvents, groups_of
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import OpText, Recorder

_COLLECTIVE = re.compile(r"(?i)nccl|rccl|oneccl|(?:one|two)_?shot_all_?reduce|cross_device_reduce|allreduce_kernel")
_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_MOST_OPS = 500_000
MOST_DEVICES = 4096
"""Devices of one recording that are read."""
NO_KERNELS = "The kernels of the GPU were not recorded: these are the host's times, and no rooflines are told."
_GPU = re.compile(r"(?i)cuda|cudnn|flash|cutlass|nccl|hip(?:blas|Launch|Memcpy)")
"""Names of operators and calls that only run where there is a GPU."""


def record_kineto(events: KinetoEvents, recorder: Recorder, beside: dict[str, Any], names: dict[Any, str]) -> None:
    """Put everything into a recorder: the device's events first, so that a bound on their number drops the host's.
    `beside` is what the file says beside its events, `names` what it calls the threads."""
    recorder.dropped += events.dropped
    events.spans.nest()
    steps = ProfilerSteps(events.spans)
    if len(events.rows):
        devices = _devices(events, recorder, beside)
        kernels = Kernels(events, devices, groups_of(beside))
        kernels.record(recorder, steps)
        _record_marks(events, recorder, devices, kernels.stepped)
        for index, number in devices.items():
            events.memory.into(recorder, number, ACCELERATOR, index)
    else:
        record_cpu(recorder, events.spans, list(events.shapes), steps.of(events.spans.start))
        events.memory.into(recorder, 0, CPU, 0)
        if _on_gpu(events):
            recorder.notes.append(NO_KERNELS)
    steps.record(recorder)
    _record_host(events, recorder, names)
    info = beside.get("distributedInfo")
    if isinstance(info, dict) and whole(info.get("world_size")) > 1:
        backend = str(info.get("backend", ""))[:40]
        recorder.notes.append(f"This is rank {whole(info.get('rank'))} of {whole(info.get('world_size'))} ({backend}).")


def _on_gpu(events: KinetoEvents) -> bool:
    """Whether a host without kernels worked for a GPU: it called the driver, or an operator that a CPU does not have.
    Devices are listed in the file wherever there is one, used or not. A CPU has an operator of its own for flash
    attention."""
    if (events.spans.kind == SpanKind.CALL).any():
        return True
    numbers = np.unique(events.spans.name[events.spans.kind == SpanKind.OPERATOR]).tolist()
    names = (events.names.texts[number] for number in numbers)
    return any(_GPU.search(name) and "forcpu" not in name.lower().replace("_", "") for name in names)


def _devices(events: KinetoEvents, recorder: Recorder, beside: dict[str, Any]) -> dict[int, int]:
    """The devices with events, by the number that the file gives them."""
    listed = beside.get("deviceProperties")
    known = {whole(one.get("id")): one for one in listed if isinstance(one, dict)} if isinstance(listed, list) else {}
    foreign = any(one[0].startswith("mtia") for one in events.details)
    devices: dict[int, int] = {}
    for index in np.unique(events.rows.columns()[0])[:MOST_DEVICES].tolist():
        about = known.get(index, known.get(0, {}) if len(known) == 1 else {})
        keys = {"bandwidth": "memoryBandwidth", "memory_bytes": "totalGlobalMem"}
        rates = {field: float(rate) for field, key in keys.items() if (rate := whole(about.get(key))) > 0}
        name = str(about.get("name") or f"GPU {index}")[:200]
        devices[index] = recorder.device(name, "" if foreign else "gpu", index, **rates)
    return devices


class Kernels:
    """Kernels, copies and sets, each with what stood around its launch."""

    def __init__(self, events: KinetoEvents, devices: dict[int, int], groups: dict[str, tuple[int, ...]]) -> None:
        self.spans, self.texts, self.devices, self.groups = events.spans, events.names.texts, devices, groups
        self.shapes, self.details = list(events.shapes), list(events.details)
        self.collectives = events.collectives
        self.stepped: set[int] = set()
        """Devices whose steps are known."""
        self.forward = self.spans.forward_paths()
        device, stream, start, end, name, correlation, external, details, copies = events.rows.columns()
        kept = slice(None)
        if len(devices) == MOST_DEVICES:  # only a file that is made to hurt has so many
            kept = np.isin(device, list(devices))
        self.dropped = len(device) - len(device[kept])
        self.device, self.stream, self.copies = device[kept], stream[kept], copies[kept]
        self.start, self.end, self.name, self.detail = start[kept], end[kept], name[kept], details[kept]
        self.call = self.spans.find(SpanKind.CALL, correlation[kept])
        self.owner = self._owners(external[kept])

    def _owners(self, external: np.ndarray) -> np.ndarray:
        """The innermost span around each launch; where the launch was not recorded, the operator that the kernel names
        itself."""
        operator = self.spans.find(SpanKind.OPERATOR, external)
        if not len(self.spans):
            return operator
        around = np.where(self.call >= 0, self.spans.parent[self.call], -1)
        return np.where(around >= 0, around, operator)

    def record(self, recorder: Recorder, steps: "ProfilerSteps") -> None:
        """Ops and events into a recorder."""
        recorder.dropped += self.dropped
        launched = np.where(self.call >= 0, self.spans.start[self.call], -1) if len(self.spans) else self.call
        run = np.where(launched >= 0, steps.of(launched), -1)
        made: dict[tuple[int, ...], int] = {}
        around: dict[int, tuple[int, int, int, int]] = {-1: (0, -1, -1, -1)}
        ops = np.zeros(len(self.start), np.int64)
        for row, (name, detail, owner) in enumerate(in_parts(self.name, self.detail, self.owner)):
            found = around.get(owner)
            if found is None:
                found = around[owner] = self._around(owner)
            key = (name, detail, *found)
            op = made.get(key)
            if op is None and len(made) < _MOST_OPS:
                op = made[key] = recorder.op(self._op(self.texts[name], self.details[detail], *found))
            elif op is None:
                op = recorder.op(OpText("(one of very many)", category=self.details[detail][0]))
            ops[row] = op
        first = recorder.events(self._tracks(recorder), ops, self.start, self.end - self.start, run)
        recorder.launches(first, launched)
        self._record_steps(recorder, run)

    def _record_steps(self, recorder: Recorder, run: np.ndarray) -> None:
        """The steps as a device saw them: from the first to the last of what was launched in one. The profiler's own
        spans over the device leave out what other threads launched, which is the whole backward pass."""
        rows = np.flatnonzero(run >= 0)
        if not len(rows):
            return
        rows = rows[np.lexsort((run[rows], self.device[rows]))]
        device, step = self.device[rows], run[rows]
        first = np.flatnonzero(np.append(True, (np.diff(device) != 0) | (np.diff(step) != 0)))
        start, end = np.minimum.reduceat(self.start[rows], first), np.maximum.reduceat(self.end[rows], first)
        devices, which = np.unique(device[first], return_inverse=True)
        self.stepped.update(devices.tolist())
        tracks = np.array([recorder.track(self.devices[one], "steps", "steps") for one in devices.tolist()])
        op = recorder.op(OpText("ProfilerStep", category="step"))
        recorder.events(tracks[which], np.full(len(first), op), start, end - start, step[first])

    def _around(self, span: int) -> tuple[int, int, int, int]:
        """Of the span that a launch lies in: its path, the forward operator's path, the nearest shapes, and the
        operator that says what is sent."""
        spans, shapes, before, sending = self.spans, -1, -1, -1
        path = int(spans.path[span])
        while span >= 0 and (shapes < 0 or before < 0):
            if shapes < 0:
                shapes = int(spans.shapes[span])
            if before < 0 and spans.backward[span]:
                before = self.forward.get(int(spans.sequence[span]), -1)
            if sending < 0 and spans.kind[span] == SpanKind.OPERATOR and int(spans.external[span]) in self.collectives:
                sending = int(spans.external[span])
            span = int(spans.parent[span])
        return path, before, shapes, sending

    def _op(self, name: str, about: tuple[Any, ...], path: int, before: int, shape: int, sending: int) -> OpText:
        known: tuple[Any, ...] = ((), None, (), "")
        if sending >= 0 and _COLLECTIVE.search(name):
            known = self.collectives[sending]
        category, launch, group, sent, moved, group_name = (*about, *known)[:6]
        shapes, causal = self.shapes[shape] if shape >= 0 else ((), False)
        return OpText(
            name,
            category=category,
            **self.spans.words(path, before),
            shapes=moved or shapes,
            group=group or self.groups.get(group_name, ()),
            wire_bytes=sent,
            launch=launch,
            causal=causal,
        )

    def _tracks(self, recorder: Recorder) -> np.ndarray:
        """The track of each event: one for each stream; where a stream has kernels and copies, two. A stream on which
        nothing but collectives run is `async`."""
        sends = np.array([bool(_COLLECTIVE.search(one)) for one in self.texts])[self.name]
        devices, device = np.unique(self.device, return_inverse=True)
        streams, stream = np.unique(self.stream, return_inverse=True)
        codes, which = np.unique((device * len(streams) + stream) * 2 + self.copies, return_inverse=True)
        lanes = np.stack([devices[codes // 2 // len(streams)], streams[codes // 2 % len(streams)], codes % 2], axis=1)
        computes = np.bincount(which, weights=~sends, minlength=len(lanes))
        numbers: list[int] = []
        for (device, stream, copies), kernels in zip(lanes.tolist(), computes.tolist(), strict=True):
            kind = "copies" if copies else "ops" if kernels else "async"
            name = f"stream {stream}{' copies' if copies else ''}"
            numbers.append(recorder.track(self.devices[device], name, kind))
        return np.array(numbers)[which]


def _record_marks(events: KinetoEvents, recorder: Recorder, devices: dict[int, int], stepped: set[int]) -> None:
    """Annotations as they lie over the device's time; the profiler's own steps among them are steps, where no better
    are known."""
    tracks: dict[tuple[int, int, bool], int] = {}
    for device, stream, start, end, name in zip(*(each.tolist() for each in events.marks.columns()), strict=True):
        text = events.names.texts[name]
        step = _STEP.match(text)
        if device not in devices or (step and device in stepped):
            continue
        lane = (device, stream, bool(step))
        if lane not in tracks:
            what, kind = ("steps", "steps") if step else ("annotations", "scopes")
            tracks[lane] = recorder.track(devices[device], f"stream {stream} {what}", kind)
        op = recorder.op(OpText("ProfilerStep" if step else text, category="gpu_user_annotation"))
        recorder.event(tracks[lane], op, start, end - start, run=int(step.group(1)) if step else -1)


def _record_host(events: KinetoEvents, recorder: Recorder, names: dict[Any, str]) -> None:
    """The host's threads: calls of the driver, annotations, and operators that lie in no other operator."""
    spans = events.spans
    if not len(spans):
        return
    outer = (spans.parent < 0) | (spans.kind[spans.parent] != SpanKind.OPERATOR)
    called, marked = spans.kind == SpanKind.CALL, spans.kind == SpanKind.ANNOTATION
    step = np.array([bool(_STEP.match(one)) for one in events.names.texts])[spans.name]
    kept = np.flatnonzero(called | (marked & ~step) | ((spans.kind == SpanKind.OPERATOR) & outer))
    words = {SpanKind.CALL: "runtime", SpanKind.ANNOTATION: "user_annotation", SpanKind.OPERATOR: "cpu_op"}
    kinds, which = np.unique(np.stack([spans.kind[kept], spans.name[kept]], axis=1), axis=0, return_inverse=True)
    ops = [OpText(events.names.texts[name], category=words[SpanKind(kind)]) for kind, name in kinds.tolist()]
    op = np.array([recorder.op(one) for one in ops], dtype=np.int64)[which.ravel()]
    titles = {number: names.get(thread, f"thread {thread[1]}")[:200] for thread, number in events.threads.items()}
    used = np.unique(spans.thread[kept])
    track = np.array([recorder.track(-1, titles.get(one, "thread"), "host") for one in used.tolist()], dtype=np.int64)
    on = track[np.searchsorted(used, spans.thread[kept])] if len(used) else np.zeros(0, np.int64)
    recorder.events(on, op, spans.start[kept], spans.end[kept] - spans.start[kept], np.full(len(kept), -1))


class ProfilerSteps:
    """The profiler's own steps, on the host."""

    def __init__(self, spans: HostSpans) -> None:
        numbers = {at: int(found[1]) for at, text in enumerate(spans.names.texts) if (found := _STEP.match(text))}
        rows = np.flatnonzero(np.isin(spans.name, list(numbers)) & (spans.kind == SpanKind.ANNOTATION))
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
            track = recorder.track(-1, "steps", "steps")
            op = recorder.op(OpText("ProfilerStep", category="user_annotation"))
            for start, end, number in zip(self.start.tolist(), self.end.tolist(), self.number.tolist(), strict=True):
                recorder.event(track, op, start, end - start, run=number)


def record_cpu(
    recorder: Recorder, spans: HostSpans, shapes: list[tuple[tuple[str, ...], bool]], steps: np.ndarray
) -> None:
    """The operators at work as ops of a device that is the CPU, one track for each thread."""
    device = recorder.device("CPU", "cpu")
    tracks: dict[int, int] = {}
    forward = spans.forward_paths()
    for span in working(spans).tolist():
        thread = int(spans.thread[span])
        if thread not in tracks:
            tracks[thread] = recorder.track(device, f"thread {len(tracks)}", "ops")
        op = recorder.op(_op(spans, span, shapes, forward))
        start, end = int(spans.start[span]), int(spans.end[span])
        recorder.event(tracks[thread], op, start, end - start, launched=start, run=int(steps[span]))


def working(spans: HostSpans) -> np.ndarray:
    """The operators at work: no two of them lie inside of each other."""
    operators = np.flatnonzero(spans.kind == SpanKind.OPERATOR)
    inside = np.zeros(len(spans), np.int64)
    count = np.zeros(len(spans), np.int64)
    for span in operators.tolist():
        above = _operator_above(spans, int(spans.parent[span]))
        if above >= 0:
            inside[above] += spans.end[span] - spans.start[span]
            count[above] += 1
    leads = np.array([_leads(name) for name in spans.names.texts] or [False])[spans.name]
    alone = (count == 0) | ((2 * inside < spans.end - spans.start) & ~leads)
    chosen = np.zeros(len(spans), bool)
    covered = np.zeros(len(spans), bool)
    for span in operators.tolist():  # parents come before what lies in them
        above = _operator_above(spans, int(spans.parent[span]))
        covered[span] = above >= 0 and (covered[above] or chosen[above])
        chosen[span] = not covered[span] and alone[span]
    return np.flatnonzero(chosen)


def _leads(name: str) -> bool:
    """Whether an operator only leads to others, or is made of them."""
    words = table("torch.toml")
    node = "::" not in name and name.rstrip("0123456789").endswith("Backward")
    return name.startswith(tuple(words["leads"])) or name in words["only_calls"] or node


def _operator_above(spans: HostSpans, span: int) -> int:
    while span >= 0 and spans.kind[span] != SpanKind.OPERATOR:
        span = int(spans.parent[span])
    return span


def _op(spans: HostSpans, span: int, shapes: list[tuple[tuple[str, ...], bool]], forward: dict[int, int]) -> OpText:
    path, name = int(spans.path[span]), spans.names.texts[int(spans.name[span])]
    before, above = -1, span
    while above >= 0 and before < 0:
        if spans.backward[above]:
            before = forward.get(int(spans.sequence[above]), -1)
        above = int(spans.parent[above])
    shape = int(spans.shapes[span])
    read, causal = shapes[shape] if shape >= 0 else ((), False)
    return OpText(name, category="cpu_op", **spans.words(path, before), shapes=read, causal=causal)
