"""`dscale`: which command a line is for, and what becomes of bad news."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from dragonscale import errors
from dragonscale.blocks.colour import wants_colour
from dragonscale.blocks.terminal import width_of
from dragonscale.commands.questions.synonyms import command_meant
from dragonscale.errors import FAULT, INFEASIBLE, REFUSED, WRONG_INPUT, Infeasible, NonFiniteCost, sentence_of
from dragonscale.faces.cli.help import command_help, family_help, full_overview, overview
from dragonscale.faces.cli.progress import say_aside
from dragonscale.faces.cli.shell import run_command
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.faces.command import Command
from dragonscale.faces.commands import FAMILIES
from dragonscale.listener import without_numeric_warnings

HELP = ("--help", "-h", "--help-all")
HELP_ALL = ("--help-all", "all")
VERSION = ("--version", "-V", "version")


def run(arguments: list[str]) -> int:
    """Parse and run; bad input becomes one sentence on stderr and exit code 2."""
    _prepare_streams()
    try:
        code = _told(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the answer has read enough
        _silence()
        return 0
    except OSError as error:
        _silence()
        place = (
            f"{errors.shorten(str(error.filename))} cannot be used"
            if error.filename
            else "The answer cannot be printed"
        )
        return _refuse(f"{place}: {error.strerror or error}.")
    return code


def _told(arguments: list[str]) -> int:
    """The exit code of a line, bad news told in a sentence."""
    try:
        with without_numeric_warnings():
            return _run(arguments)
    except REFUSED as error:
        return _refuse(sentence_of(error), INFEASIBLE if isinstance(error, Infeasible) else WRONG_INPUT)
    except NonFiniteCost as error:
        return _refuse(f"{error} Please report it with the command line.", FAULT)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in (*HELP, "help"):
        return _help([word for word in arguments[1:] if word not in HELP_ALL], bool(set(arguments) & set(HELP_ALL)))
    if arguments[0] in VERSION:
        from importlib.metadata import version

        print(version("dragonscale"))
        return 0
    command, rest = find_command(arguments)
    if command is None:
        kinds = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{arguments[0]} ")]
        if kinds and (not rest[1:] or rest[1] in HELP):
            return _help(arguments[:1])
        if kinds:
            raise errors.unknown(f"`dscale {arguments[0]}` of", rest[1], kinds)
        return _other_command(arguments[0], rest[1:])
    flags = rest[: rest.index("--") if "--" in rest else None]
    if any(word in HELP for word in flags):
        return _help(command.name.split(), "--help-all" in flags)
    return run_command(command, rest)


def _other_command(name: str, rest: list[str]) -> int:
    """What a command of other software is here, run; or else the error with all commands that there are."""
    meant = command_meant(name.lower(), rest)
    if meant.command:
        if not set(rest) & set(HELP):
            say_aside(f"`{name}` is read as `dscale {' '.join(meant.command)}`.")
        return _run([*meant.command, *rest])
    if meant.sentence:
        raise errors.InputError(f"There is no command {errors.shorten(name)}. {meant.sentence}")
    raise errors.unknown("command", name, {command.split()[0] for command in COMMANDS})


def _prepare_streams() -> None:
    """Output that always takes what is printed: a closed stream takes it to nowhere, and a character
    that its encoding lacks is shown as an escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before the start (>&-)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _silence() -> None:
    """Send what is still to be printed to nowhere, so that the end of the process is quiet too."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def find_command(arguments: Sequence[str]) -> tuple[Command[Any, Any] | None, list[str]]:
    """The command that a line begins with, of one word or two, and the rest of the line."""
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS and len(arguments) >= words:
            return COMMANDS[name], list(arguments[words:])
    return None, list(arguments)


def _help(arguments: Sequence[str], whole: bool = False) -> int:
    width, colour = width_of(), wants_colour("auto")
    command, _ = find_command(arguments) if arguments else (None, [])
    family = arguments[0] if arguments and arguments[0] in FAMILIES else ""
    several = family and any(name.startswith(f"{family} ") for name in COMMANDS)
    if command is None and several:
        print(family_help(family, width, colour))
    else:
        print(_help_text(command, width, colour, whole))
    return 0


def _help_text(command: Command[Any, Any] | None, width: int, colour: bool, whole: bool) -> str:
    if command is not None:
        return command_help(command, width, colour, whole)
    if whole:
        return full_overview(width, colour)
    return overview(width, colour)


def _refuse(sentence: str, code: int = WRONG_INPUT) -> int:
    say_aside(f"dscale: {sentence}")
    return code
