"""What `dscale calc` and `ds.calc` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import SET, SHOW, Several, Text


@dataclass(frozen=True)
class CalcQuestion:
    """One or more expressions, assignments and equations."""

    expression: Text = Text(
        "An expression such as '1e12 FLOP / v6e.bf16', with names of chips, slices, models and closed forms; "
        "'B=64; 2*B' "
        "assigns, and an equation is solved for its unknown.",
        value="EXPR",
        place=True,
    )
    to: Text = Text("The unit of the answer: ms, days, GiB, TFLOP/s, $/h, % …", default="", value="UNIT", group=SHOW)
    source: Text = Text("Use one source's numbers for chips throughout, such as 'book'.", default="", value="SOURCE")
    set: Several = SET.but(about=f"{SET.about} Every chip that the expression names is changed.")
    solve: Text = Text("The letter that an equation is solved for, where several are open.", default="", value="LETTER")
