"""What `dscale web`, `dscale doctor`, `dscale mcp` and `dscale completion` can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import SHOW, Question, Several, Switch, Text, Whole

SHELLS = ("bash", "zsh", "fish")


class CompletionQuestion(Question):
    """A shell."""

    shell: Text = Text(value="SHELL", place=True, offers=SHELLS)
    """bash: send what is printed to ~/.local/share/bash-completion/completions/dscale, or write `source <(dscale
    completion bash)` into ~/.bashrc. zsh: to ~/.zfunc/_dscale, with fpath+=(~/.zfunc) before compinit in ~/.zshrc.
    fish: to ~/.config/fish/completions/dscale.fish."""


class DoctorQuestion(Question):
    """What is installed here, and what is missing for what."""


class McpQuestion(Question):
    """A server on stdin and stdout."""


class WebQuestion(Question):
    """A server of the page on this machine."""

    port: Whole = shared.PORT.but(group=SHOW)
    host: Text = shared.HOST.but(group=SHOW)
    allow_host: Several = Several("", "NAME", SHOW)
    """A host name that the page is reached by, such as that of a reverse proxy; may be repeated."""
    proxy: Text = Text("", "ADDRESS", SHOW)
    """The address of a reverse proxy, whose x-forwarded-for is believed."""
    workers: Whole = Whole(None, "N", SHOW)
    """Processes that answer; as many as there are cores without it, and two at least."""
    offline: Switch = Switch(group=SHOW)
    """Never ask the Hugging Face Hub for the config of org/name."""
    no_browser: Switch = Switch(group=SHOW)
    """Do not open the browser."""
    verbose: Switch = shared.VERBOSE.but()
    """Print a line for each request."""
