"""The questions from public threads: the files are whole, and answers that were graded great stay what they were."""

import contextlib
import io
import re
import shlex
import tomllib

import pytest

from dragonscale.faces.cli import main
from tools.questions import GRADES, PAGE, PARTS, QUESTIONS, Question, page, questions

ROWS = questions()
STILL_SAID = [row for row in ROWS if row.after and row.after.says]
SAMPLE = STILL_SAID[::3]
"""Every third: all of them take two minutes of a core, and the slow tests ask them."""


def test_every_question_has_a_thread_a_truth_and_a_command() -> None:
    assert len(ROWS) >= 120
    assert len({row.id for row in ROWS}) == len(ROWS)
    for part in PARTS:
        for row in tomllib.loads((QUESTIONS / "threads" / f"{part}.toml").read_text(encoding="utf-8"))["question"]:
            assert re.match(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|discussions)/\d+", row["thread"]), row[
                "id"
            ]
            assert row["truth"], row["id"]
            assert row["command"].startswith("dscale "), row["id"]
            assert row["confidence"] in ("sure", "likely", "doubtful"), row["id"]


def test_every_question_was_graded() -> None:
    for row in ROWS:
        assert row.before, row.id
        for answer in filter(None, (row.before, row.after)):
            assert answer.grade in GRADES, row.id
            assert answer.commands, row.id


def test_the_page_is_what_the_grades_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(ROWS)


def said(row: Question) -> str:
    assert row.after
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        main(shlex.split(row.after.commands[0])[1:])
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row.id)
def test_an_answer_goes_on_saying_what_was_graded(row: Question) -> None:
    assert row.after
    text = said(row)
    for words in row.after.says:
        assert words in text


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in STILL_SAID if row not in SAMPLE], ids=lambda row: row.id)
def test_all_answers_go_on_saying_what_was_graded(row: Question) -> None:
    assert row.after
    text = said(row)
    for words in row.after.says:
        assert words in text
