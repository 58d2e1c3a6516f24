"""The thin shell round questions: read the flags, ask as the library does, print or write the answer, return its exit
code."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dragonscale.blocks.colour import CHOICES, wants_colour
from dragonscale.blocks.terminal import text_of, width_of
from dragonscale.commands.questions.shared import ALWAYS, TABLES, Output
from dragonscale.errors import Infeasible, InputError, shorten, unknown
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.faces.cli.defaults import with_defaults
from dragonscale.faces.cli.progress import Terminal, say_aside
from dragonscale.faces.cli.table import DIALOGUES
from dragonscale.faces.command import Command
from dragonscale.files import write_all

if TYPE_CHECKING:
    from dragonscale.commands.record import Record


_ENDINGS = {
    "html": ("page", (".html", ".htm"), ".html"),
    "timeline": ("timeline", (".json", ".json.gz"), ".json or .json.gz"),
    "table": ("table", TABLES, ".csv or .md"),
}
"""What a file is, and how its name may end."""


def run_command(command: Command[Any, Any], arguments: Sequence[str]) -> int:
    """Answer one command line: print first, write after, so that no file that fails costs the answer."""
    arguments_read = read_arguments(command.fields(), with_defaults(command, arguments), command.name)
    given = arguments_read.values
    for note in arguments_read.notes:
        say_aside(note)
    output = Output(**{name: given.pop(name) for name in (*command.outputs, *ALWAYS) if name in given})
    _check(output, command)
    question = command.question(**given)
    if command.name in DIALOGUES and not output.json:
        talk = DIALOGUES[command.name]()
        if talk.wants_dialogue(question):
            print(talk.dialogue(question, lambda record: say(record, output)))
            return 0
    with Terminal(command.name) as listener:
        report = command.answer(question, listener)
    if report is None:  # one of several processes of a run: another one tells what came of it
        return 0
    try:
        return emit(report, output)
    finally:  # whoever closes the pipe early (`| head`) still gets the files
        write_files(report, output)


def _check(output: Output, command: Command[Any, Any]) -> None:
    """Refuse what would only fail after the answer has been worked out."""
    if output.chart and output.chart not in command.charts:
        raise unknown(f"chart of `dscale {command.name}` called", output.chart, command.charts)
    if output.chart and not output.plot:
        raise InputError(f"--chart {output.chart} says what --plot draws; add --plot {output.chart}.svg.")
    if output.plot:
        from dragonscale.blocks.charts.chart import check_chart

        check_chart(output.plot)
    named = [("html", output.html), ("timeline", output.timeline), *(("table", one) for one in output.table.split(","))]
    for name, path in named:
        what, endings, shown = _ENDINGS[name]
        stream = name == "timeline" and path.startswith("/dev/")
        if path and not path.lower().endswith(endings) and not stream:
            raise InputError(f"--{name} is {shorten(path)}; the name of a {what} should end in {shown}.")
    if output.color not in CHOICES:
        raise unknown("--color", output.color, CHOICES)
    if output.width is not None and not 40 <= output.width <= 1000:
        raise InputError(f"--width is {output.width}; use 40 to 1000 columns.")
    if output.theme not in ("light", "dark"):
        raise unknown("theme", output.theme, ("light", "dark"))


def emit(report: "Record", output: Output) -> int:
    """Print the answer, and its verification where that was asked for; returns the exit code."""
    compared = _verification(report) if output.verify and output.json else None
    if output.json:
        printed = report.to_dict()
        emit_json(printed if compared is None else {**printed, "verification": compared.to_dict()})
    else:
        say(report, output)
        compared = _verification(report) if output.verify else None
        if compared is not None:
            print()
            say(compared, output)
    return report.exit_code or (compared.exit_code if compared is not None else 0)


def emit_json(record: Any) -> None:
    """Print a record as JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
    # JSON lets some control characters stand as they are: as its escapes they mean the same.
    plain = text if text.replace("\n", "").isprintable() else "".join(map(_json_character, text))
    print(plain)


def _json_character(one: str) -> str:
    if one.isprintable() or one == "\n":
        return one
    return json.dumps(one)[1:-1] if one != "\x7f" else "\\u007f"


def say(report: "Record", output: Output) -> None:
    """An answer as text, as wide and as colourful as stdout takes it."""
    width = output.width or width_of(sys.stdout)
    print(text_of(report.printed(output.explain), width, wants_colour(output.color, sys.stdout)))


def _verification(report: "Record") -> Any:
    """What the compiler makes of the first plan, if it fits or not; nothing where there is none."""
    if not report.rows():
        return None
    if sys.stderr.isatty():
        say_aside("Compiling with XLA; this takes half a minute or more the first time.")
    verify: Any = getattr(report, "verify")  # noqa: B009  only reports with a plan have it
    return verify()


def write_files(report: "Record", output: Output) -> None:
    """Write what was asked for; what cannot be written is one sentence at the end and stops none of the others."""
    writers = {
        "save": report.save,
        "timeline": report.save_timeline,
        "out": report.save_rows,
        "html": report.save_page,
        "plot": lambda path: report.plot(output.chart).save(path, output.theme),
        "table": report.save_table,
    }

    def write(name: str, path: str) -> None:
        say_aside(f"Wrote {path}{writers[name](path) or ''}.")

    asked = [(name, getattr(output, name)) for name in writers if name != "table"]
    asked += [("table", path) for path in output.table.split(",")]
    try:
        write_all(*(partial(write, name, path) for name, path in asked if path))
    except InputError as error:
        if report.exit_code:  # what there is nothing to write of is infeasible, as the answer said
            raise Infeasible(str(error)) from None
        raise
