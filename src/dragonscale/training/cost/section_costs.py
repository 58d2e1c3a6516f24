"""What every section costs in one microbatch: its lines, and what it holds.

Plans that differ in how many microbatches a step has, or in passes without a gradient, share these. Single plans are
judged again and again along a batch (a slider, a curve, a crossing), so the last few are kept.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.sharding.placement import Wires
from dragonscale.training.cost.lines import costed_section
from dragonscale.training.memory.memory import Held, section_bytes
from dragonscale.training.plan.setting import PassLine, Setting

KEPT = 8
"""Settings whose costs are kept: a search judges its finalists one after the other, a slider refits two or three."""


@dataclass(frozen=True)
class SectionCosts:
    """By section: the lines and the bytes of one microbatch."""

    lines: dict[str, list[PassLine]]
    held: dict[str, Held]


def section_costs(setting: Setting, numbers: dict[str, Any], wires: Wires) -> SectionCosts:
    """The costs of every section, worked out."""
    microbatch, sections = numbers["microbatch"], setting.sections
    lines = {one.name: costed_section(setting, one, microbatch, wires) for one in sections}
    return SectionCosts(lines, {one.name: section_bytes(setting, one, microbatch, wires.mesh) for one in sections})


_LAST: OrderedDict[tuple[int, ...], tuple[Setting, SectionCosts]] = OrderedDict()


def last_section_costs(setting: Setting, numbers: dict[str, Any], wires: Wires) -> SectionCosts:
    """The same for a single plan, whose wires follow from its numbers: from memory where it was asked just before."""
    sizes = tuple(numbers.values())
    here = replace(setting, batch=0, tuning=replace(setting.tuning, passes=0.0))
    there, known = _LAST.pop(sizes, (None, None))
    if known is None or there != here:
        known = section_costs(setting, numbers, wires)
    _LAST[sizes] = here, known
    while len(_LAST) > KEPT:
        _LAST.popitem(last=False)
    return known
