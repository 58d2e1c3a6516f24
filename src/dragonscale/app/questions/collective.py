"""What `dscale collective` and `ds.collective` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import ON, SET, Real, Several, Switch, Text, Thing, Whole
from dragonscale.app.questions.shard import MESH

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "send", "gather")
KIND = Text(
    "all_gather, reduce_scatter, all_reduce, all_to_all or permute; send (--from, --to) or gather (--to).",
    value="KIND",
    place=True,
    offers=KINDS,
)
BYTES = Text(
    "Bytes of the whole array as the axes' chips see it, such as 34MB, or an array, bf16[4096, 65536].",
    value="BYTES",
    place=True,
)
PLACE = ON.but(about="A slice (v5e:8x16, h100:64), or with --mesh a chip.")
AXIS = Text("Mesh axes: X, XY or data,fsdp; all of them without it.", default="", value="AXES")
ONE_WAY = Switch("Send around rings in one direction only.")
IN_NETWORK = Switch("Let switches add (SHARP, NVLS).")
FILLED = Real("Part of an AllToAll's pieces that are not empty.", default=1.0, value="PART")
PICKS = Whole("Experts that a token picks: fills that part of an AllToAll.", default=None, value="N")


@dataclass(frozen=True)
class CollectiveQuestion:
    """One collective over mesh axes of a slice, or one message between its chips."""

    kind: Text = KIND
    size: Text = BYTES
    on: Thing = PLACE
    axis: Text = AXIS
    mesh: Thing = MESH
    set: Several = SET
    one_way: Switch = ONE_WAY
    in_network: Switch = IN_NETWORK
    filled: Real = FILLED
    picks: Whole = PICKS
    from_chip: Text = Text("The chip that sends, such as 0,0.", default="", value="PLACE", dash="--from")
    to_chip: Text = Text("The chip that receives, such as 3,3.", default="", value="PLACE", dash="--to")
