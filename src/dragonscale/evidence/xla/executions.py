"""How often each computation of a compiled module runs.

The entry runs once. A loop's body runs as often as its trip count says; a fusion, a call or an asynchronous start runs
what it calls each time it runs itself. Which branch of a conditional runs is known only when it runs: its branches are
`UNKNOWN`, unless the caller picks the branch to be counted.
"""

from collections.abc import Mapping

from dragonscale.evidence.xla.call_graph import BRANCHES, callers_first
from dragonscale.evidence.xla.hlo_text import Instruction, Module
from dragonscale.evidence.xla.trip_counts import UNKNOWN, trip_count


def executions(module: Module, picked: Mapping[str, str] | None = None) -> dict[str, int]:
    """How often each computation runs; `UNKNOWN` where the compiler does not say.

    `picked` names a branch for conditionals; that one counts as run each time, the others as never.
    """
    counts = dict.fromkeys(module.computations, 0)
    counts[module.entry.name] = 1
    for name in callers_first(module):
        if counts[name] == 0:
            continue
        for instruction in module.computations[name].instructions:
            for callee, times in _runs(module, name, instruction, picked or {}):
                known = counts[name] >= 0 and times >= 0 and counts[callee] >= 0
                if times:
                    counts[callee] = counts[callee] + counts[name] * times if known else UNKNOWN
    return counts


def _runs(module: Module, where: str, instruction: Instruction, picked: Mapping[str, str]) -> list[tuple[str, int]]:
    """What an instruction runs and how often, each time it runs itself."""
    found = instruction.callees
    if instruction.opcode == "while":
        trips = trip_count(module, where, instruction)
        return [(name, trips if trips == UNKNOWN or role == "body" else trips + 1) for role, name in found]
    runs: list[tuple[str, int]] = []
    for role, name in found:
        branch = picked.get(instruction.name) if role in BRANCHES else name
        runs.append((name, UNKNOWN if branch is None else int(branch == name)))
    return runs
