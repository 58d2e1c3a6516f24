"""The kernels of a pass through a section: matmuls, attention, elementwise passes and the loss, on one chip's share.

Matmuls that read the same tensor run as one: queries, keys and values; the two halves of a gated MLP.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.plan.reader import Kernel
from dragonscale.training.cost.attention_lines import attention_lines
from dragonscale.training.plan.eager import counted_kernels, eager_lines
from dragonscale.training.plan.setting import LAUNCHES, NARROW_PARTS, PassLine, PlacedSection

BLOCK_FORMATS = ("mxfp8", "nvfp4", "mxfp4")
BLOCK_SCALES = 2.0
"""Kernels of an expert's matmul in a format with block scales over those in others: besides the cast and the matmul the
scales of both operands are laid out anew (Transformer Engine, `te_general_grouped_gemm`)."""

LOSS_FLOPS = 3.0
"""Arithmetic on one logit, forward and again backward: a subtraction, an exponential and a sum; a product, a
subtraction, a scale."""


@dataclass
class _Matmul:
    """Matmuls that read the same tensor, run as one: (m, k) times (k, n) on one chip, `batch` times, or for each of
    some expert `groups`. `ops` are the indices of its ops with their FLOPs, `names` what they compute."""

    kernel: Kernel
    m: Number
    n: Number
    k: Number
    batch: Number
    groups: Number | None
    ops: list[tuple[int, Number]]
    names: list[str]

    def join(self, other: "_Matmul") -> None:
        """Append a matmul side by side: further columns, or for the gradient of what they read, a longer sum."""
        if self.kernel.phase == "dgrad":
            self.k = self.k + other.k
        else:
            self.n = self.n + other.n
        self.ops += other.ops
        self.names += [name for name in other.names if name not in self.names]

    def operand_elements(self) -> Number:
        """Elements of both operands and the result. Each expert has a matrix of its own: the second operand of most
        grouped matmuls, and the result of those that compute weight gradients."""
        left, right, result = self.m * self.k, self.n * self.k, self.m * self.n
        if self.groups is None:
            return left + right + result
        if self.kernel.phase == "wgrad":
            return left + right + result * self.groups
        return left + right * self.groups + result


def _matmul_of(kernel: Kernel, placed: PlacedSection) -> _Matmul:
    """One kernel's matmul with the sizes on one chip."""
    local = local_sizes(kernel.arrays, placed.sizes, placed.mesh)
    rows, columns, summed, batch_dims, expert_dims = kernel.matmul
    m, n, k = (product(local[name] for name in names) for names in (rows, columns, summed))
    batch = product(local[name] for name in batch_dims)
    groups = product(local[name] for name in expert_dims) if expert_dims else None
    # A line is named after what its first op computes.
    computed = kernel.arrays[-1]
    if kernel.phase == "forward" and kernel.op.output is not None:
        computed = kernel.op.output
    name = f"d{computed.name}" if kernel.phase == "wgrad" else computed.name
    return _Matmul(kernel, m, n, k, batch, groups, [(kernel.line, 2 * m * n * k * batch)], [name])


def kernel_lines(placed: PlacedSection) -> Iterator[PassLine]:
    """Every kernel of a pass through a section, forward and backward, once."""
    reading = placed.reading
    # By phase, part and inputs: what reads the same tensors in the same pass runs as one.
    matmuls: dict[tuple[object, ...], _Matmul] = {}
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            matmul = _matmul_of(kernel, placed)
            key = (kernel.phase, kernel.part, *(array.name for array in kernel.op.inputs))
            if key in matmuls:
                matmuls[key].join(matmul)
            else:
                matmuls[key] = matmul
        elif kernel.function in ("attend", "score"):
            yield from attention_lines(kernel, placed)
        else:
            yield _elementwise_line(kernel, placed)
    if placed.setting.stack.eager.counted and reading.kernels:
        yield from eager_lines(placed)
    for matmul in matmuls.values():
        yield _matmul_line(matmul, placed)
    if reading.section.name == "head" and reading.kernels:
        yield from _loss_lines(placed)


def _matmul_seconds(matmul: _Matmul, placed: PlacedSection) -> Number:
    """Expected seconds of a matmul, with the casts of what it reads."""
    timer, kernel = placed.setting.timer, matmul.kernel
    if timer is None:
        return 0.0
    narrow, wgrad = kernel.part in NARROW_PARTS, kernel.phase == "wgrad"
    # A weight's gradient reads what the forward and the dgrad matmul have cast already.
    cast: Number = 0.0
    if not wgrad:
        cast = timer.cast(matmul.m * matmul.k * matmul.batch, narrow)
    if matmul.groups is None:
        # The head's logits have gradients that are next to nothing, which draws less power.
        seconds = timer.matmul(matmul.m, matmul.n, matmul.k, matmul.batch, narrow) + cast
        if kernel.part == "head":
            seconds = seconds * placed.setting.stack.kernels.head
        return seconds
    # Tokens are the grouped dim: the rows of most matmuls, and what a weight's gradient sums over.
    rows, outer, inner = matmul.m, matmul.n, matmul.k
    if wgrad:
        rows, outer, inner = matmul.k, matmul.m, matmul.n
    return timer.grouped(rows, outer, inner, matmul.groups, narrow) + cast


def _matmul_line(matmul: _Matmul, placed: PlacedSection) -> PassLine:
    setting, rules, kernel = placed.setting, placed.reading.rules, matmul.kernel
    seconds = _matmul_seconds(matmul, placed)
    flops, hbm_bytes, bound_s = 0.0, 0.0, 0.0
    if setting.detail:
        flops = sum(flops for _, flops in matmul.ops)
        hbm_bytes = 2.0 * matmul.batch * matmul.operand_elements()
        bound_s = flops / setting.peak(kernel.part)
    kind, experts = "matmul", 0.0
    if matmul.groups is not None:
        kind, experts = "grouped matmul", matmul.groups * 1.0
        if kernel.part in NARROW_PARTS and setting.plan.dtype in BLOCK_FORMATS:
            experts = matmul.groups * BLOCK_SCALES
    # Gathered keys and values may travel under the projections of attention.
    covers = kernel.part == "attention" and not (rules.ring or rules.trades or setting.stack.kernels.hops)
    return PassLine(
        placed.reading.section.name,
        kernel.phase,
        "+".join(matmul.names),
        kind,
        part=kernel.part,
        flops=flops,
        hbm_bytes=hbm_bytes,
        bound_s=bound_s,
        expected_s=seconds,
        ops=tuple(matmul.ops),
        launches=1.0,
        experts=experts,
        covers=seconds if covers else 0.0,
    )


def _elementwise_line(kernel: Kernel, placed: PlacedSection) -> PassLine:
    """A norm, a nonlinearity, a sum, or the routing of tokens: one pass over its tensors."""
    stack, timer, op = placed.setting.stack, placed.setting.timer, kernel.op
    backward, routing = kernel.phase == "dgrad", kernel.function in ("dispatch", "combine")
    arrays = tuple(array for array in kernel.arrays if "b" in array.names)
    local = local_sizes(arrays, placed.sizes, placed.mesh)

    def elements(array: Array) -> Number:
        return product(local[dim.name] for dim in array.dims if dim.name in local)

    moved = sum(elements(array) * dtype_bytes(array.dtype or "bf16") for array in arrays)
    if backward and not routing:
        moved = moved * 1.5  # reads the forward pass's input and the gradient, writes the other gradient
    if op.part == ADAPTERS and stack.memory.allocator == "xla":
        # Fused: the adapter's matmul adds its result where it ends, and reads one tensor more.
        moved = 0.0 if backward else moved / len(arrays)
    launches = LAUNCHES.get(kernel.function, 1.0)
    counted = counted_kernels(stack.eager, op, backward)
    seconds: Number = 0.0
    if counted is not None:
        element_bytes, launches = counted
        # Bytes are counted for an element of SwiGLU's output, and of what other kernels read.
        moved = elements(arrays[-1] if kernel.function == "act" else arrays[0]) * element_bytes
        if timer is not None:
            seconds = timer.stream(moved, launches)
    elif timer is not None:
        seconds = timer.route(moved) if routing else timer.memory(moved)
    name = op.output.name if op.output is not None else kernel.function
    return PassLine(
        placed.reading.section.name,
        kernel.phase,
        f"d{name}" if backward else name,
        "elementwise",
        part="elementwise",
        hbm_bytes=moved,
        expected_s=seconds,
        ops=((kernel.line, 0.0),),
        launches=launches,
    )


def _loss_lines(placed: PlacedSection) -> Iterator[PassLine]:
    """The cross-entropy over this chip's logits, forward and backward, which share its time evenly."""
    reading, setting = placed.reading, placed.setting
    logits = reading.section.ops[-1].output
    assert logits is not None
    count = local_elements(reading.rules.activation(logits), placed.sizes, placed.mesh)
    both_passes: Number = 0.0
    if setting.timer is not None:
        both_passes = setting.timer.loss(count)
    moved = count * setting.stack.kernels.loss_bytes / 2
    work = {"flops": LOSS_FLOPS * count, "hbm_bytes": moved, "expected_s": both_passes / 2, "launches": 4.0}
    for phase in ("forward", "dgrad"):
        yield PassLine(reading.section.name, phase, "loss", "elementwise", part="elementwise", **work)
