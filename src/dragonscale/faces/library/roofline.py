"""`ds.roofline`: how long an operation takes at best, and what bounds it.

>>> import dragonscale as ds
>>> found = ds.roofline("bf16[B,8192] @ bf16[8192,28672]", on="v5e", sizes={"B": 64})
>>> found.bound_by, round(found.lower_s * 1e6), round(found.crossovers[0].value)
('hbm', 579, 250)
>>> ds.roofline("attention(B=8, T=1, S=8192, N=64, K=8, H=128)", on="h100").bound_by
'hbm'
>>> ds.roofline("1e15FLOP", on="v5e")
<RooflineReport: 1PFLOP in bf16 on v5e: 5.08s at best, bound by compute>
"""

from dragonscale.app.questions.operations import RooflineQuestion
from dragonscale.app.roofline.ask import ask
from dragonscale.faces.library.asking import asking

roofline = asking(
    "roofline",
    RooflineQuestion,
    ask,
    """
    How long an operation takes at best on one chip, what bounds it, and where that changes.

    Returns a `RooflineReport`: `.resources` with the time of each, `.lower_s` and `.upper_s`, `.bound_by`,
    `.crossovers`, and where a size is left open `.samples` over it.
    """,
)
