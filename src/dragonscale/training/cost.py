"""Numbers for a reading: local sizes, FLOPs, seconds of kernels and bytes of moves, for one plan or a million.

`Sizes` are the dims of the section with b (sequences of one microbatch over the whole mesh), t and s; mesh axes are numbers
or arrays of equal length. What a kernel takes is asked of a `Timer`: at datasheet peaks for bounds, through an efficiency
profile for expectations. Products that read the same tensor run as one: queries, keys and values; the two halves of a
gated MLP.
"""

from dataclasses import dataclass
from typing import Protocol

from dragonscale.collectives import wire_bytes
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.flops import Workload, op_flops
from dragonscale.models.program import Section
from dragonscale.numbers import Number, product
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_sizes, matmul_dims
from dragonscale.training.reading import Kernel, Move, Reading

NARROW_PARTS = ("attention", "mlp", "experts", "shared")
"""Parts whose products run in the plan's dtype; the head, the router and an indexer stay in bf16."""


class Timer(Protocol):
    """Seconds of one kernel on one chip. `narrow` says whether a product runs in the plan's dtype or in bf16."""

    def matmul(self, m: Number, n: Number, k: Number, batch: Number, narrow: bool) -> Number: ...

    def grouped(self, rows: Number, n: Number, k: Number, groups: Number, narrow: bool) -> Number: ...

    def attention(self, flops: Number, shape: "AttentionShape", backward: bool) -> Number: ...

    def memory(self, moved: Number) -> Number: ...

    def route(self, moved: Number) -> Number: ...

    def cast(self, elements: Number, narrow: bool) -> Number: ...

    def loss(self, logits: Number) -> Number: ...

    def copy(self, moved: Number) -> Number: ...


@dataclass(frozen=True)
class AttentionShape:
    """What decides how fast attention runs: heads of one chip over whole sequences, of which each chip of a `context`
    axis does an equal share. `window` caps the keys that a query sees."""

    batch: Number
    tokens: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    v_head_dim: Number
    context: Number = 1
    window: Number = None


@dataclass(frozen=True)
class Work:
    """Kernel seconds and FLOPs of one pass through a section, by (part, phase); `issued` counts kernels by phase, and
    `experts` the experts in grouped products."""

    seconds: dict[tuple[str, str], Number]
    flops: dict[tuple[str, str], Number]
    issued: dict[str, float]
    experts: dict[str, Number]

    def total(self, *phases: str) -> Number:
        """Seconds of some phases."""
        return sum(value for (_, phase), value in self.seconds.items() if phase in phases)

    def total_flops(self, *phases: str) -> Number:
        """FLOPs of some phases."""
        return sum(value for (_, phase), value in self.flops.items() if phase in phases)


@dataclass
class _Product:
    """Products that read the same tensor, as one: sizes on one chip."""

    kernel: Kernel
    m: Number
    n: Number
    k: Number
    batch: Number
    groups: Number | None

    def join(self, other: "_Product") -> None:
        """Side by side: more columns, or for the gradient of what they read, a longer sum."""
        if self.kernel.phase == "dgrad":
            self.k = self.k + other.k
        else:
            self.n = self.n + other.n


def _product_of(kernel: Kernel, sizes: dict[str, Number], mesh: Mesh) -> _Product:
    local = local_sizes(kernel.arrays, sizes, mesh)
    rows, columns, summed, batch, experts = matmul_dims(kernel.arrays)
    m, n, k = (product(local[name] for name in names) for names in (rows, columns, summed))
    groups = product(local[name] for name in experts) if experts else None
    return _Product(kernel, m, n, k, product(local[name] for name in batch), groups)


def _product_cost(one: _Product, timer: Timer) -> tuple[Number, Number]:
    narrow = one.kernel.part in NARROW_PARTS
    flops = 2 * one.m * one.n * one.k * one.batch
    phase = one.kernel.phase
    cast = timer.cast(one.m * one.k * one.batch, narrow) if phase != "wgrad" else 0.0
    if one.groups is None:
        return timer.matmul(one.m, one.n, one.k, one.batch, narrow) + cast, flops
    tokens, other, inner = (one.k, one.m, one.n) if phase == "wgrad" else (one.m, one.n, one.k)
    return timer.grouped(tokens, other, inner, one.groups, narrow) + cast, flops


def _attention_cost(
    kernel: Kernel, section: Section, sizes: dict[str, Number], mesh: Mesh, timer: Timer
) -> tuple[Number, Number]:
    query = kernel.arrays[0]
    work = Workload(sizes["b"], sizes["t"], sizes["s"])
    flops = op_flops(section, kernel.op, work) / mesh.size(*query.axes)
    local = local_sizes(kernel.arrays, sizes, mesh)
    dims = section.dims
    heads = local.get("n", local.get("i", 1))
    pieces = sizes["t"] / section.chunk if section.chunk is not None and section.chunk < sizes["t"] else 1
    shape = AttentionShape(
        batch=local["b"] * pieces,
        tokens=sizes["t"] / pieces,
        heads=heads,
        kv_heads=local.get("k", heads),
        head_dim=dims.get("h", dims.get("j", 128)),
        v_head_dim=dims.get("g", dims.get("h", 128)),
        context=mesh.size("context"),
        window=section.span,
    )
    backward = kernel.phase == "dgrad"
    return timer.attention(flops * (2 if backward else 1), shape, backward), flops * (2 if backward else 1)


def _pointwise_cost(kernel: Kernel, sizes: dict[str, Number], mesh: Mesh, timer: Timer, dtype: str) -> Number:
    local = local_sizes(kernel.arrays, sizes, mesh)
    moved = sum(
        product(local[dim.name] for dim in array.dims if dim.name in local) * dtype_bytes(array.dtype or dtype)
        for array in kernel.arrays
    )
    if kernel.function in ("dispatch", "combine"):
        return timer.route(moved)
    return timer.memory(moved * (1.5 if kernel.phase == "dgrad" else 1))


KERNELS_OF = {"route": 12.0, "dispatch": 8.0, "combine": 8.0, "attend": 2.0}
"""Kernels that a line stands for, where it is more than one: choosing experts, counting and sorting tokens."""


def section_work(reading: Reading, sizes: dict[str, Number], mesh: Mesh, timer: Timer, dtype: str = "bf16") -> Work:
    """All kernels of one pass through a section."""
    work = Work({}, {}, {}, {})
    products: dict[tuple[object, ...], _Product] = {}

    def add(kernel: Kernel, taken: Number, done: Number) -> None:
        key = (kernel_part(kernel), kernel.phase)
        work.seconds[key] = work.seconds.get(key, 0) + taken
        work.flops[key] = work.flops.get(key, 0) + done
        work.issued[kernel.phase] = work.issued.get(kernel.phase, 0.0) + KERNELS_OF.get(kernel.function, 1.0)

    for kernel in reading.kernels:
        if kernel.function == "matmul":
            one = _product_of(kernel, sizes, mesh)
            key = (kernel.phase, kernel.part, *(array.name for array in kernel.op.inputs))
            products[key].join(one) if key in products else products.setdefault(key, one)
        elif kernel.function in ("attend", "score"):
            add(kernel, *_attention_cost(kernel, reading.section, sizes, mesh, timer))
        else:
            add(kernel, _pointwise_cost(kernel, sizes, mesh, timer, dtype), 0.0)
    for one in products.values():
        add(one.kernel, *_product_cost(one, timer))
        if one.groups is not None:
            work.experts[one.kernel.phase] = work.experts.get(one.kernel.phase, 0.0) + one.groups
    if reading.section.name == "head":
        _add_loss(work, reading, sizes, mesh, timer)
    return work


def _add_loss(work: Work, reading: Reading, sizes: dict[str, Number], mesh: Mesh, timer: Timer) -> None:
    """The cross-entropy over this chip's logits, forward and backward."""
    logits = reading.section.ops[-1].output
    assert logits is not None
    laid = next(kernel.arrays[-1] for kernel in reversed(reading.kernels) if kernel.phase == "forward")
    local = local_sizes((laid,), sizes, mesh)
    both = timer.loss(product(local[name] for name in logits.names))
    for phase in ("forward", "dgrad"):
        work.seconds[("pointwise", phase)] = work.seconds.get(("pointwise", phase), 0) + both / 2
        work.flops.setdefault(("pointwise", phase), 0.0)
        work.issued[phase] = work.issued.get(phase, 0.0) + 4.0


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
