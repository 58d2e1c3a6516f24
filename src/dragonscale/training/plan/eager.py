"""What a program that runs one kernel for each operation (eager PyTorch) moves and keeps, beyond fused kernels.

Bytes are counted from the code of transformers' Llama: what each elementwise kernel reads and writes for an element,
forward and backward (`StackEager`, `stacks.toml`). A norm in fp32 is six kernels, a rotation five, SwiGLU two; under
autocast every matmul casts its own copy of what it reads, and keeps it; adapters of PEFT cast to fp32 and back. In a
layer's backward pass most is there when SwiGLU's gradients are found: what the layer keeps, less what the last matmul
read, and three hidden gradients.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.models.activations import hands_on
from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number
from dragonscale.training.plan.local_section import LocalSection
from dragonscale.training.plan.setting import PassLine, PlacedSection
from dragonscale.training.plan.stack import StackEager

# Kernels that an op takes, (forward, backward).
KERNELS = {"norm": (6.0, 11.0), "act": (2.0, 3.0), "add": (1.0, 1.0), "adapter_add": (2.0, 1.0)}
ROTATION_KERNELS = (5.0, 8.0)
CAST_KERNELS = (2.0, 2.0)

# Gradients alive where SwiGLU's backward pass is at its fullest: of its output, and of both that it multiplies.
HIDDEN_GRADIENTS = 3.0


def counted_kernels(eager: StackEager, op: Op, backward: bool) -> tuple[float, float] | None:
    """Bytes that an op's kernels move for an element of what it reads (of SwiGLU, for one of its output), and how many
    kernels they are; None for ops that are timed as one kernel."""
    name = "adapter_add" if op.part == ADAPTERS and op.function == "add" else op.function
    if not eager.counted or name not in KERNELS or one_kernel(op):
        return None
    field = f"{name}_back" if backward else name
    return getattr(eager, field), KERNELS[name][backward]


def one_kernel(op: Op) -> bool:
    """Whether PyTorch has an op as one kernel: LayerNorm, which has a bias, and nonlinearities that gate nothing."""
    return (op.function == "norm" and len(op.weights) > 1) or (op.function == "act" and len(op.inputs) < 2)


@dataclass(frozen=True)
class _Read:
    """A matmul by a weight, or attention, that reads a tensor; `maker` is the index of the op that made it, or -1 for
    what came from outside the section."""

    op: Op
    maker: int
    tensor: Array

    @property
    def key(self) -> tuple[str, int]:
        """What tells the tensor from others of its name."""
        return self.tensor.name, self.maker


def eager_lines(placed: PlacedSection) -> Iterator[PassLine]:
    """Kernels that no op of the program stands for: rotations, and casts and sums around matmuls."""
    eager, local = placed.setting.stack.eager, placed.local
    reads = _reads(local.section)
    # How many matmuls read each tensor: the gradients of all of them are added up.
    readers = Counter(read.key for read in reads if read.op.function == "einsum")
    summed: set[tuple[str, int]] = set()
    for read in reads:
        source, elements = read.tensor, local.elements(read.tensor)
        if read.op.function == "attend":
            if "t" in source.names or "s" in source.names:
                what, rope = f"rotated {source.name}", (eager.rope, eager.rope_back)
                yield from _forward_and_backward(placed, _Elementwise(what, elements, rope, ROTATION_KERNELS))
            continue
        cast, cast_back = eager.read, eager.read_back
        if read.op.part == ADAPTERS:
            cast, cast_back = eager.adapter_read, eager.adapter_read_back
        if read.key in summed and readers[read.key] > 1:  # every gradient but the first is added to the others
            cast_back = cast_back + eager.shared_back
        summed.add(read.key)
        what = f"{source.name} for {read.op.weights[0].name}"
        yield from _forward_and_backward(placed, _Elementwise(what, elements, (cast, cast_back), CAST_KERNELS))


@dataclass(frozen=True)
class _Elementwise:
    """Work on some elements: bytes moved for each of them and kernels launched, both (forward, backward)."""

    what: str
    elements: Number
    element_bytes: tuple[float, float]
    kernels: tuple[float, float]


def _forward_and_backward(placed: PlacedSection, work: _Elementwise) -> Iterator[PassLine]:
    """A line for each direction in which the work moves anything."""
    timer, section = placed.setting.timer, placed.reading.section.name
    for phase, element_bytes, kernels in zip(("forward", "dgrad"), work.element_bytes, work.kernels, strict=True):
        if not element_bytes:
            continue
        moved = work.elements * element_bytes
        seconds = timer.stream(moved, kernels) if timer is not None else 0.0
        measured = {"hbm_bytes": moved, "expected_s": seconds, "launches": kernels}
        yield PassLine(section, phase, work.what, "elementwise", part="elementwise", **measured)


def _reads(section: Section) -> list[_Read]:
    """Every tensor that a matmul by a weight reads, and the queries and keys of attention."""
    makers: dict[str, int] = {}  # index of the op that last made each name
    reads: list[_Read] = []
    for index, op in enumerate(section.ops):
        if op.function == "einsum" and op.weights and op.inputs:
            reads.append(_Read(op, makers.get(op.inputs[0].name, -1), op.inputs[0]))
        elif op.function == "attend":
            reads += [_Read(op, makers.get(array.name, -1), array) for array in op.inputs[:2]]
        if op.output is not None:
            makers[op.output.name] = index
    return reads


def eager_memory(local: LocalSection) -> tuple[Number, Number]:
    """Bytes of activations that a layer saves beyond those that its gradients need, and bytes alive in its backward
    pass beyond all that it saves."""
    section, eager = local.section, local.stack.eager
    saved: Number = 0.0
    alive: Number = 0.0
    matmuls = [op for op in section.ops if op.function == "einsum"]
    for op in section.ops:
        if op.function == "norm" and op.inputs:
            saved = saved + eager.norm_kept * local.elements(op.inputs[0]) * (not one_kernel(op))
        elif op.function == "act" and op.output is not None:
            hidden = local.elements(op.output)
            saved = saved + eager.act_kept * hidden * (not one_kernel(op))
            # The last matmul has read its input, which is freed, when SwiGLU's gradients are found.
            is_saved = any(not hands_on(matmul) and op.output in matmul.inputs for matmul in matmuls)
            alive = alive + 2.0 * hidden * (HIDDEN_GRADIENTS - is_saved)
    if eager.own_inputs:
        for copy in _cast_copies(local):
            saved = saved + copy
    first = section.ops[0]
    if first.inputs:
        alive = alive + eager.residual * local.elements(first.inputs[0])
    return saved, alive


def _cast_copies(local: LocalSection) -> Iterator[Number]:
    """Bytes of each of the bf16 copies that matmuls keep where each casts its own: all that read a norm's output after
    the first, and adapters whatever they read again or read of attention."""
    copied: set[tuple[str, int]] = set()
    for read in _reads(local.section):
        if read.op.function != "einsum" or read.op.frozen:
            continue
        adapter = read.op.part == ADAPTERS
        made_by = local.section.ops[read.maker].function if read.maker >= 0 else ""
        further = read.key in copied and (adapter or made_by == "norm")
        copied.add(read.key)
        yield 2.0 * local.elements(read.tensor) * (further or (adapter and made_by == "attend"))
