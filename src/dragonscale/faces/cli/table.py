"""Every command of `dscale`: those that answer a question, and the other faces that it starts."""

from functools import partial
from typing import Any

from dragonscale.commands.questions.faces import CompletionQuestion, DoctorQuestion, McpQuestion, WebQuestion
from dragonscale.faces import commands
from dragonscale.faces.command import PLANNING, SHELLS, Command, command


@command(WebQuestion, PLANNING, "web", tool=False)
def web():
    """The same in a browser: a page with every answer drawn, each number with its derivation.

    dscale web
    dscale web --port 9000 --no-browser
    """
    from dragonscale.web.server.ask import ask

    return ask


@command(DoctorQuestion, SHELLS, "start/install", ("explain",), tool=False)
def doctor():
    """What is installed here: versions, extras, devices, caches, and what is missing for what.

    dscale doctor
    """
    from dragonscale.commands.doctor import ask

    return ask


@command(McpQuestion, SHELLS, "agents", tool=False)
def mcp():
    """The planner as tools for agents: a server of the Model Context Protocol on stdin and stdout.

    dscale mcp
    """
    from dragonscale.faces.cli.mcp.server import ask

    return ask


@command(CompletionQuestion, SHELLS, "terminal", tool=False)
def completion():
    """A static script that completes commands, flags and names in your shell; regenerate it after an update.

    dscale completion bash
    dscale completion zsh
    dscale completion fish
    """
    from dragonscale.faces.cli.completion.scripts import ask

    return partial(ask, COMMANDS)


COMMANDS: dict[str, Command[Any, Any]] = {
    **commands.COMMANDS,
    **{row.name: row for row in (web, doctor, mcp, completion)},
}


def _learning():
    from dragonscale.faces.cli import learning

    return learning


DIALOGUES = {"learn": _learning}
"""What talks with a person at a terminal (`wants_dialogue`, `dialogue`), by its command."""
