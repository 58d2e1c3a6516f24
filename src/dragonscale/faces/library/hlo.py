"""`ds.hlo`: a shape, an instruction or a program of XLA's HLO, read and explained.

>>> import dragonscale as ds
>>> ds.hlo("f32[3,5]{1,0:T(2,2)}").offsets
[[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
>>> op = ds.hlo(
...     "%d = f32[16,128] dot(f32[256,16] %x, f32[128,256] %y), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
... )
>>> op.kind, op.matmul_flops
('matmul', 1048576.0)
"""

from dragonscale.app.hlo.ask import ask
from dragonscale.app.questions.hlo import HloQuestion
from dragonscale.faces.library.asking import asking

hlo = asking(
    "hlo",
    HloQuestion,
    ask,
    """
    A shape, an instruction or a program in XLA's HLO: layouts and tiles, FLOPs and bytes of each op, collectives by group, loops, shapes
    back to global, and on a chip the time of each op at best.
    """,
)
