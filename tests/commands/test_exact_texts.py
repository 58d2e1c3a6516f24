"""What commands print, to the letter: every cell of their sheets, with the colours of some.

A file of `texts` is a command line, what it prints (escape characters as ␛), its notes and its exit code. After a
change of wording or numbers that is meant, `python -m tests.commands.test_exact_texts` writes the files anew; what
differs is then to be read.
"""

import contextlib
import io
import shlex
from pathlib import Path

import pytest

from dragonscale.faces.cli import main

TEXTS = sorted(Path(__file__).parent.joinpath("texts").glob("*.txt"))
PROMPT = "$ dscale "


def printed(line: str) -> str:
    """A command line and what it prints."""
    output, notes = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(notes):
        code = main(shlex.split(line))
    shown = [text.rstrip() for text in output.getvalue().replace("\x1b", "␛").splitlines()]
    return "\n".join([PROMPT + line, *shown, "--- notes", *notes.getvalue().splitlines(), f"--- exit {code}", ""])


def command_line(path: Path) -> str:
    """The command whose output a file holds."""
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix(PROMPT)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_it_prints_what_it_printed(path: Path) -> None:
    assert printed(command_line(path)) == path.read_text(encoding="utf-8")


if __name__ == "__main__":
    for text_file in TEXTS:
        text_file.write_text(printed(command_line(text_file)), encoding="utf-8")
