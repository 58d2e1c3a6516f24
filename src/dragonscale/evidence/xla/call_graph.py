"""Which instruction runs which computation, seen from the computation, and the order that follows from it."""

from dataclasses import dataclass
from functools import lru_cache

from dragonscale.errors import InputError, shorten
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
    state: dict[str, bool] = {}  # False while what it calls is being visited, True after
    waiting = [(module.entry.name, False)]
    while waiting:
        name, done = waiting.pop()
        if done:
            state[name] = True
            order.append(name)
        elif name not in state:
            state[name] = False
            waiting.append((name, True))
            called = [callee for each in module.computations[name].instructions for _, callee in each.callees]
            if any(state.get(callee) is False for callee in called):
                raise InputError(f"The computation {shorten(name)} of the HLO text runs itself, which no program can.")
            waiting += [(callee, False) for callee in reversed(called)]
    return tuple(order[::-1])
