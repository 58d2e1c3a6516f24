"""What `dscale sweep` and `ds.sweep` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import FILES, SHOW, Several, Switch, Text, Thing, Whole


@dataclass(frozen=True)
class SweepQuestion:
    """A grid of questions to verify, train and serve."""

    grid: Thing = Thing(
        (
            "A TOML file of tables [[verify]], [[train]] and [[serve]] whose values may be lists: every combination "
            "is asked."
        ),
        value="FILE",
        place=True,
        offers="files",
    )
    jobs: Whole = Whole("Processes at once; as many as there are cores without it.", default=0, value="N")
    ray: Text = Text(
        "Run on the Ray cluster at this address (auto, local, ray://host:10001).", default="", value="WHERE"
    )
    retry: Switch = Switch("Ask again what failed before.")
    cache: Switch = Switch("Use what was compiled before, if nothing has changed since.", default=True)
    columns: Several = Several(
        "What --plot draws: a column of the rows, and up to two that it is drawn against (mfu,batch,seq).",
        default="",
        value="NAMES",
        group=SHOW,
    )
    out: Text = Text(
        "Keep the answers here, a line of JSON each; what is in it is not asked again.",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
