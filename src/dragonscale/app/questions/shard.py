"""What `dscale shard` and `ds.shard` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import ON, SET, SHOW, WHERE, Several, Switch, Text, Thing, Whole
from dragonscale.app.questions.roofline import SIZES

MESH = Thing(
    "Mesh axes, slowest first, such as X=4,Y=8; a slice's own axes without it.", default="", value="AXES", group=WHERE
)
PLACE = ON.but(about="A chip (v5e) or a slice (v5p:8x16x16, h100:64) for times.", default="")


@dataclass(frozen=True)
class ShardQuestion:
    """A sharded einsum, a chain of them, or a reshard."""

    expression: Text = Text(
        "Such as 'A[I_X, J] @ B[J_X, K] -> C[I, K]', a chain 'In[B_X, D] · W1[D, F] · W2[F, D] -> Out[B_X, D]', a "
        "reshard 'A[I_X, J] -> A[I, J_X]', or a layout 'A[I_XY, J]': what each chip holds.",
        value="EXPR",
        place=True,
    )
    mesh: Thing = MESH
    on: Thing = PLACE
    set: Several = SET
    sizes: Thing = SIZES
    alternatives: Whole = Whole("How many ways to show for each einsum.", default=3, value="N", group=SHOW)
    backward: Switch = Switch("Show the backward pass too.", default=True, group=SHOW)
