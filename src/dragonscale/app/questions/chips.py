"""What `dscale chips` and `ds.chips` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import Text, Thing


@dataclass(frozen=True)
class ChipsQuestion:
    """Every chip, one of them, a slice, or where a tiled array's elements lie."""

    name: Thing = Thing(
        "A chip's name, alias or TOML file; or a slice, such as v5e:8x16. All chips without it.",
        default="",
        value="NAME",
        place=True,
        offers="slices",
    )
    source: Text = Text("Use one source's numbers throughout, such as 'book'.", default="", value="SOURCE")
    layout: Text = Text("Where a tiled array's elements lie: 'f32[3,5]{1,0:T(2,2)}'.", default="", value="ARRAY")
