"""What XProf says about an op and about a line of events, in the words that every reader of profiles hands on.

A TPU's entries are rich: the name is the whole HLO instruction, and its statistics hold FLOPs, bytes by memory, JAX's
path of names and the line of the source. A GPU's kernel has its own name and only points to an instruction (`hlo_op`,
`hlo_module`, `program_id`), and so does an op of XLA's CPU backend: there the program in the file says the rest, where
the file holds it. The trace that XProf exports as JSON has the same words.

>>> written = op_text(
...     "%dot.3 = f32[8,8]{1,0} dot(%a, %b)", "", {"tf_op": "jit(f)/dot_general:", "flops": 1024}, Programs()
... )
>>> written.name, written.scope, written.flops
('dot.3', 'jit(f)/dot_general', 1024.0)
"""

import re
from collections.abc import Iterable

from dragonscale.evidence.profiles.hlo_proto import Programs
from dragonscale.evidence.profiles.protobuf import Broken, Message
from dragonscale.evidence.profiles.recording import OpText, TrackKind
from dragonscale.evidence.profiles.xspace import StatValue

NAMING = ("hlo_op", "hlo_module", "program_id", "tf_op", "nvtx_range", "source", "hlo_category", "long_name")
_COUNTING = ("flops", "model_flops", "bytes_accessed", "raw_bytes_accessed", "memory_access_breakdown")
LAUNCHING = ("kernel_details", "memcpy_details", "Memset_details", "memset_details")
APART = frozenset((*NAMING, *_COUNTING, *LAUNCHING))
"""Statistics of events that tell two ops of one name apart."""
GRAPH = frozenset(("cuda_graph_id", "cuda_graph_node_id", "name"))
"""On a GPU also where in a CUDA graph a kernel stands; `name` is JAX's path of names there."""
_LINES: dict[str, TrackKind] = {
    "XLA Modules": "modules",
    "Async XLA Ops": "async",
    "Host Offload Ops": "async",
    "Sparse Core Ops": "async",
    "Steps": "steps",
    "Framework Name Scope": "scopes",
    "TensorFlow Name Scope": "scopes",
    "XLA TraceMe": "scopes",
}
_TEXT = re.compile(r"%?([\w.\-]+) = ")
_TYPE = re.compile(r":[A-Za-z0-9_]*$")
_SIZE = re.compile(r"\b(?:size|num_bytes):(\d{1,18})")
_HBM = 1


def line_kind(name: str, has_streams: bool, is_sparse: bool) -> TrackKind | None:
    """What a line of a device is; None for one that is not read: where there are streams, ops are their kernels again.
    SparseCores run beside the core."""
    if name == "XLA Ops":
        return None if has_streams else "async" if is_sparse else "ops"
    return "ops" if name.startswith("Stream") else _LINES.get(name)


def settled_kind(kind: TrackKind, names: Iterable[str]) -> TrackKind:
    """A stream that only copies, or only runs NCCL's kernels, is no stream of ops.

    >>> [settled_kind("ops", names) for names in (["MemcpyD2H", "Memset"], ["ncclDevKernel_AllGather"], ["fusion"])]
    ['copies', 'async', 'ops']
    """
    lowered = [name.lower() for name in names] if kind == "ops" else []
    if lowered and all("nccl" in name for name in lowered):
        return "async"
    return "copies" if lowered and all(name.startswith(("memcpy", "memset")) for name in lowered) else kind


def op_text(name: str, shown: str, stats: dict[str, StatValue], programs: Programs | None) -> OpText:
    """An op of a device: its entry's name, the name to show, and statistics of entry and event together."""
    hlo = name if _TEXT.match(name) else _word(stats, "long_name") if _TEXT.match(_word(stats, "long_name")) else ""
    op = _word(stats, "hlo_op")
    module = _word(stats, "hlo_module")
    if programs is not None:
        module = programs.key(module, _whole(stats, "program_id"))
    found = programs.instruction(module, op) if programs is not None and op and not hlo else None
    match = _TEXT.match(hlo)
    details = _word(stats, "memcpy_details") or _word(stats, "Memset_details") or _word(stats, "memset_details")
    size = _SIZE.search(details)
    return OpText(
        name=match[1] if match else name or shown,
        text=hlo or (found.text if found else ""),
        category=_word(stats, "hlo_category") or _copy(name, details),
        scope=(found.scope if found else "") or _scope(stats),
        source=_word(stats, "source") or (found.source if found else ""),
        module=module,
        caller=op if op and op != name and not hlo else "",
        flops=_count(stats, "flops", "model_flops"),
        bytes=_count(stats, "bytes_accessed", "raw_bytes_accessed"),
        wire_bytes=float(size[1]) if size else None,
        launch=_word(stats, "kernel_details") or details,
        hbm_bytes=_hbm(stats.get("memory_access_breakdown")),
    )


def _word(stats: dict[str, StatValue], name: str) -> str:
    value = stats.get(name, "")
    return value if isinstance(value, str) else ""


def _whole(stats: dict[str, StatValue], name: str) -> int | None:
    value = stats.get(name)
    if isinstance(value, str) and value.isdecimal():
        return int(value[:20])
    return value if isinstance(value, int) else None


def _count(stats: dict[str, StatValue], *names: str) -> float | None:
    """The first of these statistics that is a sensible count."""
    for name in names:
        value = stats.get(name)
        if isinstance(value, int | float) and 0 <= value < 1e30:
            return float(value)
    return None


def _scope(stats: dict[str, StatValue]) -> str:
    """JAX's path of names: before the last colon, behind which TensorFlow's type of the op would stand."""
    scope = _TYPE.sub("", _word(stats, "tf_op"))
    # On a GPU that is the outermost annotation, which is the same for all; the innermost is called `name`.
    return _word(stats, "name") or ("" if scope == "XlaModule" else scope) or _word(stats, "nvtx_range")


def _copy(name: str, details: str) -> str:
    """A copy has no category of its own; its name (`MemcpyD2H`, `Memset`) is one."""
    return name if details else ""


def _hbm(breakdown: StatValue | None) -> float | None:
    """Bytes in the device's main memory, from XProf's list of accesses by memory; none where it is not written or
    empty."""
    if not isinstance(breakdown, bytes) or not breakdown:
        return None
    try:
        accesses = Message(breakdown, (0, len(breakdown))).all(1)
    except Broken:
        return None
    return float(sum(each.bits(3) for each in accesses if each.bits(2) == _HBM))
