"""What `dscale web` can be asked."""

from dataclasses import dataclass

from dragonscale.questions.flag import SHOW, Switch, Text, Whole


@dataclass(frozen=True)
class WebQuestion:
    """A server of the page on this machine."""

    port: Whole = Whole("The port; 0 takes a free one.", default=8642, value="PORT", group=SHOW)
    host: Text = Text(
        "The address to listen at; others than this machine's own are refused without it.",
        default="127.0.0.1",
        value="ADDRESS",
        group=SHOW,
    )
    no_browser: Switch = Switch("Do not open the browser.", group=SHOW)
