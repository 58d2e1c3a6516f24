"""How often each computation of a compiled module runs.

The entry runs once. A loop's body runs as often as its trip count says; a fusion, a call or an asynchronous start runs
what it calls each time it runs itself (the matching update and done name the same computation and run nothing).
"""

import json
import re
from collections.abc import Iterator

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Instruction, Module

_CALLED = ("calls", "to_apply", "body", "condition", "true_computation", "false_computation", "branch_computations")
_SHADOWS = re.compile(r"[\w\-]+-(?:done|update)")
UNKNOWN = -1
"""The number of executions where the compiler does not say (a loop or branch that depends on data)."""


def called(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """The computations an instruction runs and how often, each time it runs."""
    if _SHADOWS.fullmatch(instruction.opcode):
        return
    for attribute in _CALLED:
        for name in re.findall(r"%?([\w.\-]+)", instruction.attribute(attribute)):
            if instruction.opcode == "while":
                trips = trip_count(instruction)
                yield name, trips if trips == UNKNOWN or attribute == "body" else trips + 1
            else:
                yield name, UNKNOWN if instruction.opcode == "conditional" else 1


def trip_count(loop: Instruction) -> int:
    """The trip count the compiler found for a loop, or `UNKNOWN`."""
    text = loop.attribute("backend_config").strip().strip("'\"")
    if "known_trip_count" not in text:
        return UNKNOWN
    try:
        return int(json.loads(text)["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"The loop {loop.name} has a trip count this reader cannot read: {shorten(text)}.") from None


def executions(module: Module) -> dict[str, int]:
    """How often each computation runs; `UNKNOWN` where the compiler does not say."""
    counts = dict.fromkeys(module.computations, 0)
    counts[module.entry.name] = 1
    for name in _callers_first(module):
        for instruction in module.computations[name].instructions:
            for callee, times in called(instruction):
                known = counts[name] >= 0 and times >= 0 and counts[callee] >= 0
                if counts[name] != 0:
                    counts[callee] = counts[callee] + counts[name] * times if known else UNKNOWN
    return counts


def _callers_first(module: Module) -> list[str]:
    """Computations in an order where every caller precedes what it calls."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for instruction in module.computations[name].instructions:
            for callee, _ in called(instruction):
                visit(callee)
        order.append(name)

    visit(module.entry.name)
    return order[::-1]
