"""Help: one screen for the tool, one for each command, in groups, with what each value is and examples that run."""

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
ENDING = (
    "`dscale COMMAND --help` has the flags and examples; `dscale completion --help` completes them in your shell.",
    "Every answer is JSON with --json; help is text. Answers go to stdout, notes to stderr; colour only to a terminal. "
    "Defaults of your own: dragonscale.toml in the folder or in ~/.config.",
    "Exit codes: 0 ok, 1 a fault of the planner, 2 wrong input, 3 infeasible, 4 target missed, 130 ended by Ctrl-C, "
    "143 by SIGTERM.",
)


def overview(width: int, colour: bool) -> str:
    """The commands by what they are for."""
    lines = [painted("dscale COMMAND …", "title", colour), "", *textwrap.wrap(ABOUT, width)]
    names = max(len(name.split()[0]) for name in COMMANDS) + 2
    for group in KINDS:
        rows = _first_words(group)
        lines += ["", painted(group, "title", colour)] if rows else []
        for name, about in rows:
            lines += _entry(painted(name, "key", colour), len(name), about, names, width)
    ending = [line for text in ENDING for line in textwrap.wrap(text, min(width, 120))]
    return "\n".join([*lines, "", *(painted(line, "", colour) for line in ending)])


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


def command_help(command: Command[Any, Any], width: int, colour: bool) -> str:
    """One command: usage, what it answers, its flags by group, examples."""
    fields = command.fields()
    must = [f"{field.flag} {field.value}" for field in fields if (field.required or field.needed) and not field.place]
    places = [field.value if field.required or field.needed else f"[{field.value}]" for field in fields if field.place]
    usage = " ".join(["dscale", command.name, *places, *must, "[…]"])
    lines = [painted(usage, "title", colour), "", *textwrap.wrap(command.about, width)]
    for field in fields:
        if field.place:
            lines += ["", *_entry(painted(field.value, "key", colour), len(field.value), field.about, 26, width)]
    for group in GROUPS:
        rows = [field for field in fields if field.group == group and not field.place]
        lines += ["", painted(group, "title", colour)] if rows else []
        for field in rows:
            shown = field.flag if field.switch else f"{field.flag} {field.value}"
            lines += _entry(painted(shown, "key", colour), len(shown), _told(field), 26, width)
    lines += ["", painted("Examples", "title", colour)]
    lines += [f"  {painted(f'`{example}`', '', colour).strip('`')}" for example in command.examples]
    page = docs_page(command.page)
    lines += ["", f"More: {linked(f'docs/{command.page}.md', page, colour and bool(page))}"] if command.page else []
    return "\n".join(lines)


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
