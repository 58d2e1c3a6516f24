"""How engines store the experts of a model: four-bit kernels fill dims up to multiples of their tiles, and some keep
the scales twice.

>>> from dragonscale.serving.iteration.deployment import deploy
>>> gpt = deploy("gpt-oss-120b", "a100:1", "weights=mxfp4,compute=bf16,attention=bf16", "vllm")
>>> layout = expert_layout(gpt)
>>> layout.kernels, round(float(stored_over_plain(layout, 2880, 2880, rows=2880)), 3)
('Marlin', 1.09)
"""

from dragonscale.physics.numbers import Number, ceil_to
from dragonscale.serving.engine.engine_settings import ExpertLayout
from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.engine.legality import architecture
from dragonscale.serving.iteration.deployment import Deployment

EXPERTS = "experts"
VALUE_BYTES = 0.5
SCALE_BYTES = 1 / 32
"""Of a weight in MXFP4: one scale of 8 bits for 32 of them."""


def expert_layout(deployment: Deployment) -> ExpertLayout | None:
    """The layout of a deployment's experts; None where they are stored as the checkpoint has them."""
    engine, chip = deployment.engine, deployment.chip
    wanted = engine.memory.expert_kernels.casefold()
    stored = part_format(deployment.plan, EXPERTS)
    for layout in engine.layouts:
        if not stored.startswith(layout.format):
            continue
        if wanted:
            fits = layout.kernels.casefold() == wanted
        else:
            anywhere = not layout.architectures and not layout.names
            fits = anywhere or chip.kin in layout.names or architecture(chip) in layout.architectures
        if fits:
            return layout
    return None


def stored_over_plain(layout: ExpertLayout, hidden: Number, inner: Number, rows: Number) -> Number:
    """Bytes of a matrix of each rank's `hidden` times `inner` weights over those without the layout. `rows` is the one
    of the two that its products have."""
    padding = ceil_to(hidden, layout.hidden) / hidden * (ceil_to(inner, layout.inner) / inner)
    stored = (VALUE_BYTES + SCALE_BYTES) * padding
    stored = stored + layout.scale_copies * SCALE_BYTES * (ceil_to(rows, layout.scale_rows) / rows)
    return stored / (VALUE_BYTES + SCALE_BYTES)
