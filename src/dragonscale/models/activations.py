"""The activations of a program that training saves for the backward pass.

The gradient of an op needs the tensors that the op read (a matmul needs both its operands, a nonlinearity its
argument), except where the gradient passes through: sums and biases need nothing, a matmul with a frozen weight only
the weight. So every tensor that some op's gradient reads is saved, once, however often it is read. For a plain GPT
block these are the 32 bytes per token and channel of Korthikanti et al. (2022), who count 34 with two masks of dropout.
"""

from collections.abc import Iterable

from dragonscale.errors import unknown
from dragonscale.models.flops import Workload
from dragonscale.models.program import Op, Section
from dragonscale.models.recompute_modules import RecomputedModule, is_modules, recomputed_modules
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number

REMAT = ("none", "selective", "matmuls", "block")
"""The activations that are saved: all; all but the outputs of attention, norms and nonlinearities; the outputs of
matmuls; only each block's input."""

_PASS_THROUGH = ("add", "bias", "cache", "join", "lookup")
_CHEAP = ("attend", "act", "norm")


def needed_tensors(section: Section, modules: tuple[RecomputedModule, ...] = ()) -> list[tuple[Op | None, Array]]:
    """Every tensor that some gradient of the section reads, with the op that wrote it (None: it comes from outside).
    With recomputed modules: not the tensors that they free, but those that they read."""
    written: dict[str, tuple[int, Op | None, Array]] = {}  # by name: the last op that wrote it, and its index
    needed: dict[tuple[str, int], tuple[Op | None, Array]] = {}
    read: set[str] = set()
    for line, op in enumerate(section.ops):
        for array in op.inputs:
            position, writer, tensor = written.setdefault(array.name, (-1, None, array))
            read.add(array.name)
            is_recomputed = any(line in module.lines for module in modules)
            # an op that runs again needs its inputs, even where its gradient does not
            passes = op.function == "add" or (op.function in _PASS_THROUGH and not is_recomputed) or hands_on(op)
            is_freed = any(module.frees(position, line) for module in modules)
            if not passes and not is_freed and "b" in array.names and array.dtype != "fp32":
                needed[array.name, position] = (writer, tensor)
        if op.output is not None:
            written[op.output.name] = (line, op, op.output)
    # what no op reads is read by what comes after the section: logits, by the loss
    unread = [(writer, tensor) for name, (_, writer, tensor) in written.items() if name not in read]
    return [*needed.values(), *unread]


def hands_on(op: Op) -> bool:
    """Whether a matmul's gradient needs its weight alone, which is not trained."""
    return op.frozen and op.function == "einsum"


def saved_tensors(section: Section, policy: str) -> tuple[Array, ...]:
    """The activations that one pass through a section saves for its backward pass, under a policy of `REMAT` or with
    modules to recompute."""
    if is_modules(policy):
        return tuple(array for _, array in needed_tensors(section, recomputed_modules(section, policy)))
    if policy not in REMAT:
        raise unknown("remat policy", policy, REMAT)
    entry = tuple(array for array in section.ops[0].inputs[:1] if "b" in array.names)
    if policy == "block":
        return entry
    if policy == "matmuls":
        return tuple(op.output for op in section.ops if op.function == "einsum" and op.output is not None)
    needed = needed_tensors(section)
    if policy == "selective":
        needed = [(op, array) for op, array in needed if op is None or op.function not in _CHEAP]
    return tuple(array for _, array in needed)


def activation_bytes(
    sections: Iterable[Section], work: Workload, policy: str, dtype: str = "bf16"
) -> dict[str, Number]:
    """Bytes of saved activations of one microbatch, by section."""
    total: dict[str, Number] = {}
    for section in sections:
        size = sum(
            section.size(array, b=work.batch, t=work.queries, s=work.keys) * dtype_bytes(array.dtype or dtype)
            for array in saved_tensors(section, policy)
        )
        total[section.name] = total.get(section.name, 0) + size * section.repeat
    return total
