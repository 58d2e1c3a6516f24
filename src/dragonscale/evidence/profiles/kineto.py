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
from dragonscale.evidence.profiles.json_stream import TraceEvent, whole
from dragonscale.evidence.profiles.memory_samples import MemorySamples
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import MOST_EVENTS, Rows
from dragonscale.evidence.xla.layouts import BITS

_DTYPES = {name: dtype for dtype, names in table("torch.toml")["dtypes"].items() for name in names}
"""PyTorch's names of element types in HLO's words."""
_MOST_SHAPES = 16
_MOST_RANKS = 1 << 17


def _arguments(*parts: str) -> Any:
    """A record of the values that events of some kind carry, by the names that `torch.toml` gives their keys. Writers
    differ in types, so every value is looked at where it is used."""
    keys = {name: key for part in parts for name, key in table("torch.toml")["arguments"][part].items()}
    return msgspec.defstruct("Arguments", [(name, Any, None) for name in keys], rename=keys, gc=False)


DeviceArgs = _arguments("collective", "device")
"""Of a kernel, a copy or a set."""
HostArgs = _arguments("collective", "host")
"""Of an operator, or of a call of the driver."""
MemoryArgs = _arguments("memory")
"""Of an instant `[memory]`."""


def shapes_of(dims: object, types: object) -> tuple[str, ...]:
    """Shapes of an operator's tensors in HLO's words. A list of tensors is one shape of as many elements; PyTorch does
    not write its element type, and almost always it is an optimizer's list in float32.

    >>> shapes_of([[8, 128], [], [128], []], ["c10::BFloat16", "Scalar", "float", ""])
    ('bf16[8,128]', 'f32[128]')
    >>> shapes_of([[[2, 3], [4]], [1]], ["TensorList", "long int"])
    ('f32[10]', 's64[1]')
    """
    if not isinstance(dims, list):
        return ()
    words = types if isinstance(types, list) else []
    shapes: list[str] = []
    for at, dim in enumerate(dims[:_MOST_SHAPES]):
        word = words[at] if at < len(words) else ""
        if not isinstance(dim, list) or not isinstance(word, str):
            continue
        if dim and all(isinstance(one, list) for one in dim):
            shapes.append(f"f32[{sum(_elements(one) for one in dim)}]")
        elif word.lower() in _DTYPES and _elements(dim) >= 0:
            shapes.append(f"{_DTYPES[word.lower()]}[{','.join(str(one) for one in dim)}]")
    return tuple(shapes)


def is_causal(name: str, dims: object, values: object) -> bool:
    """Whether an operator is an attention that skips the keys after each query, as many keys as queries.

    >>> is_causal(
    ...     "aten::_scaled_dot_product_flash_attention", [[1, 8, 64, 32]] * 3, ["", "", "", "0.", "True", "False"]
    ... )
    True
    """
    place = table("torch.toml")["causal"].get(name.rsplit("::", 1)[-1])
    if place is None or not isinstance(values, list) or len(values) <= place:
        return False
    if str(values[place]) not in ("True", "1", "2"):
        return False
    four = [one for one in dims if isinstance(one, list) and len(one) == 4] if isinstance(dims, list) else []
    query, key = four[1 if "backward" in name else 0 :][:2] if len(four) > 2 else ((), ())
    tokens = 2 if "scaled_dot_product" in name or "cudnn" in name else 1
    return len(query) == 4 and query[tokens] == key[tokens]


def _elements(dim: list[object]) -> int:
    """How many elements; -1 where it is no shape."""
    count = 1
    for one in dim:
        if not isinstance(one, int) or not 0 <= one < 1 << 48:
            return -1
        count *= one
    return count if count < 1 << 62 else -1


def launch_of(args: Any) -> str:
    """The launch in one line: grid, block, registers, shared memory.

    >>> launch_of(DeviceArgs(grid=[512, 1, 1], block=[256, 1, 1], registers=34, shared=8192))
    'grid 512x1x1, block 256x1x1, registers 34, shared 8192'
    """
    words: list[str] = []
    for name, value in (("grid", args.grid), ("block", args.block)):
        if isinstance(value, list) and len(value) == 3 and all(isinstance(one, int) for one in value):
            words.append(f"{name} {value[0]}x{value[1]}x{value[2]}")
    for name, value in (("registers", args.registers), ("shared", args.shared)):
        if isinstance(value, int) and 0 < value < 1 << 32:
            words.append(f"{name} {value}")
    return ", ".join(words)


def collective_of(args: Any) -> tuple[tuple[int, ...], float | None, tuple[str, ...]]:
    """The ranks of a collective's group, the bytes that go in on one rank, and the shapes of what goes in and comes
    out.

    >>> collective_of(DeviceArgs(collective="allreduce", sent=4, got=4, dtype="BFloat16", ranks="[0, 2, 4]"))
    ((0, 2, 4), 8.0, ('bf16[4]', 'bf16[4]'))
    >>> collective_of(DeviceArgs(collective="allreduce", size=3, ranks="[0, 2, ...", first=0, stride=2))[0]
    (0, 2, 4)
    """
    name = _DTYPES.get(str(args.dtype).lower(), "")
    sent, got = whole(args.sent), whole(args.got)
    wide = BITS.get(name, 0) // 8
    shapes = tuple(f"{name}[{count}]" for count in (sent, got) if name and count >= 0)
    ranks = _ranks(args)
    return ranks, float(sent * wide) if sent >= 0 and wide else None, shapes


def _ranks(args: Any) -> tuple[int, ...]:
    text, size = str(args.ranks or ""), whole(args.size)
    if isinstance(args.ranks, list):
        text = str(args.ranks[:_MOST_RANKS])
    if text and "..." not in text:
        found = tuple(int(one) for one in re.findall(r"\d{1,7}", text[:1_000_000]))
        if found and size in (-1, len(found)):
            return found
    first, stride = whole(args.first), whole(args.stride)
    if first >= 0 and stride > 0 and 0 < size <= _MOST_RANKS:
        return tuple(range(first, first + size * stride, stride))
    return ()


def groups_of(beside: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Process groups by name, as `distributedInfo` lists them."""
    info = beside.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    groups: dict[str, tuple[int, ...]] = {}
    for one in config if isinstance(config, list) else []:
        if isinstance(one, dict) and isinstance(one.get("ranks"), list):
            ranks = tuple(rank for rank in one["ranks"][:_MOST_RANKS] if isinstance(rank, int))
            groups[str(one.get("pg_name"))] = ranks
    return groups


CPU, ACCELERATOR = 0, 1
"""Whose memory a sample is of."""
_LIBRARY = re.compile(
    r"^(?:<|torch/|.*(?:site-packages|dist-packages|/lib/python\d)|(?:contextlib|threading|functools|runpy|enum)\.py)"
)
_MOST_DIFFERENT = 1_000_000

_DEVICE = msgspec.json.Decoder(DeviceArgs)
_HOST = msgspec.json.Decoder(HostArgs)
_MEMORY = msgspec.json.Decoder(MemoryArgs)


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
        args = event.decoded(_MEMORY)
        total = whole(args.total)
        if total >= 0:
            self.memory.add(CPU if whole(args.kind) == 0 else ACCELERATOR, max(whole(args.device), 0), at, total)

    def _thread(self, event: TraceEvent) -> int:
        return self.threads.setdefault((event.pid, event.tid), len(self.threads))

    def _operator(self, event: TraceEvent, start: int, end: int) -> None:
        args = event.decoded(_HOST)
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
        self.spans.add(4, self._thread(event), name, start, end, whole(event.decoded(_HOST).correlation))

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
        args = event.decoded(_DEVICE)
        details: tuple[Any, ...] = (str(event.cat).lower(), launch_of(args))
        if args.collective is not None:
            details = (*details, *collective_of(args), str(args.group)[:100])
        self._on_device(event, args, details, start, end, False)

    def _copy(self, event: TraceEvent, start: int, end: int) -> None:
        args = event.decoded(_DEVICE)
        size = whole(args.bytes)
        details = (str(event.cat).lower(), "", (), float(size) if size >= 0 else None, (), "")
        self._on_device(event, args, details, start, end, True)

    def _on_device(
        self, event: TraceEvent, args: Any, details: tuple[Any, ...], start: int, end: int, copied: bool
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
        args = event.decoded(_DEVICE)
        device, stream = whole(args.device, whole(event.pid)), whole(args.stream, whole(event.tid))
        self.marks.add(device, stream, start, end, self.names.number(event.name))


def _numbered(known: dict[Any, int], one: Any) -> int:
    """The number of something that comes again and again; beyond a million different ones, that of the first."""
    number = known.get(one)
    if number is None:
        number = len(known)
        if number >= _MOST_DIFFERENT:
            return 0
        known[one] = number
    return number
