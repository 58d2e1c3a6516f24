"""Files of profiles and programs, gzipped or not: their bytes, and how they begin.

HLO text from elsewhere: files of `--xla_dump_to`, what a framework printed, pasted pieces.

A dump may be of a program before optimization or after, for any backend, packed or not, of one module or several one
after another. What is there is read: a module whose computations are not all in the text is read too, and what they
would do is not known. XLA writes the assignment of buffers beside the program; it is read where it lies there.

>>> text = "HloModule jit_f, num_partitions=4\\nENTRY main {\\n  ROOT p = f32[8]{0:T(128)} parameter(0)\\n}\\n"
>>> (dump,) = read_dumps(text)
>>> dump.name, dump.platform, dump.devices
('jit_f', 'tpu', 4)
"""

import gzip
import re
import textwrap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.evidence.xla.hlo_text import Module, read_module
from dragonscale.evidence.xla.layouts import memory_name

_HEAD = 1 << 16


def opened(path: Path) -> BinaryIO:
    """The file's bytes, unpacked on the way where it is gzipped; errors of packing come as `InputError` from
    `first_bytes`."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def first_bytes(path: Path) -> bytes:
    """The beginning of the file, unpacked; of a file that breaks off, what comes before that."""
    head = b""
    try:
        with opened(path) as file:
            while len(head) < _HEAD and (piece := file.read(1024)):
                head += piece
    except (OSError, EOFError, zlib.error) as error:
        if head:
            return head
        raise InputError(f"{shorten(str(path))} cannot be read: {error}.") from None
    return head


MOST_TEXT = 1 << 28
"""Characters of one text: a dump of the largest programs has a tenth of this."""
_MODULE = re.compile(r"^HloModule ", re.MULTILINE)
_COMPUTATION = re.compile(r"^%?[A-Za-z_][\w.\-]* (?:\([^\n]*)?\{[ \t]*$", re.MULTILINE)
_NAME = re.compile(r"HloModule ([^\s,]+)")
_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d{1,7})\b")
_TPU = re.compile(r"\]\{[\d,]*:T\(")
_GPU = re.compile(r"__cublas\$|__cudnn\$|__triton|\"(?:gemm|fusion|collective)_backend_config\"|operation_queue_id")
_ALLOCATION = re.compile(r"^allocation \d+: size (\d{1,18})(?:, color (\d{1,4}))?, ([^\n]*)", re.MULTILINE)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that no text has (but colours of a terminal have 1b)."""
_SIGNS = 4 << 20
"""Characters that are looked at for signs of a backend."""


class BufferRow(msgspec.Struct):
    """Bytes on each device by XLA's assignment of buffers."""

    arguments_bytes: int
    outputs_bytes: int
    temp_bytes: int
    constants_bytes: int
    elsewhere_bytes: int
    """In other memories than the main one."""


@dataclass(frozen=True)
class HloDump:
    """One module and what is known around it."""

    name: str
    module: Module
    text: str
    platform: str
    """`tpu`, `gpu`, `cpu`, or empty where nothing tells."""
    optimized: bool
    """Whether it was compiled: scheduled, or with fusions."""
    partitions: int
    replicas: int
    buffers: BufferRow | None = None

    @property
    def devices(self) -> int:
        """Devices that the program runs on together."""
        return self.partitions * self.replicas


def read_dump_file(path: Path) -> list[HloDump]:
    """The modules of a file, with the buffers that lie beside it."""
    return read_dumps(text_of_file(path), path.name, _buffers_beside(path))


def hlo_files(folder: Path) -> list[Path]:
    """The programs below a folder that XLA dumped to: compiled ones where there are any; not the reports that lie
    beside them."""
    for pattern in ("*after_optimizations.txt", "*optimizations.txt", "*.hlo", "*.hlo.txt"):
        if found := sorted((*folder.rglob(pattern), *folder.rglob(f"{pattern}.gz"))):
            return found
    return []


def read_dump_folder(folder: Path, name: str = "") -> tuple[list[HloDump], int]:
    """The modules of the largest file of a folder of dumps, or of those whose module has a name; and how many files
    there are."""
    found = hlo_files(folder)
    if not found:
        how = "XLA writes it with XLA_FLAGS=--xla_dump_to=FOLDER"
        raise InputError(f"There is no HLO in the folder {shorten(str(folder))}; {how}.")
    if not name:
        return read_dump_file(max(found, key=lambda one: one.stat().st_size)), len(found)
    named = {path: _NAME.findall(first_bytes(path).decode("utf-8", errors="replace")) for path in found}
    asked = [path for path, names in named.items() if name in names]
    if not asked:
        raise unknown("module of the folder", name, dict.fromkeys(one for names in named.values() for one in names))
    return [dump for path in asked for dump in read_dump_file(path)], len(found)


def text_of_file(path: Path) -> str:
    """The text of a file, unpacked, no longer than any dump is."""
    try:
        with opened(path) as file:
            data = file.read(MOST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{shorten(str(path))} cannot be read: {error}.") from None
    if len(data) > MOST_TEXT:
        raise InputError(f"{shorten(str(path))} is larger than {MOST_TEXT >> 20} MB, more than any HLO text.")
    if not data.strip():
        raise InputError(f"{shorten(str(path))} is empty; give HLO text.")
    if _BINARY.search(data, 0, 1 << 16):
        raise InputError(f"{shorten(str(path))} is binary, no HLO text; a profile goes to `dscale profile`.")
    return data.decode("utf-8", errors="replace")


def read_dumps(text: str, file: str = "", buffers: BufferRow | None = None) -> list[HloDump]:
    """The modules in a text, in order."""
    starts = [match.start() for match in _MODULE.finditer(text)]
    if not starts:
        return [_read(_as_module(text), file, buffers)]
    ends = [*starts[1:], len(text)]
    return [_read(text[start:end], file, buffers) for start, end in zip(starts, ends, strict=True)]


def _as_module(text: str) -> str:
    """Computations without the module's first line; where none is marked, the last is the entry, as XLA orders them."""
    if re.search(r"^\s*module (?:@|attributes|\{)", text[:_SIGNS], re.MULTILINE):
        raise InputError(
            "This is MLIR (StableHLO), which is what JAX hands to XLA; give HLO, such as "
            '`lowered.as_text("hlo")` or `compiled.as_text()`.'
        )
    plain = textwrap.dedent(text) if text[:1].isspace() else text
    if re.search(r"^ENTRY ", plain, re.MULTILINE):
        return plain
    heads = [match.start() for match in _COMPUTATION.finditer(plain)]
    if heads:
        return f"{plain[: heads[-1]]}ENTRY {plain[heads[-1] :]}"
    return f"ENTRY pasted {{\n{plain.rstrip()}\n}}\n"


def _read(text: str, file: str, buffers: BufferRow | None) -> HloDump:
    try:
        module = read_module(text, whole=False)
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, RecursionError) as error:
        raise InputError(f"The HLO text cannot be read: {error!r:.120}.") from None
    name = _NAME.match(module.header)
    counts = {kind: int(count) for kind, count in _COUNT.findall(module.header)}
    fused = any(each.opcode == "fusion" for each in module.entry.instructions)
    optimized = "is_scheduled=true" in module.header or "after_optimizations" in file or fused
    partitions, replicas = (counts.get(kind, 1) or 1 for kind in ("num_partitions", "replica_count"))
    compiled = (_platform(text, file), optimized, partitions, replicas)
    return HloDump(name[1] if name else "", module, text, *compiled, buffers)


def _platform(text: str, file: str) -> str:
    """Which backend compiled it: its file's name, the tiles of a TPU, or the libraries of a GPU."""
    named = re.search(r"\b(tpu|gpu|cpu)_after_optimizations|sm_\d+_(gpu)_", file)
    if named:
        return named[1] or named[2]
    signs = text[:_SIGNS]
    return "tpu" if _TPU.search(signs) else "gpu" if _GPU.search(signs) else ""


def _buffers_beside(path: Path) -> BufferRow | None:
    """The assignment of buffers in the file that XLA writes beside a compiled module."""
    stem = path.name.removesuffix(".gz").removesuffix(".txt")
    beside = path.with_name(f"{stem}-buffer-assignment.txt")
    if not beside.is_file():
        return None
    sizes = dict.fromkeys(("parameter", "output", "temp", "constant", "elsewhere"), 0)
    for size, color, rest in _ALLOCATION.findall(text_of_file(beside)):
        if memory_name(int(color or 0)) != "HBM":
            sizes["elsewhere"] += int(size)
        elif rest.startswith(("parameter", "constant")):
            sizes[rest.split()[0].rstrip(":,")] += int(size)
        else:
            sizes["output" if "maybe-live-out" in rest else "temp"] += int(size)
    return BufferRow(*sizes.values())
