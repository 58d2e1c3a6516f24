"""Numbers for a reading: local sizes, FLOPs, seconds of kernels and bytes of moves, for one plan or a million.

`Sizes` are the dims of the section with b (sequences of one microbatch over the whole mesh), t and s; mesh axes are numbers
or arrays of equal length. What a kernel takes is asked of a `Timer`: at datasheet peaks for bounds, through an efficiency
profile for expectations.
"""

from dataclasses import dataclass
from typing import Protocol

from dragonscale.collectives import wire_bytes
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.flops import Workload, op_flops
from dragonscale.models.program import Section
from dragonscale.notation import Array
from dragonscale.numbers import Number, maximum, product
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.reading import Kernel, Move, Reading


class Timer(Protocol):
    """Seconds of one kernel on one chip."""

    def matmul(self, m: Number, n: Number, k: Number, batch: Number) -> Number: ...

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number) -> Number: ...

    def attention(self, flops: Number, shape: "AttentionShape", backward: bool) -> Number: ...

    def memory(self, moved: Number) -> Number: ...


@dataclass(frozen=True)
class AttentionShape:
    """What decides how fast attention runs, per chip."""

    batch: Number
    queries: Number
    keys: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    v_head_dim: Number
    causal: bool = True


@dataclass(frozen=True)
class Work:
    """Kernel seconds and FLOPs of one pass through a section, by (part, phase)."""

    seconds: dict[tuple[str, str], Number]
    flops: dict[tuple[str, str], Number]

    def total(self, *phases: str) -> Number:
        return sum(value for (_, phase), value in self.seconds.items() if phase in phases)

    def total_flops(self, *phases: str) -> Number:
        return sum(value for (_, phase), value in self.flops.items() if phase in phases)


def local_sizes(arrays: tuple[Array, ...], sizes: dict[str, Number], mesh: Mesh) -> dict[str, Number]:
    """The size of each index on one chip; never less than one."""
    found: dict[str, Number] = {}
    for array in arrays:
        for dim in array.dims:
            found.setdefault(dim.name, maximum(sizes[dim.name] / mesh.size(*dim.axes), 1))
    return found


def matmul_dims(kernel: Kernel) -> tuple[list[str], list[str], list[str], list[str], list[str]]:
    """The indices that make up m, n, k, the batch, and the experts of a grouped product."""
    first, second, out = kernel.arrays[0], kernel.arrays[1], kernel.arrays[-1]
    experts = [dim.name for array in kernel.arrays for dim in array.dims if dim.select]
    names = [set(array.names) - set(experts) for array in (first, second, out)]
    every = sorted(names[0] | names[1] | names[2])
    batch = [name for name in every if all(name in held for held in names)]
    summed = [name for name in every if name not in names[2]]
    rows = [name for name in every if name in names[0] and name in names[2] and name not in batch]
    columns = [name for name in every if name in names[1] and name in names[2] and name not in batch]
    return rows, columns, summed, batch, sorted(set(experts))


def kernel_cost(
    kernel: Kernel, section: Section, sizes: dict[str, Number], mesh: Mesh, timer: Timer, dtype: str
) -> tuple[Number, Number]:
    """Seconds and FLOPs of one kernel on one chip."""
    local = local_sizes(kernel.arrays, sizes, mesh)
    if kernel.function == "matmul":
        rows, columns, summed, batch, experts = matmul_dims(kernel)
        m, n, k = (product(local[name] for name in names) for names in (rows, columns, summed))
        many = product(local[name] for name in batch)
        flops = 2 * m * n * k * many
        if experts:
            groups = product(local[name] for name in experts)
            tokens, other, inner = (k, m, n) if kernel.phase == "wgrad" else (m, n, k)
            return timer.grouped(tokens, other, inner, groups), flops
        return timer.matmul(m, n, k, many), flops
    if kernel.function in ("attend", "score"):
        return _attention_cost(kernel, section, sizes, mesh, timer)
    moved = sum(
        product(local[dim.name] for dim in array.dims if dim.name in local) * dtype_bytes(array.dtype or dtype)
        for array in kernel.arrays
    )
    return timer.memory(moved * (1.5 if kernel.phase == "dgrad" else 1)), 0.0


def _attention_cost(
    kernel: Kernel, section: Section, sizes: dict[str, Number], mesh: Mesh, timer: Timer
) -> tuple[Number, Number]:
    query = kernel.arrays[0]
    work = Workload(sizes["b"], sizes["t"], sizes["s"])
    ways = mesh.size(*query.axes)
    flops = op_flops(section, kernel.op, work) / ways
    local = local_sizes(kernel.arrays, sizes, mesh)
    dims = section.dims
    heads = local.get("n", local.get("i", 1))
    shape = AttentionShape(
        batch=local["b"],
        queries=local["t"],
        keys=sizes["s"],
        heads=heads,
        kv_heads=local.get("k", heads),
        head_dim=dims.get("h", dims.get("j", 128)),
        v_head_dim=dims.get("g", dims.get("h", 128)),
    )
    backward = kernel.phase == "dgrad"
    return timer.attention(flops * (2 if backward else 1), shape, backward), flops * (2 if backward else 1)


def section_work(reading: Reading, sizes: dict[str, Number], mesh: Mesh, timer: Timer, dtype: str = "bf16") -> Work:
    """All kernels of one pass through a section."""
    seconds: dict[tuple[str, str], Number] = {}
    flops: dict[tuple[str, str], Number] = {}
    for kernel in reading.kernels:
        taken, done = kernel_cost(kernel, reading.section, sizes, mesh, timer, dtype)
        key = (kernel_part(kernel), kernel.phase)
        seconds[key] = seconds.get(key, 0) + taken
        flops[key] = flops.get(key, 0) + done
    return Work(seconds, flops)


def kernel_part(kernel: Kernel) -> str:
    """The part a kernel is counted under: its model part for products, `scores` for attention, else `pointwise`."""
    if kernel.function == "matmul":
        return kernel.part
    return "scores" if kernel.function in ("attend", "score") else "pointwise"


def move_volume(move: Move, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Bytes of a move's array as one group sees it."""
    return move.step.volume(sizes, mesh)


def move_wire(move: Move, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Bytes each chip sends for a move."""
    return wire_bytes(move.step.kind, move_volume(move, sizes, mesh), mesh.size(*move.step.axes))
