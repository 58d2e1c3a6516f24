"""Letters for the numbers of a plan, so that the functions that compute its ledger give it as formulas.

The structure is that of a concrete plan: its mesh axes, their wires, the formats that the chip computes in. Sizes
become letters (`dragonscale.physics.formula`): the book's for the model (D, F, N, K, H, V, E), the names of the mesh
axes for their degrees, C for FLOP/s, `W_hbm` for the memory's bandwidth, `W_ici` for both directions of a torus axis,
`W_nvlink` and so on for the links of switches. Constants that were fitted are letters by their names.
"""

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
    """The number that each letter stands for. `given` replaces the plan's numbers of some letters; with `plain` letters
    are plain numbers, which may then be arrays; `fitted` has what a fitted constant is, and what it was fitted on."""

    values: dict[str, float] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    fitted: dict[str, tuple[str, str]] = field(default_factory=dict)

    def new(self, name: str, value: float) -> Any:
        """A letter for a number. The same number under the same name is the same letter; another number gets a count
        (W, W2, W3)."""
        for count in range(1, 99):
            letter = f"{name}{count}" if count > 1 else name
            if self.values.setdefault(letter, float(value)) == float(value):
                number = self.given.get(letter, value)
                return number if self.plain else Formula.named(letter, number)
        raise AssertionError(f"too many sizes called {name}")

    def constants(self, group: Any, kind: str, what: str, origin: str) -> Any:
        """A group of settings with letters for its fitted constants: those that are no whole numbers."""
        letters: dict[str, Any] = {}
        for name in group.__struct_fields__:
            value = getattr(group, name)
            if isinstance(value, float) and value != int(value):
                self.fitted[f"{kind}_{name}"] = (f"{kind}.{name}, {what}", origin)
                letters[name] = self.new(f"{kind}_{name}", value)
        return structs.replace(group, **letters)


def lettered_section(section: Section, letters: Letters) -> Section:
    """A section with letters for its dims."""
    dims: dict[str, Any] = dict(section.dims)
    for name, size in section.dims.items():
        if size > 1:  # a factor of 1 would only lengthen the formulas
            dims[name] = letters.new(BOOK.get(name, name), size)
    return replace(section, dims=dims)


def lettered_slice(slice_: Slice, letters: Letters) -> Slice:
    """A slice with letters for the rates of its chips and links."""
    chip = slice_.chip
    matrix: dict[str, Any] = {}
    for dtype, rate in chip.matrix.items():
        letter = "C" if dtype == "bf16" else f"C_{dtype}"  # the book's C is in bf16
        matrix[dtype] = letters.new(letter, rate)
    memory = dict(chip.memory)
    for name, level in chip.memory.items():
        if level.bandwidth:
            memory[name] = replace(level, bandwidth=letters.new(f"W_{name}", level.bandwidth))
    if isinstance(chip.network, Torus):
        # the book's W is both directions of an axis
        network: Any = replace(chip.network, link=letters.new("W_ici", 2 * chip.network.link) / 2)
    else:
        tiers = [replace(tier, bandwidth=letters.new(f"W_{tier.name}", tier.bandwidth)) for tier in chip.network.levels]
        network = replace(chip.network, levels=tuple(tiers))
    dcn: Any = chip.dcn and letters.new("W_dcn", chip.dcn)
    return replace(slice_, chip=replace(chip, matrix=matrix, memory=memory, network=network, dcn=dcn))


def lettered_axes(axes: dict[str, Any], letters: Letters) -> dict[str, Any]:
    """Letters for the mesh axes of more than one chip, and for those that are given other sizes; 1 for the others."""
    lettered: dict[str, Any] = {}
    for name, size in axes.items():
        degree = int(numpy.ravel(size)[0])
        lettered[name] = 1
        if degree > 1 or name in letters.given:
            lettered[name] = letters.new(name, degree)
    return lettered


def _first(values: Any) -> float:
    """The number of the first plan of a batch."""
    return float(numpy.ravel(values)[0])


def lettered_wires(wires: Wires, slice_: Slice, axes: dict[str, Any]) -> Wires:
    """The wires of one plan with letters for the sizes of its axes. Of several rings of an axis the first has the
    letter's size divided by the sizes of the others."""
    rings: dict[str, tuple[Ring, ...]] = {}
    pods: dict[str, Any] = {}
    for name, batch_rings in wires.rings.items():
        plain: list[Ring] = []
        for ring in batch_rings:
            if _first(ring.size) > 1:
                plain.append(Ring(_first(ring.size), _first(ring.wrap), _first(ring.share), _first(ring.axis)))
        pods[name] = int(_first(wires.pods[name]))
        is_one_pod = pods[name] == 1
        if plain:
            others = math.prod((ring.size for ring in plain[1:]), start=1.0)
            plain[0] = replace(plain[0], size=axes[name] / (others * pods[name]))
        elif not is_one_pod:
            pods[name] = axes[name]
        # an axis of one chip that is given another size is a ring by itself
        rings[name] = tuple(plain) or (Ring(axes[name] if is_one_pod else 1),)
    return Wires(slice_, axes, rings, pods, bool(numpy.ravel(wires.possible)[0]), wires.order)
