"""Which instruction runs which computation, seen from the computation, and the order that follows from it."""

from dataclasses import dataclass
from functools import lru_cache

from dragonscale.evidence.xla.hlo_text import Instruction, Module

BRANCHES = ("true_computation", "false_computation", "branch_computations")


@dataclass(frozen=True)
class Call:
    """The instruction in computation `where` that runs a computation, and in which role."""

    where: str
    instruction: Instruction
    role: str
    branch: int | None = None
    """For a branch of a conditional, the place of its argument among the operands."""


@lru_cache(maxsize=1)
def callers(module: Module) -> dict[str, list[Call]]:
    """Every call of each computation."""
    found: dict[str, list[Call]] = {name: [] for name in module.computations}
    for computation in module.computations.values():
        for instruction in computation.instructions:
            place = 0
            for role, name in instruction.callees:
                place += role in BRANCHES
                found[name].append(Call(computation.name, instruction, role, place if role in BRANCHES else None))
    return found


def only_caller(module: Module, name: str) -> Call | None:
    """The call of a computation that is called from one place only (a loop's condition and body are one place)."""
    found = callers(module)[name]
    places = {(call.where, call.instruction.name) for call in found}
    return found[0] if len(places) == 1 else None


@lru_cache(maxsize=1)
def callers_first(module: Module) -> tuple[str, ...]:
    """The computations that the entry reaches, in an order where every caller precedes what it calls."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for instruction in module.computations[name].instructions:
            for _, callee in instruction.callees:
                visit(callee)
        order.append(name)

    visit(module.entry.name)
    return tuple(order[::-1])
