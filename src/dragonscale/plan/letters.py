"""Letters for the numbers of a plan, so that the functions that give its ledger give it as formulas.

The structure is that of a concrete plan: which mesh axes there are, over which wires they lie, which formats the chip
computes in. Sizes become letters (`dragonscale.physics.formula`): the book's for the model (D, F, N, K, H, V, E), the
names of the mesh axes for their degrees, C for FLOP/s, `W_hbm` for the memory's bandwidth, `W_ici` for both directions
of a torus axis, `W_nvlink` and so on for the links of switches. Constants that were fitted are letters by their names.
"""

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
from msgspec import structs

from dragonscale.models.program import Section
from dragonscale.physics.collectives import Ring
from dragonscale.physics.formula import Formula
from dragonscale.physics.hardware import Slice, Torus
from dragonscale.physics.sharding.placement import Wires

BOOK = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "x": "k", "z": "F_s"}
"""Dims of programs by the book's letters; others keep their names."""


@dataclass
class Letters:
    """Which number each letter stands for. Letters that are `given` other numbers have these instead of the plan's;
    `plain` ones are their numbers alone, which may then be arrays; of `fitted` ones it says what and on what."""

    values: dict[str, float] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    fitted: dict[str, tuple[str, str]] = field(default_factory=dict)

    def new(self, name: str, value: float) -> Any:
        """A letter for a number. The same number under the same name is the same letter; another
        number gets a count."""
        for spelled in itertools.chain((name,), (f"{name}{count}" for count in range(2, 99))):
            if self.values.setdefault(spelled, float(value)) == float(value):
                number = self.given.get(spelled, value)
                return number if self.plain else Formula.named(spelled, number)
        raise AssertionError(f"too many sizes called {name}")

    def constants(self, group: Any, kind: str, what: str, origin: str) -> Any:
        """A group of switches with letters for those of its numbers that were fitted: whole ones are what they say."""
        values = {name: getattr(group, name) for name in group.__struct_fields__}
        fitted = {name: one for name, one in values.items() if isinstance(one, float) and one != int(one)}
        self.fitted |= {f"{kind}_{name}": (f"{kind}.{name}, {what}", origin) for name in fitted}
        return structs.replace(group, **{name: self.new(f"{kind}_{name}", one) for name, one in fitted.items()})


def lettered_section(section: Section, letters: Letters) -> Section:
    """A section with letters for its dims."""
    dims = {name: letters.new(BOOK.get(name, name), size) if size > 1 else size for name, size in section.dims.items()}
    return replace(section, dims=dims)


def lettered_slice(piece: Slice, letters: Letters) -> Slice:
    """A slice with letters for the rates of its chips and links."""
    chip = piece.chip
    matrix = {name: letters.new("C" if name == "bf16" else f"C_{name}", rate) for name, rate in chip.matrix.items()}
    memory = dict(chip.memory)
    for name, own in chip.memory.items():
        if own.bandwidth:
            memory[name] = replace(own, bandwidth=letters.new(f"W_{name}", own.bandwidth))
    if isinstance(chip.network, Torus):
        network: Any = replace(chip.network, link=letters.new("W_ici", 2 * chip.network.link) / 2)
    else:
        named = ((level, letters.new(f"W_{level.name}", level.bandwidth)) for level in chip.network.levels)
        network = replace(chip.network, levels=tuple(replace(level, bandwidth=rate) for level, rate in named))
    dcn = letters.new("W_dcn", chip.dcn) if chip.dcn else chip.dcn
    return replace(piece, chip=replace(chip, matrix=matrix, memory=memory, network=network, dcn=dcn))


def lettered_axes(axes: dict[str, Any], letters: Letters) -> dict[str, Any]:
    """Mesh axes of more than one chip by their names, and those that are given other sizes."""
    found = {}
    for name, size in axes.items():
        one = int(numpy.ravel(size)[0])
        found[name] = letters.new(name, one) if one > 1 or name in letters.given else 1
    return found


def lettered_wires(wires: Wires, piece: Slice, axes: dict[str, Any]) -> Wires:
    """The wires of one plan with letters for the sizes of its axes; of several rings of an axis the first takes what
    the others leave."""
    rings, pods = {}, {}
    for name, found in wires.rings.items():
        parts = ((getattr(ring, part) for part in ("size", "wrap", "share", "axis")) for ring in found)
        several = [Ring(*(float(numpy.ravel(part)[0]) for part in own)) for own in parts]
        several = [ring for ring in several if ring.size > 1]
        pods[name] = int(numpy.ravel(wires.pods[name])[0])
        single, others = pods[name] == 1, math.prod((ring.size for ring in several[1:]), start=1.0)
        if several:
            several[0] = replace(several[0], size=axes[name] / (others * pods[name]))
        elif not single:
            pods[name] = axes[name]
        # an axis of one chip that is given another size has a ring of its own
        rings[name] = tuple(several) or (Ring(axes[name] if single else 1),)
    return Wires(piece, axes, rings, pods, bool(numpy.ravel(wires.possible)[0]), wires.order)
