"""The reference of the command line, made from the table of commands: usage, flags by group, examples."""

from typing import Any

from dragonscale.commands.questions.flag import GROUPS, Field, Several
from dragonscale.commands.questions.shared import ALWAYS
from dragonscale.faces.cli.help import ENDING
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.faces.command import KINDS, Command
from dragonscale.faces.commands import FAMILIES

HEAD = """# Which commands and flags are there?

Made from the commands themselves by `python -m tools.build_docs`; change the code, not this page.
[The terminal](terminal.md) says what all commands have in common: notations, colour, defaults, exit codes. `dscale COMMAND --help` prints
what stands here and ends with the command's page.
"""
NEXT = """## Next

- [The library](reference-python.md): the same as functions and records
- [The terminal](terminal.md): notations that all commands read, defaults of your own
- [JSON](json.md): the records that `--json` prints
"""


def cli_reference() -> str:
    """The page: a list of the commands by what they are for, then each of them."""
    parts, listed = [HEAD], []
    for group in KINDS:
        rows = [command for command in COMMANDS.values() if command.group == group]
        listed += rows
        if rows:
            head = f"**{group}**\n\n| command | answers | page |\n|---|---|---|\n"
            parts.append(
                head + "\n".join(f"| {_link(one)} | {cell(one.about)} | {_page(one)} |" for one in rows) + "\n"
            )
    parts.append("\n".join(f"- {line}" for line in ENDING) + "\n")
    parts += [_section(command) for command in listed]
    return "\n".join([*parts, NEXT])


def _page(command: Command) -> str:
    return f"[{command.page.removesuffix('/index').rpartition('/')[2]}]({command.page}.md)" if command.page else ""


def _link(command: Command) -> str:
    return f"[`dscale {command.name}`](#dscale-{command.name.replace(' ', '-')})"


def _section(command: Command) -> str:
    """One command."""
    fields = command.fields()
    lines = [f"## dscale {command.name}", "", command.about, "", "```text", usage(command), "```", ""]
    first = command.name.split()[0]
    if first != command.name and first in FAMILIES:
        lines += [f"One of the commands of `dscale {first}`: {FAMILIES[first]}.", ""]
    for field in fields:
        if field.place:
            lines += [f"`{field.value}`: {cell(field.about)}", ""]
    for group in GROUPS:
        rows = [field for field in fields if field.group == group and not field.place]
        if rows:
            lines += [f"**{group}**", "", "| flag | value | default | |", "|---|---|---|---|"]
            lines += [_row(field) for field in rows] + [""]
    lines += ["```sh", *command.examples, "```", ""]
    if command.page:
        lines += [f"More: {_page(command)}.", ""]
    return "\n".join(lines)


def usage(command: Command) -> str:
    """How the command is typed: what must be given, then that there is more."""
    fields = command.fields()
    places = [field.value if field.required or field.needed else f"[{field.value}]" for field in fields if field.place]
    must = [f"{field.flag} {field.value}" for field in fields if (field.required or field.needed) and not field.place]
    return " ".join(["dscale", command.name, *places, *must, "[…]"])


def _row(field: Field[Any, Any]) -> str:
    value = "" if field.switch else f"`{cell(field.value)}`"
    also = f" Also {', '.join(f'`{one}`' for one in field.also)}." if field.also else ""
    many = " May be repeated." if isinstance(field, Several) and "repeated" not in field.about else ""
    return f"| `{field.flag}` | {value} | {_default(field)} | {cell(field.about)}{many}{also} |"


def _default(field: Field[Any, Any]) -> str:
    if field.required or field.needed:
        return "needed"
    if field.default is None or field.default is False or field.default in ("", ()):
        return ""
    return (
        f"on (`{field.flag.replace('--', '--no-', 1)}`)" if field.default is True else f"`{cell(str(field.default))}`"
    )


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def undescribed() -> list[str]:
    """Flags and commands without a word about them."""
    named = [name for name, command in COMMANDS.items() if not command.about or not command.examples]
    return named + [
        f"{command.name} {field.flag}"
        for command in COMMANDS.values()
        for field in command.fields()
        if not field.about or (field.name not in ALWAYS and not field.switch and not field.value)
    ]
