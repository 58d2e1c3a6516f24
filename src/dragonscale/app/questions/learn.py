"""What `dscale learn` and `ds.learn` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import FILES, SHOW, Switch, Text, Whole


@dataclass(frozen=True)
class LearnQuestion:
    """The course, a chapter, or one problem of it; an answer to be judged."""

    name: Text = Text(
        "A chapter (rooflines) or a problem (rooflines.time-of-flops); without it, all chapters.",
        default="",
        value="NAME",
        place=True,
        offers="lessons",
    )
    seed: Whole = Whole("Fresh numbers, the same for the same seed; 0: the problem's own.", default=0, value="N")
    answer: Text = Text(
        "Your answer with its unit, such as 1.2ms, 16GB or 240; or an option.", default="", value="TEXT"
    )
    hint: Switch = Switch("Show the hints.", group=SHOW)
    solution: Switch = Switch("Show the worked solution and the answer.", group=SHOW)
    list: Switch = Switch("List the problems instead of asking them.", group=SHOW)
    progress: Text = Text(
        "The file that keeps what you solved; a file of your data folder without it.",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
