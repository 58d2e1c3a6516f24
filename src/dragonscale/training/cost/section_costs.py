"""What every section costs in one microbatch: its ledger lines, and its memory.

Plans that differ only in their number of microbatches, or in passes without a gradient, share these. Single plans are
judged again and again along a batch (a slider, a curve, a crossing), so the last few are cached.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.sharding.placement import Wires
from dragonscale.training.cost.section_lines import section_lines
from dragonscale.training.memory.section_memory import SectionMemory, section_memory
from dragonscale.training.plan.setting import PassLine, Setting

# A search judges its finalists one after the other, a slider refits two or three.
MAX_CACHED = 8


@dataclass(frozen=True)
class SectionCosts:
    """By section: the lines and the memory of one microbatch."""

    lines: dict[str, list[PassLine]]
    memory: dict[str, SectionMemory]


def section_costs(setting: Setting, degrees: dict[str, Any], wires: Wires) -> SectionCosts:
    """The costs of every section."""
    lines: dict[str, list[PassLine]] = {}
    memory: dict[str, SectionMemory] = {}
    for section in setting.sections:
        lines[section.name] = section_lines(setting, section, degrees["microbatch"], wires)
        memory[section.name] = section_memory(setting, section, degrees["microbatch"], wires.mesh)
    return SectionCosts(lines, memory)


_CACHE: OrderedDict[tuple[int, ...], tuple[Setting, SectionCosts]] = OrderedDict()
"""By the degrees of a plan, the last used one last. Wires follow from setting and degrees."""


def cached_section_costs(setting: Setting, degrees: dict[str, Any], wires: Wires) -> SectionCosts:
    """The costs of every section for a single plan, from the cache where it was asked for just before."""
    key = tuple(degrees.values())
    # The batch and the passes without a gradient change no cost of one microbatch.
    shared = replace(setting, batch=0, tuning=replace(setting.tuning, passes=0.0))
    cached_setting, costs = _CACHE.pop(key, (None, None))
    if costs is None or cached_setting != shared:
        costs = section_costs(setting, degrees, wires)
    _CACHE[key] = shared, costs
    while len(_CACHE) > MAX_CACHED:
        _CACHE.popitem(last=False)
    return costs
