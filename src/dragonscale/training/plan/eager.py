"""What a program that runs one kernel for each operation (eager PyTorch) moves and keeps, beyond fused kernels.

Bytes are counted from the code of transformers' Llama: what each elementwise kernel reads and writes for an element,
forward and backward (`StackEager`, `stacks.toml`). A norm in fp32 is six kernels, a rotation five, SwiGLU two; under
autocast every matmul casts its own copy of what it reads, and keeps it; adapters of PEFT cast to fp32 and back. In a
layer's backward pass most is there when SwiGLU's gradients are found: what the layer keeps, less what the last matmul
read, and three hidden gradients.
"""

from collections import Counter
from collections.abc import Iterator

from dragonscale.models.activations import hands_on
from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.rules import Rules
from dragonscale.training.plan.setting import PassLine, PlacedSection
from dragonscale.training.plan.stack import StackEager

KERNELS = {"norm": (6.0, 11.0), "act": (2.0, 3.0), "add": (1.0, 1.0), "adapter_add": (2.0, 1.0)}
"""Kernels of a line, forward and backward; of rotations, casts and sums below."""
ROTATION, CASTS = (5.0, 8.0), (2.0, 2.0)
HIDDEN_GRADIENTS = 3.0
"""Of SwiGLU's output and of both that it multiplies."""


def counted_kernels(eager: StackEager, op: Op, backward: bool) -> tuple[float, float] | None:
    """Bytes that a line's kernels move for an element of what it reads, or for SwiGLU puts out, and how many they are;
    None for lines that are timed as one kernel."""
    name = "adapter_add" if op.part == ADAPTERS and op.function == "add" else op.function
    if not eager.counted or name not in KERNELS or one_kernel(op):
        return None
    return getattr(eager, f"{name}_back" if backward else name), KERNELS[name][backward]


def one_kernel(op: Op) -> bool:
    """Whether PyTorch has a line as one kernel: LayerNorm, which has a bias, and nonlinearities that gate nothing."""
    return (op.function == "norm" and len(op.weights) > 1) or (op.function == "act" and len(op.inputs) < 2)


def eager_lines(own: PlacedSection) -> Iterator[PassLine]:
    """Kernels that no line of the program stands for: rotations, and casts and sums around matmuls."""
    eager, section = own.setting.stack.eager, own.reading.section
    readers = _readers(section)
    seen: set[tuple[str, int]] = set()
    for op, maker, source in _reads(section):
        every = local_elements(own.reading.rules.activation(source), own.sizes, own.mesh)
        if op.function == "attend":
            if "t" in source.names or "s" in source.names:
                yield from _both(own, f"rotated {source.name}", every, (eager.rope, eager.rope_back), ROTATION)
            continue
        adapter = op.part == ADAPTERS
        cast = (eager.adapter_read, eager.adapter_read_back) if adapter else (eager.read, eager.read_back)
        summed = eager.shared_back if (source.name, maker) in seen and readers[source.name, maker] > 1 else 0.0
        seen.add((source.name, maker))
        yield from _both(own, f"{source.name} for {op.weights[0].name}", every, (cast[0], cast[1] + summed), CASTS)


Both = tuple[float, float]
"""Forward and backward."""


def _both(own: PlacedSection, what: str, every: Number, each: Both, kernels: Both) -> Iterator[PassLine]:
    timer = own.setting.timer
    for phase, bytes_, many in zip(("forward", "dgrad"), each, kernels, strict=True):
        if bytes_:
            moved = every * bytes_
            seconds = timer.stream(moved, many) if timer is not None else 0.0
            work = {"hbm_bytes": moved, "expected_s": seconds, "launches": many}
            yield PassLine(own.reading.section.name, phase, what, "elementwise", part="elementwise", **work)


def _reads(section: Section) -> Iterator[tuple[Op, int, Array]]:
    """Matmuls by a weight, and queries and keys of attention, with what they read and the line that made it."""
    made: dict[str, int] = {}
    for line, op in enumerate(section.ops):
        if op.function == "einsum" and op.weights and op.inputs:
            yield op, made.get(op.inputs[0].name, -1), op.inputs[0]
        elif op.function == "attend":
            yield from ((op, made.get(array.name, -1), array) for array in op.inputs[:2])
        if op.output is not None:
            made[op.output.name] = line


def _readers(section: Section) -> Counter[tuple[str, int]]:
    """How many matmuls read each tensor."""
    return Counter((source.name, maker) for op, maker, source in _reads(section) if op.function == "einsum")


def kept_bytes(
    section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, eager: StackEager
) -> tuple[Number, Number]:
    """Bytes of activations that a layer keeps beside those that gradients need, and of those that are alive in its
    backward pass beside all of them."""
    more: Number = 0.0
    alive: Number = 0.0

    def size(array: Array) -> Number:
        return local_elements(rules.activation(array), sizes, mesh)

    for op in section.ops:
        if op.function == "norm" and op.inputs:
            more = more + eager.norm_kept * size(op.inputs[0]) * (not one_kernel(op))
        elif op.function == "act" and op.output is not None:
            hidden = size(op.output)
            more = more + eager.act_kept * hidden * (not one_kernel(op))
            kept = any(not hands_on(one) and op.output in one.inputs for one in section.ops if one.function == "einsum")
            alive = alive + 2.0 * hidden * (HIDDEN_GRADIENTS - kept)
    trained = [one for one in _reads(section) if one[0].function == "einsum" and not one[0].frozen]
    first: set[tuple[str, int]] = set()
    for op, maker, source in trained if eager.own_inputs else []:
        own = op.part == ADAPTERS
        by = section.ops[maker].function if maker >= 0 else ""
        again = (source.name, maker) in first and (own or by == "norm")
        first.add((source.name, maker))
        more = more + 2.0 * size(source) * (again or (own and by == "attend"))
    entry = section.ops[0].inputs[0] if section.ops[0].inputs else None
    return more, alive + (eager.residual * size(entry) if entry is not None else 0.0)
