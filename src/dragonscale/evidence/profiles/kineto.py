"""A profile of PyTorch: kernels on streams, and the operators on the host that launched them.

PyTorch's profiler (Kineto) writes the kernels of a GPU as it saw them and the host's operators, modules, annotations
and calls of the driver as spans on threads. Here they are collected as they come, whatever their order in the file;
`kineto_tracks.py` makes a recording of them.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dragonscale.evidence.profiles.host_spans import HostSpans, Names, SpanKind
from dragonscale.evidence.profiles.json_stream import TraceEvent
from dragonscale.evidence.profiles.memory_samples import MemorySamples
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import MOST_EVENTS, Rows
from dragonscale.evidence.profiles.torch_args import (
    DeviceArgs,
    HostArgs,
    MemoryArgs,
    collective_of,
    is_causal,
    launch_of,
    shapes_of,
    whole,
)

CPU, ACCELERATOR = 0, 1
"""Whose memory a sample is of."""
_LIBRARY = re.compile(
    r"^(?:<|torch/|.*(?:site-packages|dist-packages|/lib/python\d)|(?:contextlib|threading|functools|runpy|enum)\.py)"
)
_MOST_DIFFERENT = 1_000_000

_DEVICE = msgspec.json.Decoder(DeviceArgs)
_HOST = msgspec.json.Decoder(HostArgs)
_MEMORY = msgspec.json.Decoder(MemoryArgs)
_FAILED = (msgspec.DecodeError, RecursionError, ValueError)


class KinetoEvents:
    """PyTorch's events, collected as they come."""

    def __init__(self) -> None:
        self.names = Names()
        self.spans = HostSpans(self.names)
        self.memory = MemorySamples()
        self.dropped = 0
        self.rows = Rows(9)
        """What ran on devices: device, stream, start, end, name, correlation, external, details, whether it is a copy.
        """
        self.marks = Rows(5)
        """Annotations over a device's time: device, stream, start, end, name."""
        self.details: dict[tuple[Any, ...], int] = {}
        """Category, launch; of collectives and copies also group, bytes, shapes and the group's name."""
        self.collectives: dict[int, tuple[Any, ...]] = {}
        """Group, bytes, shapes and the group's name, where an operator has them, by the number under which kernels
        refer to it."""
        self.shapes: dict[tuple[tuple[str, ...], bool], int] = {}
        """Shapes of an operator's operands, and whether it is an attention with a causal mask."""
        self.threads: dict[tuple[Any, Any], int] = {}
        self._frames: dict[int, SpanKind | None] = {}
        categories = table("torch.toml")["categories"]
        self.handlers: dict[str, Callable[[TraceEvent, int, int], None]] = {
            "cpu_op": self._operator,
            "operator": self._operator,
            "python_function": self._frame,
            "user_annotation": self._annotation,
            "gpu_user_annotation": self._mark,
            **dict.fromkeys(categories["calls"], self._call),
            **dict.fromkeys(categories["kernels"], self._kernel),
            **dict.fromkeys(categories["copies"], self._copy),
        }
        """What is done with a span of time, by its category; others are of no interest."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.spans)

    def sample(self, event: TraceEvent, at: int) -> None:
        """An instant `[memory]`: what the allocator holds."""
        try:
            args = _MEMORY.decode(event.args)
        except _FAILED:
            return
        total = whole(args.total)
        if total >= 0:
            self.memory.add(CPU if whole(args.kind) == 0 else ACCELERATOR, max(whole(args.device), 0), at, total)

    def _thread(self, event: TraceEvent) -> int:
        return self.threads.setdefault((event.pid, event.tid), len(self.threads))

    def _operator(self, event: TraceEvent, start: int, end: int) -> None:
        args = _host(event)
        number = -1
        if args.dims is not None or args.old_dims is not None:
            dims = args.dims if args.dims is not None else args.old_dims
            shapes = shapes_of(dims, args.types)
            number = _numbered(self.shapes, (shapes, is_causal(str(event.name), dims, args.values))) if shapes else -1
        external = whole(args.external if args.external is not None else args.old_external)
        if args.collective is not None and len(self.collectives) < _MOST_DIFFERENT:
            self.collectives[external] = (*collective_of(args), str(args.group)[:100])
        backward = whole(args.forward_thread) > 0
        name = self.names.number(event.name)
        self.spans.add(3, self._thread(event), name, start, end, external, whole(args.sequence), number, backward)

    def _call(self, event: TraceEvent, start: int, end: int) -> None:
        name = self.names.number(event.name)
        self.spans.add(4, self._thread(event), name, start, end, whole(_host(event).correlation))

    def _annotation(self, event: TraceEvent, start: int, end: int) -> None:
        self.spans.add(SpanKind.ANNOTATION, self._thread(event), self.names.number(event.name), start, end)

    def _frame(self, event: TraceEvent, start: int, end: int) -> None:
        """A call in Python: a module, or a line of the user's own program; those of libraries say nothing that a reader
        looks for."""
        name = self.names.number(event.name)
        if name not in self._frames:
            text = self.names.texts[name]
            module = text.startswith("nn.Module: ")
            self._frames[name] = SpanKind.MODULE if module else None if _LIBRARY.match(text) else SpanKind.FRAME
        kind = self._frames[name]
        if kind is not None:
            self.spans.add(kind, self._thread(event), name, start, end)

    def _kernel(self, event: TraceEvent, start: int, end: int) -> None:
        args = _device(event)
        details: tuple[Any, ...] = (str(event.cat).lower(), launch_of(args))
        if args.collective is not None:
            details = (*details, *collective_of(args), str(args.group)[:100])
        self._on_device(event, args, details, start, end, False)

    def _copy(self, event: TraceEvent, start: int, end: int) -> None:
        args = _device(event)
        size = whole(args.bytes)
        details = (str(event.cat).lower(), "", (), float(size) if size >= 0 else None, (), "")
        self._on_device(event, args, details, start, end, True)

    def _on_device(
        self, event: TraceEvent, args: DeviceArgs, details: tuple[Any, ...], start: int, end: int, copied: bool
    ) -> None:
        device, stream = whole(args.device, whole(event.pid)), whole(args.stream, whole(event.tid))
        name = self.names.number(event.name)
        self.put((device, stream, start, end, name, whole(args.correlation), whole(args.external)), details, copied)

    def put(self, row: tuple[int, int, int, int, int, int, int], details: tuple[Any, ...], copied: bool) -> None:
        """Something that ran on a device: `rows` and `details` say what of it is kept."""
        if len(self.rows) >= MOST_EVENTS:
            self.dropped += 1
            return
        self.rows.add(*row, _numbered(self.details, details), copied)

    def _mark(self, event: TraceEvent, start: int, end: int) -> None:
        if len(self.marks) >= _MOST_DIFFERENT:
            return
        args = _device(event)
        device, stream = whole(args.device, whole(event.pid)), whole(args.stream, whole(event.tid))
        self.marks.add(device, stream, start, end, self.names.number(event.name))


def _host(event: TraceEvent) -> HostArgs:
    try:
        return _HOST.decode(event.args)
    except _FAILED:  # none, or no object
        return HostArgs()


def _device(event: TraceEvent) -> DeviceArgs:
    try:
        return _DEVICE.decode(event.args)
    except _FAILED:
        return DeviceArgs()


def _numbered(known: dict[Any, int], one: Any) -> int:
    """The number of something that comes again and again; beyond a million different ones, that of the first."""
    number = known.get(one)
    if number is None:
        number = len(known)
        if number >= _MOST_DIFFERENT:
            return 0
        known[one] = number
    return number
