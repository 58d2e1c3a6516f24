"""Recompute by module: which lines of a block a trainer runs again when it is told modules by name.

The names are Megatron's (`--recompute-modules`), joined by `+`:

| module | lines |
|---|---|
| core_attn | softmax(Q·K)·V |
| layernorm | the norms before attention and feed-forward |
| mlp | a dense feed-forward half |
| moe | router, experts, shared experts |
| moe_act | the nonlinearity of the experts |
| shared_experts | the shared experts |
| mla_up_proj | queries, keys and values from their latent vectors |
"""

from collections.abc import Callable

from dragonscale.errors import InputError, shorten
from dragonscale.models.program import Op, Section

_LATENT = ("Cq", "C", "Kp")
_IN: dict[str, Callable[[Op], bool]] = {
    "core_attn": lambda op: op.function == "attend",
    "layernorm": lambda op: op.part == "norm",
    "mlp": lambda op: op.part == "mlp",
    "moe": lambda op: op.part in ("router", "experts", "shared"),
    "moe_act": lambda op: op.part == "experts" and op.function == "act",
    "shared_experts": lambda op: op.part == "shared",
    "mla_up_proj": lambda op: (
        op.function in ("einsum", "norm", "join") and op.inputs[0].name in _LATENT and op.part == "attention"
    ),
}
MODULES = tuple(_IN)


def is_modules(policy: str) -> bool:
    """Whether a remat policy is a set of modules.

    >>> is_modules("core_attn+layernorm"), is_modules("block")
    (True, False)
    """
    return bool(policy) and set(policy.split("+")) <= set(MODULES)


def read_modules(text: str) -> str:
    """A set of modules in the order of `MODULES`, or a sentence about the one that is unknown.

    >>> read_modules("moe_act+layernorm")
    'layernorm+moe_act'
    """
    names = text.split("+")
    wrong = [name for name in names if name not in MODULES]
    if wrong:
        raise InputError(
            f"There is no recompute module {shorten(wrong[0])} in remat={shorten(text)}; modules are {', '.join(MODULES)}, joined by +."
        )
    return "+".join(name for name in MODULES if name in names)


def module_lines(section: Section, policy: str) -> frozenset[int]:
    """The places of the lines that are in some of the modules."""
    tests = [_IN[name] for name in policy.split("+")]
    return frozenset(line for line, op in enumerate(section.ops) if any(test(op) for test in tests))
