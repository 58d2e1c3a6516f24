"""What `dscale learn` and `ds.learn` can be asked."""

from dragonscale.app.questions.flag import FILES, SHOW, Question, Switch, Text, Whole


class LearnQuestion(Question):
    """The course, a chapter, or one problem of it; an answer to be judged."""

    name: Text = Text("", "NAME", place=True, offers="lessons")
    """A chapter (rooflines) or a problem (rooflines.time-of-flops); without it, all chapters."""
    seed: Whole = Whole(0, "N")
    """Fresh numbers, the same for the same seed; 0: the problem's own."""
    answer: Text = Text("", "TEXT")
    """Your answer with its unit, such as 1.2ms, 16GB or 240; or an option."""
    hint: Switch = Switch(group=SHOW)
    """Show the hints."""
    solution: Switch = Switch(group=SHOW)
    """Show the worked solution and the answer."""
    list: Switch = Switch(group=SHOW)
    """List the problems instead of asking them."""
    progress: Text = Text("", "FILE", FILES, offers="files")
    """The file that keeps what you solved; a file of your data folder without it."""
