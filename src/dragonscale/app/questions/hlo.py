"""What `dscale hlo` and `ds.hlo` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import ON, SET, SHOW, Several, Text, Thing, Whole


@dataclass(frozen=True)
class HloQuestion:
    """A shape, an instruction or a program in XLA's HLO, or how to read it."""

    text: Text = Text(
        "A file of HLO text (--xla_dump_to, compiled.as_text()) or a folder of dumps; one instruction '%f = "
        "bf16[8,4]{1,0} fusion(…), …'; a "
        "shape 'bf16[4,8]{1,0:T(2,4)(2,1)}'; a note: pipeline, grammar, memories, tiles, fusions, scatter; or "
        "`example`, a program to try.",
        value="TEXT|FILE",
        place=True,
        offers="files",
    )
    on: Thing = ON.but(
        about="A chip (v5e, h100, mychip.toml): the time that each op takes at best there.", default="", value="CHIP"
    )
    set: Several = SET
    module: Text = Text("Which module of a file or folder with several, by its name.", default="", value="NAME")
    top: Whole = Whole("How many ops to list.", default=12, value="N", group=SHOW)
