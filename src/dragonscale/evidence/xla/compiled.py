"""The matmuls of a compiled module: where each stands in the user's program, its FLOPs and how often it runs.

A matmul is a `dot`, a `convolution`, or a call of a library that multiplies (cuBLAS, cuDNN); it may stand inside a
fusion. Of a conditional's branches the dearest is counted, each time. A custom call that is not known, and a matmul
whose number of executions is not known, are listed as `Unknown`: work that is there and has no number is never counted
as none.

>>> text = '''
... HloModule jit_f
...
... ENTRY %main (p: bf16[8,4], q: bf16[4,2]) -> bf16[8,2] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   %q = bf16[4,2]{1,0} parameter(1)
...   ROOT %d = bf16[8,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/x"}
... }
... '''
>>> from dragonscale.evidence.xla.hlo_text import read_module
>>> (matmul,), unknown = read_matmuls(read_module(text))
>>> matmul.op_name, matmul.flops_each, matmul.times, unknown
('f/x', 128.0, 1, [])

Everything that is read from one compiled program, as a record that travels as JSON.

Compiling happens in a process of its own and may take a minute, so what is read there is kept: `read_compiled` makes
the record, `to_json` and `from_json` carry it. Numbers are per device and per run of the program.

Beside each fusion stands what the TPU compiler thinks it takes. The estimate is in clock cycles of the core and knows
of compute and memory, not of the network: collectives carry none. Some entries are no estimates but marks (a million
million cycles, or the largest number there is): those are dropped and counted.

>>> text = '''
... HloModule jit_f, is_scheduled=true, num_partitions=4
...
... ENTRY %main (p: bf16[8,4]) -> bf16[8,16] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   ROOT %g = bf16[8,16]{1,0} all-gather(%p), replica_groups=[1,4]<=[4], dimensions={1}
... }
... '''
>>> found = read_compiled(text, {"peak_memory_in_bytes": 320}, {"x": 4})
>>> [(each.kind, each.axes, each.wire_bytes, each.times) for each in found.collectives]
[('all_gather', ('x',), 192.0, 1)]
>>> from_json(to_json(found)) == found
True
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import UNKNOWN, PlacedOp, Taken, callers, trip_count
from dragonscale.evidence.xla.collectives import Collective, module_collectives
from dragonscale.evidence.xla.device_groups import Groups, axis_parts, moved_axes, spanned_axes
from dragonscale.evidence.xla.hlo_text import Instruction, Module, read_module, source_line
from dragonscale.evidence.xla.layouts import read_arrays
from dragonscale.evidence.xla.matmul_sizes import flops_of, may_multiply
from dragonscale.evidence.xla.memory import ProgramMemory
from dragonscale.evidence.xla.op_costs import upper_executions
from dragonscale.evidence.xla.opcodes import HARMLESS


class CompiledMatmul(msgspec.Struct, frozen=True):
    """One matmul; `what` is its opcode, or the library's function."""

    name: str
    what: str
    op_name: str
    source: str
    flops_each: float
    times: int

    @property
    def flops(self) -> float:
        """FLOPs of all its executions."""
        return self.flops_each * self.times


class Unknown(msgspec.Struct, frozen=True):
    """Work that has no number: a custom call of this target, or a matmul run an unknown number of times.

    `shapes` are the operands' and the result's, in HLO's words.
    """

    name: str
    what: str
    op_name: str
    source: str
    times: int
    shapes: str


def read_matmuls(module: Module, taken: Taken = ()) -> tuple[list[CompiledMatmul], list[Unknown]]:
    """Every matmul that runs, in order of its computations, and the work that has no number."""
    counts = upper_executions(module, taken)
    matmuls: list[CompiledMatmul] = []
    unknown: list[Unknown] = []
    for computation, each in module.placed:
        times = counts[computation.name]
        flops = flops_of(PlacedOp(module, computation, each)) if times and may_multiply(each) else None
        if not times or (flops is None and not _is_hidden(each)):
            continue
        said = each.name, each.target or each.opcode, each.op_name, source_line(each.text, module.frames)
        if flops is not None and times != UNKNOWN:
            matmuls.append(CompiledMatmul(*said, flops, times))
        else:
            shapes = f"{', '.join(computation.named[name].result for name in each.operands)} -> {each.result}"
            unknown.append(Unknown(*said, times, shapes))
    return matmuls, unknown


def _is_hidden(instruction: Instruction) -> bool:
    """Whether an instruction may do work that cannot be read from its line."""
    if instruction.opcode != "custom-call":
        return instruction.opcode == "ragged-dot"
    return instruction.target not in HARMLESS


SENTINEL = 10**12
"""Estimates from here on stand for "not estimated": at 1 GHz this would be a quarter of an hour."""
_CYCLES = re.compile(r'"estimated_cycles":\s*"?(\d+)')


class KernelCycles(msgspec.Struct, frozen=True):
    """Kernels from one place of the user's program: how many run, and their estimated cycles together."""

    op_name: str
    source: str
    runs: int
    cycles: float


class Cycles(msgspec.Struct, frozen=True):
    """The kernels with an estimate, dearest first, and how many marks were dropped."""

    kernels: tuple[KernelCycles, ...] = ()
    dropped: int = 0

    @property
    def total(self) -> float:
        """All estimated cycles."""
        return sum(kernel.cycles for kernel in self.kernels)


class Exchange(msgspec.Struct, frozen=True):
    """One collective as the mesh sees it.

    `axes` are the mesh axes it runs along, `whole` says whether along all of each (the compiler may cut an axis into
    parts). `how` is `sync` or `async`; the window is what is scheduled between start and end, each time, None where
    there is no such window. Two collectives in flight at once share their windows. `decomposed` marks a step of a
    collective matmul that the compiler made, `padding` a permute that only mends a padded reduce-scatter, `at_most`
    bytes that are a bound.
    """

    kind: str
    axes: tuple[str, ...]
    whole: bool
    size: int
    volume_bytes: float
    wire_bytes: float
    times: int
    how: str
    window_flops: float | None
    decomposed: bool
    padding: bool
    between_slices: bool
    at_most: bool
    algorithm: str
    name: str
    op_name: str
    source: str


class Parameter(msgspec.Struct, frozen=True):
    """An argument of the program on each device: the bytes it holds and the bytes it takes in its layout."""

    name: str
    shape: str
    logical_bytes: float
    padded_bytes: float
    space: int


class Loop(msgspec.Struct, frozen=True):
    """A loop and how often its body runs each time; None where that depends on data."""

    name: str
    op_name: str
    trips: int | None


class Compiled(msgspec.Struct, frozen=True):
    """What a compiler made of a program."""

    name: str
    products: tuple[CompiledMatmul, ...]
    unknown: tuple[Unknown, ...]
    collectives: tuple[Exchange, ...]
    parameters: tuple[Parameter, ...]
    loops: tuple[Loop, ...]
    cycles: Cycles
    memory: ProgramMemory | None

    @property
    def flops(self) -> float:
        """FLOPs of all matmuls that have a number (`unknown` lists the rest)."""
        return sum(each.flops for each in self.products)

    def wire_bytes(self, axes: Iterable[str] | None = None) -> float:
        """Bytes each device sends, along exactly these mesh axes or along any."""
        wanted = None if axes is None else set(axes)
        found = (each for each in self.collectives if wanted is None or set(each.axes) == wanted)
        return sum(each.wire_bytes * each.times for each in found)


def read_compiled(text: str, memory: Mapping[str, int] | None, axes: dict[str, int], taken: Taken = ()) -> Compiled:
    """Read the text of a compiled module, with the numbers of `memory_analysis()` and the mesh it was compiled for.
    `taken` is how often a device takes its turn in what all devices of a pipeline walk through, by kind of turn."""
    module = read_module(text)
    chips = math.prod(axes.values())
    partitions = re.search(r"\bnum_partitions=(\d+)", module.header)
    inside = int(partitions[1]) if partitions else chips
    if chips % inside:
        raise InputError(f"The module is for {inside} devices and the mesh {axes} has {chips}.")
    matmuls, unknown = read_matmuls(module, taken)
    exchanges = tuple(_exchange(each, axes, inside) for each in module_collectives(module, text, inside, taken))
    held = tuple(read_parameters(module)), tuple(read_loops(module)), read_cycles(module, taken)
    name = re.match(r"HloModule ([^\s,]+)", module.header)
    known = None if memory is None else ProgramMemory.of(memory)
    return Compiled(name[1] if name else "", tuple(matmuls), tuple(unknown), exchanges, *held, known)


def to_json(compiled: Compiled) -> bytes:
    """The record as JSON."""
    return msgspec.json.encode(compiled)


def from_json(text: bytes | str) -> Compiled:
    """The record that `to_json` wrote."""
    try:
        return msgspec.json.decode(text, type=Compiled)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"This is not the record of a compiled program ({error}).") from None


def read_parameters(module: Module) -> Iterator[Parameter]:
    """The arguments of the entry, in order."""
    for each in module.entry.parameters.values():
        placed = read_arrays(each.result)
        logical, padded = sum(one.shape.bytes for one in placed), sum(one.padded_bytes for one in placed)
        yield Parameter(each.op_name or each.name, each.result, logical, padded, placed[0].space if placed else 0)


def read_loops(module: Module) -> Iterator[Loop]:
    """Every loop of the module."""
    for computation, each in module.placed:
        if each.opcode == "while":
            trips = trip_count(module, computation.name, each)
            yield Loop(each.name, each.op_name, None if trips == UNKNOWN else trips)


def _exchange(each: Collective, axes: dict[str, int], inside: int) -> Exchange:
    chips = math.prod(axes.values())
    groups = each.groups
    if inside < chips and not each.between_slices:  # a program of several slices numbers the devices of one
        firsts = range(0, chips, inside)
        groups = tuple(tuple(device + first for device in group) for first in firsts for group in groups)
    along, whole = mesh_axes(each.kind == "permute", groups, tuple(axes.items()))
    same = {name: getattr(each, name) for name in Exchange.__struct_fields__ if hasattr(each, name)}
    return Exchange(axes=along, whole=whole, volume_bytes=each.volume, **same)


@lru_cache(maxsize=512)
def mesh_axes(permutes: bool, groups: Groups, mesh: tuple[tuple[str, int], ...]) -> tuple[tuple[str, ...], bool]:
    """The mesh axes that groups (or a permute's pairs) run along, and whether along the whole of each.

    >>> mesh_axes(False, ((0, 1), (2, 3)), (("x", 4),))
    (('x',), False)
    """
    axes = dict(mesh)
    chips = math.prod(axes.values())
    if max(map(max, groups)) >= chips:
        raise InputError(f"The module has collectives over device {max(map(max, groups))}; the mesh has {chips}.")
    if permutes:
        return moved_axes(groups, axes), True
    if len(groups[0]) == 1:
        return (), True
    spanned = spanned_axes(groups, axes)
    if spanned is not None:
        return spanned, True
    parts = axis_parts(axes)
    along = spanned_axes(groups, {part: size for each in parts.values() for part, size in each.items()})
    return tuple(name for name in axes if along is None or set(parts[name]) & set(along)), False


def read_cycles(module: Module, taken: Taken = ()) -> Cycles:
    """The estimates of every kernel, times its executions (once where the number of executions is not known)."""
    counts, calls = upper_executions(module, taken), callers(module).items()
    inside = {name for name, found in calls if any(call.instruction.opcode == "fusion" for call in found)}
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    dropped = 0
    for computation, each in module.placed:
        times = 1 if counts[computation.name] == UNKNOWN else counts[computation.name]
        match = _CYCLES.search(each.text) if times and computation.name not in inside else None
        if match is None or match[1] == "0":
            continue
        if int(match[1]) >= SENTINEL:
            dropped += 1
            continue
        key = (each.op_name, source_line(each.text, module.frames))
        runs, cycles = sums.get(key, (0, 0.0))
        sums[key] = runs + times, cycles + float(match[1]) * times
    kernels = [KernelCycles(*key, *value) for key, value in sums.items()]
    return Cycles(tuple(sorted(kernels, key=lambda kernel: -kernel.cycles)), dropped)
