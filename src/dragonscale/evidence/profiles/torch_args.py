"""What PyTorch's profiler writes beside an event: shapes of operators, the launch of a kernel, the group of a
collective."""

import re
from typing import Any

import msgspec

from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.xla.layouts import BITS

_DTYPES = {name: dtype for dtype, names in table("torch.toml")["dtypes"].items() for name in names}
"""PyTorch's names of element types in HLO's words."""
_MOST_SHAPES = 16
_MOST_RANKS = 1 << 17


class CollectiveArgs(msgspec.Struct, gc=False):
    """Of a collective: its kernel has them, or the operator that launched it (`record_param_comms`)."""

    collective: Any = msgspec.field(default=None, name="Collective name")
    sent: Any = msgspec.field(default=None, name="In msg nelems")
    got: Any = msgspec.field(default=None, name="Out msg nelems")
    size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    first: Any = msgspec.field(default=None, name="Global rank start")
    stride: Any = msgspec.field(default=None, name="Global rank stride")


class DeviceArgs(CollectiveArgs, gc=False):
    """Of a kernel, a copy or a set. Writers differ in types, so every value is looked at where it is used."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")


class HostArgs(CollectiveArgs, gc=False):
    """Of an operator, or of a call of the driver."""

    external: Any = msgspec.field(default=None, name="External id")
    old_external: Any = msgspec.field(default=None, name="external id")
    correlation: Any = None
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    dims: Any = msgspec.field(default=None, name="Input Dims")
    old_dims: Any = msgspec.field(default=None, name="Input dims")
    types: Any = msgspec.field(default=None, name="Input type")
    values: Any = msgspec.field(default=None, name="Concrete Inputs")


class MemoryArgs(msgspec.Struct, gc=False):
    """Of an instant `[memory]`."""

    total: Any = msgspec.field(default=None, name="Total Allocated")
    kind: Any = msgspec.field(default=None, name="Device Type")
    device: Any = msgspec.field(default=None, name="Device Id")


def whole(value: object, otherwise: int = -1) -> int:
    """A count, however it was written; `otherwise` where it is none or does not fit into 63 bits.

    >>> whole("0x10"), whole(7.0), whole(None), whole(1 << 90), whole("many")
    (16, 7, -1, -1, -1)
    """
    if type(value) is int and -(2**63) < value < 2**63:  # nearly always
        return value
    if isinstance(value, str):
        try:
            value = int(value[:32], 0)
        except ValueError:
            return otherwise
    if not isinstance(value, int | float) or not -(2**63) < value < 2**63:
        return otherwise
    return int(value)


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


def launch_of(args: DeviceArgs) -> str:
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


def collective_of(args: CollectiveArgs) -> tuple[tuple[int, ...], float | None, tuple[str, ...]]:
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


def _ranks(args: CollectiveArgs) -> tuple[int, ...]:
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
