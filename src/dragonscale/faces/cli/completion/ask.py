"""The answer to `dscale completion SHELL`: the script."""

from dragonscale.app.questions.completion import SHELLS, CompletionQuestion
from dragonscale.app.record import Record
from dragonscale.errors import unknown
from dragonscale.faces.cli.completion.bash import bash_script
from dragonscale.faces.cli.completion.fish import fish_script
from dragonscale.faces.cli.completion.offers import all_offers
from dragonscale.faces.cli.completion.zsh import zsh_script
from dragonscale.listener import Listener
from dragonscale.sheets.sheet import Sheet, Verbatim

SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


class Completion(Record):
    """A script for a shell."""

    shell: str
    script: str

    def headline(self) -> str:
        return f"completion for {self.shell}, {len(self.script.splitlines())} lines"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  the script is all there is
        return Sheet((Verbatim(self.script.rstrip("\n")),))


def ask(question: CompletionQuestion, listener: Listener) -> Completion:
    """The script of a shell."""
    if question.shell not in SHELLS:
        raise unknown("shell called", question.shell, SHELLS)
    script = SCRIPTS[question.shell](all_offers())
    return Completion(question.shell, script).came_from(question, listener.notes)
