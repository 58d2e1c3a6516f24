"""An iteration with letters in place of its sizes, so that its ledger consists of formulas.

The structure is that of a concrete deployment: which mesh axes there are, over which links they run, which formats the
chip computes in. Letters are those of every plan (`dragonscale.plan.letters`). B sequences decode or B prompts are
prefilled, S is the tokens of a sequence including the new one, T the new tokens of a prompt, HBM the memory of a chip.

>>> from dragonscale.serving.iteration.deployment import deploy
>>> from dragonscale.serving.iteration.iteration import decode
>>> from dragonscale.serving.iteration.phases import iteration_cost
>>> real, step = deploy("llama3-8b", "v5e:2x2"), decode(64, 2000)
>>> cost = iteration_cost(*lettered_iteration(real, step, Letters()))
>>> line = next(line for line in cost.lines if line.what == "U+G")
>>> print(line.flops.expr, "FLOPs;", line.hbm_bytes.expr, "bytes")
4*B*D*F/tensor FLOPs; 4*D*F/tensor bytes
>>> round(cost.lower.value, 9) == round(float(iteration_cost(real, step).lower[0]), 9)
True
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dragonscale.models.program import Section
from dragonscale.physics.kernels import KernelProfile
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.letters import Letters, lettered_axes, lettered_section, lettered_slice, lettered_wires
from dragonscale.serving.iteration.deployment import Deployment, shared
from dragonscale.serving.iteration.iteration import Iteration


@dataclass(frozen=True, kw_only=True)
class LetteredDeployment(Deployment):
    """A deployment with letters for its sizes, in the structure of `origin`, the real one: letters do not tell which
    axes have one chip, or which dims divide."""

    origin: Deployment
    lettered_axes: dict[str, Any]
    lettered_sections: tuple[Section, ...]

    readings = shared("readings")
    axis_sizes = shared("axis_sizes")

    @cached_property
    def axes(self) -> dict[str, Any]:
        """Sizes of the mesh axes by name."""
        return self.lettered_axes

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The model's sections."""
        return self.lettered_sections

    @cached_property
    def kernels(self) -> KernelProfile:
        """The chip's kernel profile, with letters for the chip's rates."""
        return replace(self.origin.kernels, chip=self.chip)

    @cached_property
    def wires(self) -> Wires:
        """The physical links of each mesh axis."""
        return lettered_wires(self.origin.wires, self.piece, self.axes)

    @cached_property
    def timed(self) -> bool:
        """False: profiles consist of tiles and waves, so letters have only bounds."""
        return False


def lettered_iteration(deployment: Deployment, step: Iteration, letters: Letters) -> tuple[Deployment, Iteration]:
    """The same deployment and iteration with letters for their numbers; there are only bounds."""
    axes = lettered_axes(deployment.axes, letters)
    chips = lettered_slice(deployment.piece, letters)
    hbm = replace(chips.chip.hbm, visible=letters.new("HBM", deployment.chip.visible))
    chips = replace(chips, chip=replace(chips.chip, memory={**chips.chip.memory, "hbm": hbm}))
    lettered = LetteredDeployment(
        model=deployment.model,
        piece=chips,
        plan=replace(deployment.plan, pipe=axes["pipe"]),
        launched_engine=deployment.launched_engine,
        transport=deployment.transport,
        origin=deployment,
        lettered_axes=axes,
        lettered_sections=tuple(_lettered_sections(deployment, letters)),
    )
    return lettered, _lettered_step(step, letters)


def _lettered_sections(deployment: Deployment, letters: Letters) -> Iterator[Section]:
    """The model's sections with letters for their dims and their number of layers."""
    repeated = [section.name for section in deployment.sections if section.repeat > 1]
    for section in deployment.sections:
        name = "L" if len(repeated) == 1 else f"L_{section.name}"
        repeat: Any = letters.new(name, section.repeat) if section.repeat > 1 else 1
        yield replace(lettered_section(section, letters), repeat=repeat)


def _lettered_step(step: Iteration, letters: Letters) -> Iteration:
    sizes: dict[str, Any] = {}
    if step.decodes:
        # S counts the new token, `keys` does not
        sizes = {"decodes": letters.new("B", step.decodes), "keys": letters.new("S", step.keys + 1) - 1}
    if step.prompts:
        sizes["prompts"] = letters.new("P" if step.decodes else "B", step.prompts)
        sizes["tokens"] = letters.new("T", step.tokens)
    if step.past:
        sizes["past"] = letters.new("S", step.past)
    return replace(step, **sizes)
