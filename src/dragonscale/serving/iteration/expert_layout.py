"""How engines store the experts of a model: four-bit kernels pad dims to multiples of their tiles, and some keep a
second copy of the scales.

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
# Of a weight in MXFP4 (OCP Microscaling): 4 bits, and one scale of 8 bits for 32 weights.
VALUE_BYTES = 0.5
SCALE_BYTES = 1 / 32


def expert_layout(deployment: Deployment) -> ExpertLayout | None:
    """The layout of a deployment's experts; None if they are stored as in the checkpoint."""
    engine, chip = deployment.engine, deployment.chip
    # kernels that the launch names win over the usual ones of the chip
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
    """Stored bytes of a matrix of `hidden` times `inner` weights (one rank's) over its bytes without the layout.

    `rows` is whichever of the two is its output dim, along which scales are copied.
    """
    padding = ceil_to(hidden, layout.hidden) / hidden * (ceil_to(inner, layout.inner) / inner)
    stored = (VALUE_BYTES + SCALE_BYTES) * padding
    stored = stored + layout.scale_copies * SCALE_BYTES * (ceil_to(rows, layout.scale_rows) / rows)
    return stored / (VALUE_BYTES + SCALE_BYTES)
