"""`ds.chips`: what is known of chips and slices, and from where.

>>> import dragonscale as ds
>>> ds.chips("v5e")
<ChipReport: TPU v5e: 197TFLOP/s in bf16, 16GB of HBM>
>>> ds.chips("v5e:8x16").hosts, [axis.wraps for axis in ds.chips("v5e:8x16").axes]
(16, [False, True])
>>> len(ds.chips().chips) >= 20
True
"""

from dragonscale.app.chips.ask import ask
from dragonscale.app.questions.facts import ChipsQuestion
from dragonscale.faces.library.asking import asking

chips = asking(
    "chips",
    ChipsQuestion,
    ask,
    """
    Every chip, one of them with the source of each number, a slice (hosts, rings or tiers, totals), or where a
    tiled array's elements lie.
    """,
)
