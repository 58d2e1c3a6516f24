"""What `dscale web` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import SHOW, Several, Switch, Text, Whole


@dataclass(frozen=True)
class WebQuestion:
    """A server of the page on this machine."""

    port: Whole = Whole("The port; 0 takes a free one.", default=8642, value="PORT", group=SHOW)
    host: Text = Text(
        "The address to listen at; without it only this machine can reach the page.",
        default="127.0.0.1",
        value="ADDRESS",
        group=SHOW,
    )
    allow_host: Several = Several(
        "A host name that the page is reached by, such as that of a reverse proxy; may be repeated.",
        default="",
        value="NAME",
        group=SHOW,
    )
    proxy: Text = Text(
        "The address of a reverse proxy, whose x-forwarded-for is believed.", default="", value="ADDRESS", group=SHOW
    )
    workers: Whole = Whole(
        "Processes that answer; as many as there are cores without it, and two at least.",
        default=None,
        value="N",
        group=SHOW,
    )
    offline: Switch = Switch("Never ask the Hugging Face Hub for the config of org/name.", group=SHOW)
    no_browser: Switch = Switch("Do not open the browser.", group=SHOW)
    log: Switch = Switch("Print a line for each request.", group=SHOW)
