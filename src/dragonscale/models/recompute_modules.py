"""Recompute by module: which lines of a block a trainer runs again when it is told modules by name, and what it keeps.

The names are Megatron's (`--recompute-modules`), joined by `+`, and so is what they mean (`recompute_modules` in
megatron/core/transformer/transformer_config.py at 2026-08-22):

| module | lines | its output |
|---|---|---|
| core_attn | softmax(Q·K)·V | kept |
| layernorm | norms before attention and feed-forward that stand alone | discarded |
| mlp | a dense feed-forward half, with the norm that is fused into it | kept |
| moe | router, experts, shared experts | kept |
| moe_act | the nonlinearity of the experts | discarded |
| shared_experts | the shared experts | kept |
| mla_up_proj | queries, keys and values from their latent vectors | discarded |

A module whose output is kept frees what lies inside it alone: `core_attn` frees scores, of which fused attention writes
none, and its output stays because the output projection's gradient reads it. A norm is fused into the matmuls that read
it (Transformer Engine's LayerNormLinear: `input_layernorm` and `pre_mlp_layernorm` are then IdentityOp in
megatron/core/models/gpt/gpt_layer_specs.py) unless its tokens are routed to experts or projected to latent vectors, and
`layernorm` leaves fused norms alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
_DISCARDED = ("layernorm", "moe_act", "mla_up_proj")
"""Modules whose outputs are discarded too, and recomputed when the gradient of their readers is due."""


@dataclass(frozen=True)
class RecomputedModule:
    """The indices of a module's ops, which run again, and whether their outputs are discarded too."""

    lines: frozenset[int]
    discards: bool

    def frees(self, writer: int, reader: int) -> bool:
        """Whether the output of one op need not be saved for another that reads it."""
        return writer in self.lines and (self.discards or reader in self.lines)


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
            f"There is no recompute module {shorten(wrong[0])} in remat={shorten(text)}; modules are "
            f"{', '.join(MODULES)}, joined by +."
        )
    return "+".join(name for name in MODULES if name in names)


def recomputed_modules(section: Section, policy: str) -> tuple[RecomputedModule, ...]:
    """The modules of a policy as they are in a section."""
    fused = _fused_norms(section)

    def lines(name: str) -> frozenset[int]:
        inside = {line for line, op in enumerate(section.ops) if _IN[name](op)}
        if name == "layernorm":
            return frozenset(inside - set(fused))
        return frozenset(inside | {line for line, readers in fused.items() if readers <= inside})

    return tuple(RecomputedModule(lines(name), name in _DISCARDED) for name in policy.split("+"))


def module_lines(section: Section, policy: str) -> frozenset[int]:
    """The indices of the ops that are in any of the modules."""
    return frozenset[int]().union(*(module.lines for module in recomputed_modules(section, policy)))


def _fused_norms(section: Section) -> dict[int, set[int]]:
    """The norms that are computed inside the matmuls that read them, with their readers: those that only matmuls read,
    and no projection to latent vectors, which has no norm inside."""
    fused: dict[int, set[int]] = {}
    for line, op in enumerate(section.ops):
        if op.part != "norm":
            continue
        readers = _readers(section, line)
        matmuls = [section.ops[reader] for reader in readers if section.ops[reader].function == "einsum"]
        is_latent = any(matmul.output is not None and matmul.output.name in _LATENT for matmul in matmuls)
        if readers and len(matmuls) == len(readers) and not is_latent:
            fused[line] = readers
    return fused


def _readers(section: Section, line: int) -> set[int]:
    """The ops that read the output of an op, before another op writes to its name."""
    output = section.ops[line].output
    readers: set[int] = set()
    if output is None:
        return readers
    for later, op in enumerate(section.ops[line + 1 :], line + 1):
        if any(array.name == output.name for array in op.inputs):
            readers.add(later)
        if op.output is not None and op.output.name == output.name:
            break
    return readers
