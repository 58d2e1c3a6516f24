"""What `dscale hlo` and `ds.hlo` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import SHOW, Question, Several, Text, Thing, Whole


class HloQuestion(Question):
    """A shape, an instruction or a program in XLA's HLO, or how to read it."""

    text: Text = Text(value="TEXT|FILE", place=True, offers="files")
    """A file of HLO text (--xla_dump_to, compiled.as_text()) or a folder of dumps; one instruction '%f =
    bf16[8,4]{1,0} fusion(…), …'; a shape 'bf16[4,8]{1,0:T(2,4)(2,1)}'; a note: pipeline, grammar, memories, tiles,
    fusions, scatter; or `example`, a program to try."""
    on: Thing = shared.ON.but(default="", value="CHIP")
    """A chip (v5e, h100, mychip.toml): the time that each op takes at best there."""
    set: Several = shared.SET
    module: Text = Text("", "NAME")
    """Which module of a file or folder with several, by its name."""
    top: Whole = Whole(12, "N", SHOW)
    """How many ops to list."""
