"""An iteration on letters, so that the ledger of its numbers is one of formulas; or with other numbers in their place.

The structure is that of a concrete deployment: which mesh axes there are, over which wires they lie, which formats the
chip computes in. Letters are those of every plan (`dragonscale.plan.letters`); B sequences decode or B prompts are
prefilled, S is the tokens that a sequence holds, the new one included, T the new tokens of a prompt, HBM the memory of
a chip.

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
from dataclasses import replace
from typing import Any

from dragonscale.models.program import Section
from dragonscale.plan.letters import Letters, lettered_axes, lettered_section, lettered_slice, lettered_wires
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration


def lettered_iteration(deployment: Deployment, step: Iteration, letters: Letters) -> tuple[Deployment, Iteration]:
    """The same deployment and iteration with letters for their numbers. There are bounds only: profiles are made of
    tiles and waves."""
    axes = lettered_axes(deployment.axes, letters)
    piece = lettered_slice(deployment.piece, letters)
    hbm = replace(piece.chip.hbm, visible=letters.new("HBM", deployment.chip.visible))
    piece = replace(piece, chip=replace(piece.chip, memory={**piece.chip.memory, "hbm": hbm}))
    found = replace(deployment, piece=piece, plan=replace(deployment.plan, pipe=axes["pipe"]))
    # what a deployment works out for itself is given here, so that letters take the place of its numbers
    vars(found).update(
        axes=axes,
        sections=tuple(_lettered_sections(deployment, letters)),
        readings=deployment.readings,
        kernels=replace(deployment.kernels, chip=piece.chip),
        wires=lettered_wires(deployment.wires, piece, axes),
        axis_sizes=deployment.axis_sizes,
        timed=False,
    )
    return found, _lettered_step(step, letters)


def _lettered_sections(deployment: Deployment, letters: Letters) -> Iterator[Section]:
    repeated = [section.name for section in deployment.sections if section.repeat > 1]
    for section in deployment.sections:
        name = "L" if len(repeated) == 1 else f"L_{section.name}"
        repeat: Any = letters.new(name, section.repeat) if section.repeat > 1 else 1
        yield replace(lettered_section(section, letters), repeat=repeat)


def _lettered_step(step: Iteration, letters: Letters) -> Iteration:
    found: dict[str, Any] = {}
    if step.decodes:
        found = {"decodes": letters.new("B", step.decodes), "keys": letters.new("S", step.keys + 1) - 1}
    if step.prompts:
        found["prompts"] = letters.new("P" if step.decodes else "B", step.prompts)
        found["tokens"] = letters.new("T", step.tokens)
    if step.past:
        found["past"] = letters.new("S", step.past)
    return replace(step, **found)
