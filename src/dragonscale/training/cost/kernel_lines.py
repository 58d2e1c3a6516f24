"""The kernels of a pass through a section: matmuls, attention, elementwise passes and the loss, on one chip's share.

Matmuls that read the same tensor run as one: queries, keys and values; the two halves of a gated MLP.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.reader import Kernel, Reading
from dragonscale.training.cost.attention_lines import attention_lines
from dragonscale.training.plan.eager import counted_kernels, eager_lines
from dragonscale.training.plan.setting import LAUNCHES, NARROW_PARTS, PassLine, PlacedSection, Setting

BLOCK_FORMATS = ("mxfp8", "nvfp4", "mxfp4")
BLOCK_SCALES = 2.0
"""Kernels of an expert's matmul in a format with block scales over those in others: beside the cast and the matmul the
scales of both operands are laid out anew (Transformer Engine, `te_general_grouped_gemm`)."""


@dataclass
class _Matmul:
    """Matmuls that read the same tensor, as one: sizes on one chip."""

    kernel: Kernel
    m: Number
    n: Number
    k: Number
    batch: Number
    groups: Number | None
    ops: list[tuple[int, Number]]
    names: list[str]

    def join(self, other: "_Matmul") -> None:
        """Side by side: more columns, or for the gradient of what they read, a longer sum."""
        if self.kernel.phase == "dgrad":
            self.k = self.k + other.k
        else:
            self.n = self.n + other.n
        self.ops += other.ops
        self.names += [name for name in other.names if name not in self.names]


def _matmul_of(kernel: Kernel, sizes: dict[str, Number], mesh: Mesh) -> _Matmul:
    local = local_sizes(kernel.arrays, sizes, mesh)
    rows, columns, summed, batch, experts = kernel.matmul
    m, n, k = (product(local[name] for name in names) for names in (rows, columns, summed))
    many = product(local[name] for name in batch)
    groups = product(local[name] for name in experts) if experts else None
    name = (kernel.op.output or kernel.arrays[-1]).name if kernel.phase == "forward" else kernel.arrays[-1].name
    if kernel.phase == "wgrad":
        name = f"d{name}"
    return _Matmul(kernel, m, n, k, many, groups, [(kernel.line, 2 * m * n * k * many)], [name])


def kernel_lines(own: PlacedSection) -> Iterator[PassLine]:
    reading = own.reading
    matmuls: dict[tuple[object, ...], _Matmul] = {}
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            one = _matmul_of(kernel, own.sizes, own.mesh)
            key = (kernel.phase, kernel.part, *(array.name for array in kernel.op.inputs))
            matmuls[key].join(one) if key in matmuls else matmuls.setdefault(key, one)
        elif kernel.function in ("attend", "score"):
            yield from attention_lines(kernel, own)
        else:
            yield _elementwise_line(kernel, own)
    if own.setting.stack.eager.counted and reading.kernels:
        yield from eager_lines(own)
    for one in matmuls.values():
        yield _matmul_line(one, reading, own.setting)
    if reading.section.name == "head" and reading.kernels:
        yield from _loss_lines(own)


def _matmul_line(one: _Matmul, reading: Reading, setting: Setting) -> PassLine:
    section, rules = reading.section.name, reading.rules
    kernel, timer = one.kernel, setting.timer
    narrow = kernel.part in NARROW_PARTS
    scaled = narrow and setting.plan.dtype in BLOCK_FORMATS
    seconds: Number = 0.0
    if timer is not None:
        cast = timer.cast(one.m * one.k * one.batch, narrow) if kernel.phase != "wgrad" else 0.0
        if one.groups is None:
            seconds = timer.matmul(one.m, one.n, one.k, one.batch, narrow) + cast
            if kernel.part == "head":
                seconds = seconds * setting.stack.kernels.head
        else:
            wide = kernel.phase == "wgrad"
            rows, other, inner = (one.k, one.m, one.n) if wide else (one.m, one.n, one.k)
            seconds = timer.grouped(rows, other, inner, one.groups, narrow) + cast
    flops, held = 0.0, 0.0
    if setting.detail:
        flops = sum(done for _, done in one.ops)
        held = 2.0 * one.batch * _operand_elements(one)
    covers = kernel.part == "attention" and not (rules.ring or rules.trades or setting.stack.kernels.hops)
    names = (section, kernel.phase, "+".join(one.names), "matmul" if one.groups is None else "grouped matmul")
    return PassLine(
        *names,
        part=kernel.part,
        flops=flops,
        hbm_bytes=held,
        bound_s=flops / setting.peak(kernel.part) if setting.detail else 0.0,
        expected_s=seconds,
        ops=tuple(one.ops),
        launches=1.0,
        experts=0.0 if one.groups is None else one.groups * (BLOCK_SCALES if scaled else 1.0),
        covers=seconds if covers else 0.0,
    )


def _operand_elements(one: _Matmul) -> Number:
    """Elements of both operands and the result. What every expert has of its own is its weights: an operand of most
    grouped matmuls, the result of those that give their gradients."""
    operands = one.m * one.k, one.n * one.k, one.m * one.n
    if one.groups is None:
        return sum(operands)
    if one.kernel.phase == "wgrad":
        return operands[0] + operands[1] + operands[2] * one.groups
    return operands[0] + operands[1] * one.groups + operands[2]


def _elementwise_line(kernel: Kernel, own: PlacedSection) -> PassLine:
    arrays = tuple(array for array in kernel.arrays if "b" in array.names)
    local = local_sizes(arrays, own.sizes, own.mesh)
    elements = (product(local[dim.name] for dim in array.dims if dim.name in local) for array in arrays)
    moved = sum(many * dtype_bytes(array.dtype or "bf16") for many, array in zip(elements, arrays, strict=True))
    backward = kernel.phase == "dgrad"
    routing = kernel.function in ("dispatch", "combine")
    moved = moved * (1.5 if backward and not routing else 1)
    if kernel.op.part == ADAPTERS and own.setting.stack.memory.allocator == "xla":
        moved = 0.0 if backward else moved / len(arrays)  # added where the adapter's matmul ends, which reads one more
    launches = LAUNCHES.get(kernel.function, 1.0)
    counted = counted_kernels(own.setting.stack.eager, kernel.op, backward)
    seconds: Number = 0.0
    if (timer := own.setting.timer) is not None:
        seconds = timer.route(moved) if routing else timer.memory(moved)
    if counted is not None:
        shown = arrays[-1] if kernel.function == "act" else arrays[0]
        moved, launches = product(local[dim.name] for dim in shown.dims if dim.name in local) * counted[0], counted[1]
        seconds = timer.stream(moved, launches) if timer is not None else 0.0
    name = kernel.op.output.name if kernel.op.output is not None else kernel.function
    names = (own.reading.section.name, kernel.phase, f"d{name}" if backward else name, "elementwise")
    work = {"hbm_bytes": moved, "expected_s": seconds, "launches": launches}
    return PassLine(*names, part="elementwise", ops=((kernel.line, 0.0),), **work)


LOSS_FLOPS = 3.0
"""Arithmetic on one logit, forward and again backward: a subtraction, an exponential and a sum; a product, a
subtraction, a scale."""


def _loss_lines(own: PlacedSection) -> Iterator[PassLine]:
    """The cross-entropy over this chip's logits, forward and backward."""
    reading, setting = own.reading, own.setting
    logits = reading.section.ops[-1].output
    assert logits is not None
    count = local_elements(reading.rules.activation(logits), own.sizes, own.mesh)
    both = setting.timer.loss(count) if setting.timer is not None else 0.0
    moved = count * setting.stack.kernels.loss_bytes / 2
    work = {"flops": LOSS_FLOPS * count, "hbm_bytes": moved, "expected_s": both / 2, "launches": 4.0}
    for phase in ("forward", "dgrad"):
        yield PassLine(reading.section.name, phase, "loss", "elementwise", part="elementwise", **work)
