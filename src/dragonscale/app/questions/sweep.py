"""What `dscale sweep` and `ds.sweep` can be asked."""

from dragonscale.app.questions.flag import FILES, SHOW, Question, Several, Switch, Text, Thing, Whole


class SweepQuestion(Question):
    """A grid of questions to verify, train and serve."""

    grid: Thing = Thing(value="FILE", place=True, offers="files")
    """A TOML file of tables [[verify]], [[train]] and [[serve]] whose values may be lists: every combination is
    asked."""
    jobs: Whole = Whole(0, "N")
    """Processes at once; as many as there are cores without it."""
    ray: Text = Text("", "WHERE")
    """Run on the Ray cluster at this address (auto, local, ray://host:10001)."""
    retry: Switch = Switch()
    """Ask again what failed before."""
    cache: Switch = Switch(default=True)
    """Use what was compiled before, if nothing has changed since."""
    columns: Several = Several("", "NAMES", SHOW)
    """What --plot draws: a column of the rows, and up to two that it is drawn against (mfu,batch,seq)."""
    out: Text = Text("", "FILE", FILES, offers="files")
    """Keep the answers here, a line of JSON each; what is in it is not asked again."""
