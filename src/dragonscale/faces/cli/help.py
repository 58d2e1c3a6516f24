"""Help: one screen for the tool and one for each command, with examples that run and the flags that most lines have;
`--help-all` has every command and every flag, in groups.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonscale.blocks.colour import linked, painted
from dragonscale.commands.questions.flag import GROUPS, Field
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.faces.command import KINDS, Command
from dragonscale.faces.commands import BESIDE, FAMILIES, SHORT

ABOUT = "How a Transformer behaves on TPUs and GPUs, and how to split it over many chips."
MAIN = ("train", "serve", "simulate", "compare", "models", "chips")
"""Commands on the first screen, each with its first example that asks something."""
ENDING = (
    "`dscale COMMAND --help` has the flags and examples; `dscale completion --help` completes them in your shell.",
    "Every answer is JSON with --json; help is text. Answers go to stdout, notes to stderr; colour only to a terminal. "
    "Defaults of your own: dragonscale.toml in the folder or in ~/.config.",
    "Exit codes: 0 ok, 1 a fault of the planner, 2 wrong input, 3 infeasible, 4 target missed, 130 ended by Ctrl-C, "
    "143 by SIGTERM.",
)


def overview(width: int, colour: bool) -> str:
    """The main commands, each with an example."""
    lines = [painted("dscale COMMAND …", "title", colour), "", *textwrap.wrap(ABOUT, width)]
    for name in MAIN:
        command = COMMANDS[name]
        # `dscale models` alone lists what there is: the next one shows more
        example = next(line for line in command.examples if len(line.split()) > 2)
        lines += ["", *_entry(painted(name, "key", colour), len(name), command.about, 10, width)]
        lines.append(f"            {painted(f'`{example}`', '', colour).strip('`')}")
    others = len(COMMANDS) - len(MAIN)
    ending = [
        f"`dscale help all` has the other {others} commands; `dscale COMMAND --help` examples and flags.",
        "Flags and commands of vLLM, SGLang, Megatron, torchtitan, Hugging Face, DeepSpeed and others are read as what "
        "says the same here.",
    ]
    return "\n".join([*lines, "", *_wrapped(ending, width, colour)])


def full_overview(width: int, colour: bool) -> str:
    """All commands by what they are for."""
    lines = [painted("dscale COMMAND …", "title", colour), "", *textwrap.wrap(ABOUT, width)]
    names = max(len(name.split()[0]) for name in COMMANDS) + 2
    for group in KINDS:
        rows = _first_words(group)
        lines += ["", painted(group, "title", colour)] if rows else []
        for name, about in rows:
            lines += _entry(painted(name, "key", colour), len(name), about, names, width)
    return "\n".join([*lines, "", *_wrapped(ENDING, width, colour)])


def _wrapped(texts: Sequence[str], width: int, colour: bool) -> list[str]:
    return [painted(line, "", colour) for text in texts for line in textwrap.wrap(text, min(width, 120))]


def _first_words(group: str) -> list[tuple[str, str]]:
    """Commands of two words (`explain train`) are listed once, by the first; short names of them are not listed."""
    families: dict[str, list[Command[Any, Any]]] = {}
    for command in COMMANDS.values():
        if command.group == group and command.name not in BESIDE:
            families.setdefault(command.name.split()[0], []).append(command)
    rows = []
    for name, several in families.items():
        alone = next((command for command in several if command.name == name), None)
        kinds = ", ".join(command.name.partition(" ")[2] for command in several if " " in command.name)
        about = alone.about if alone else f"{FAMILIES[name]}: {kinds}."
        rows.append((name, f"{about} {SHORT[name]}." if name in SHORT else about))
    return rows


def family_help(name: str, width: int, colour: bool) -> str:
    """The commands behind a first word."""
    several = [command for command in COMMANDS.values() if command.name.startswith(f"{name} ")]
    lines = [painted(f"dscale {name} WHAT …", "title", colour), "", FAMILIES[name] + ".", ""]
    room = max(len(command.name) for command in several) + 2
    for command in several:
        lines += _entry(painted(command.name, "key", colour), len(command.name), command.about, room, width)
    return "\n".join(lines)


def command_help(command: Command[Any, Any], width: int, colour: bool, whole: bool = True) -> str:
    """One command: usage, what it answers, examples, its flags by group. Without the `whole`, of a command with many
    flags those that most lines have, and the names of the others."""
    fields = command.fields()
    flags = [field for field in fields if not field.place]
    must = [f"{field.flag} {field.value}" for field in flags if field.required or field.needed]
    places = [field.value if field.required or field.needed else f"[{field.value}]" for field in fields if field.place]
    usage = " ".join(["dscale", command.name, *places, *must, "[…]"])
    lines = [painted(usage, "title", colour), "", *textwrap.wrap(command.about, width)]
    lines += ["", painted("Examples", "title", colour)]
    lines += [f"  {painted(f'`{example}`', '', colour).strip('`')}" for example in command.examples]
    brief = bool(command.common) and not whole
    room = 20 if brief else 26
    for field in fields:
        if field.place:
            lines += ["", *_entry(painted(field.value, "key", colour), len(field.value), field.about, room, width)]
    if brief:
        by_name = {field.name: field for field in flags}
        lines += ["", painted("Common flags", "title", colour)]
        lines += [line for name in command.common for line in _flag_lines(by_name[name], width, colour, brief=True)]
        names = " ".join(field.flag for field in flags if field.name not in command.common)
        lines += ["", painted(f"Other flags (`dscale {command.name} --help-all`)", "title", colour)]
        lines += textwrap.wrap(names, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    else:
        for group in GROUPS:
            rows = [field for field in flags if field.group == group]
            lines += ["", painted(group, "title", colour)] if rows else []
            lines += [line for field in rows for line in _flag_lines(field, width, colour)]
    page = docs_page(command.page)
    lines += ["", f"More: {linked(f'docs/{command.page}.md', page, colour and bool(page))}"] if command.page else []
    return "\n".join(lines)


def _flag_lines(field: Field[Any, Any], width: int, colour: bool, brief: bool = False) -> list[str]:
    """A flag with its value and what it is about; in brief, its first clause."""
    shown = field.flag if field.switch else f"{field.flag} {field.value}"
    about = _told(field)
    if brief:
        about = re.split(r"(?<=[.?]) (?=[A-Z(])", about, maxsplit=1)[
            0
        ]  # --help-all has what follows the first sentence
    return _entry(painted(shown, "key", colour), len(shown), about, 20 if brief else 26, width)


def docs_page(name: str) -> str:
    """The address of a page of the docs where they are beside the package, as in a clone; none elsewhere."""
    path = Path(__file__).resolve().parents[3] / "docs" / f"{name}.md"
    return path.as_uri() if name and path.is_file() else ""


def _told(field: Field[Any, Any]) -> str:
    about = field.about
    if field.required or field.needed:
        return f"{about} (required)"
    if field.switch or field.default in ("", None) or field.default == ():
        return f"{about} (--no-{field.name.replace('_', '-')} to disable)" if field.default is True else about
    return f"{about} [{field.default}]"


def _entry(shown: str, length: int, about: str, room: int, width: int) -> list[str]:
    """A name and what it is about, side by side where that fits."""
    lines: Sequence[str] = textwrap.wrap(about, max(30, min(width, 120) - room - 4)) or [""]
    indent = " " * (room + 2)
    if length > room - 1:
        return [f"  {shown}", *(indent + line for line in lines)]
    return [f"  {shown}{' ' * (room - length)}{lines[0]}", *(indent + line for line in lines[1:])]
