"""What `dscale completion` can be asked."""

from dataclasses import dataclass

from dragonscale.questions.flag import Text

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class CompletionQuestion:
    """A shell."""

    shell: Text = Text("bash, zsh or fish.", value="SHELL", place=True, offers=SHELLS)
