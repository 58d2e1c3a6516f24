"""What a software stack does with the same plan: what it overlaps, what it fuses, what it keeps.

These few constants are the only part of an expectation that is not measured on kernels. There is one set for each
stack, declared with its reasons in `stacks.toml`, and the same for every run of that stack.
"""

import functools
import tomllib
from importlib import resources

import msgspec

from dragonscale.errors import unknown


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts between 0 and 1 say how much of a transfer can hide under compute."""

    name: str = "generic"
    why: str = ""
    tensor_overlap: float = 0.3
    context_overlap: float = 0.7
    expert_overlap: float = 0.0
    weight_overlap: float = 0.9
    gradient_overlap: float = 0.8
    pointwise_passes: float = 1.0
    layer_seconds: float = 0.0
    step_seconds: float = 0.0
    straggle: float = 0.01
    gradient_bytes: float = 4.0
    master_bytes: float = 4.0
    reserve_bytes: float = 2e9


@functools.cache
def stacks() -> dict[str, Stack]:
    """The stacks that are known, by name."""
    text = (resources.files("dragonscale.training") / "stacks.toml").read_text(encoding="utf-8")
    return {name: msgspec.convert({"name": name, **table}, Stack) for name, table in tomllib.loads(text).items()}


def load_stack(name: str) -> Stack:
    """A stack by name.

    >>> load_stack("megatron").gradient_bytes
    4.0
    """
    if name not in stacks():
        raise unknown("software stack", name, stacks())
    return stacks()[name]
