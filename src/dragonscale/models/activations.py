"""A reading of a program: the activations that training keeps for the backward pass.

The backward pass of a line needs the tensors it read (a matmul needs both its operands, a nonlinearity its argument),
except where the gradient simply passes through: sums and biases need nothing, a matmul with a frozen weight only that.
So what is kept is every tensor that some later line's gradient reads, once, however often it is read. For a plain GPT
block that is the 32 bytes per token and channel of Korthikanti et al. (2022), who count 34 with two masks of dropout.
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
"""What is kept: everything; everything but what attention, norms and nonlinearities put out; the outputs of matrix
multiplications; only each block's input."""

_PASS_THROUGH = ("add", "bias", "cache", "join", "lookup")
_CHEAP = ("attend", "act", "norm")


def needed_tensors(section: Section, modules: tuple[RecomputedModule, ...] = ()) -> list[tuple[Op | None, Array]]:
    """Every tensor that some gradient of the section reads, with the line that made it (None: it came from outside).
    With modules that run again: not what those free, but what they read."""
    made: dict[str, tuple[int, Op | None, Array]] = {}  # the line that last made each name
    needed: dict[tuple[str, int], tuple[Op | None, Array]] = {}
    read: set[str] = set()
    for line, op in enumerate(section.ops):
        for array in op.inputs:
            position, maker, tensor = made.setdefault(array.name, (-1, None, array))
            read.add(array.name)
            again = any(line in one.lines for one in modules)
            passes = op.function == "add" or (op.function in _PASS_THROUGH and not again) or hands_on(op)
            reads = not passes and not any(one.frees(position, line) for one in modules)
            if reads and "b" in array.names and array.dtype != "fp32":
                needed[array.name, position] = (maker, tensor)
        if op.output is not None:
            made[op.output.name] = (line, op, op.output)
    # What no line reads is read by what comes after: logits, by the loss.
    last = [(maker, tensor) for name, (_, maker, tensor) in made.items() if name not in read]
    return [*needed.values(), *last]


def hands_on(op: Op) -> bool:
    """Whether a matmul's gradient needs its weight alone, which is not trained."""
    return op.frozen and op.function == "einsum"


def saved_tensors(section: Section, policy: str) -> tuple[Array, ...]:
    """The activations that one pass through a section keeps for its backward pass, under a policy of `REMAT` or modules
    to recompute."""
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
