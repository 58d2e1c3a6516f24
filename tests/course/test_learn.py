"""`dscale learn`: asked, answered, remembered; alone and in a dialogue."""

import json
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.commands.learn import ProblemReport, answer_text
from dragonscale.commands.questions.facts import LearnQuestion
from dragonscale.course.chapters import all_problems
from dragonscale.course.progress import read_progress
from dragonscale.course.variants import variant
from dragonscale.faces.cli import main
from dragonscale.faces.cli.learning import dialogue
from dragonscale.faces.cli.table import COMMANDS
from tests.course.test_problems import written_out

PROBLEM = next(one for one in all_problems() if not variant(one).posed.options)
POSED = variant(PROBLEM).posed
RIGHT = written_out(POSED, float(POSED.answer))
WRONG = written_out(POSED, POSED.traps[0].value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "learn.json"


def learn(file: Path, *words: str) -> int:
    return main(["learn", *words, "--progress", str(file)])


def test_an_answer_is_judged_and_remembered(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn(file, PROBLEM.id, "--answer", WRONG) == 4
    told = capsys.readouterr().out.replace("\n", " ")
    assert POSED.traps[0].why in told
    assert POSED.steps[-1] not in told
    assert learn(file, PROBLEM.id, "--answer", RIGHT) == 0
    assert "Right." in capsys.readouterr().out
    tally = read_progress(file).tally(PROBLEM.id)
    assert (tally.right, tally.wrong, tally.seeds) == (1, 1, (0,))
    learn(file, PROBLEM.chapter)
    assert "1 of" in capsys.readouterr().out


def test_json_keeps_the_answer_to_itself(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn(file, PROBLEM.id, "--json", "--seed", "3")
    asked = json.loads(capsys.readouterr().out)
    assert asked["value"] is None
    assert not asked["solution"]
    assert not asked["answer"]
    learn(file, PROBLEM.id, "--json", "--solution", "--hint")
    solved = json.loads(capsys.readouterr().out)
    assert solved["value"] == POSED.answer
    assert solved["hints"] == list(POSED.hints)
    assert not file.exists(), "looking is not solving"


def test_looking_needs_no_progress_and_a_problem_can_be_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "learn.json"
    other.write_text("my notes")
    assert learn(other, PROBLEM.id, "--hint") == 0
    capsys.readouterr()
    assert learn(tmp_path / "none.json", PROBLEM.id, "--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["chapter"] == PROBLEM.chapter


def test_a_name_of_two_chapters_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [one.name for one in all_problems()]
    twice = next(name for name in names if names.count(name) > 1)
    assert learn(file, twice) == 2
    assert "Several chapters" in capsys.readouterr().err


def test_the_examples_of_the_help_are_of_the_course() -> None:
    ids = {one.id for one in all_problems()} | {one.chapter for one in all_problems()}
    named = {line.split()[2] for line in COMMANDS["learn"].examples if len(line.split()) > 2}
    assert named
    assert named <= ids


def test_the_library_asks_the_same(file: Path) -> None:
    report = ds.learn(PROBLEM.id, answer=RIGHT, progress=str(file))
    assert isinstance(report, ProblemReport)
    assert report.right
    assert report.answer == answer_text(POSED)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rooflnes"], "did you mean 'rooflines'"),
        (["rooflines", "--answer", "3"], "about one problem"),
        ([PROBLEM.id, "--answer", "ten of them"], "What you wrote is"),
        ([PROBLEM.id, "--seed", "-3"], "whole number"),
        (["nowhere.at-all"], "There is no chapter"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], told: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn(file, *words) == 2
    assert told in capsys.readouterr().err


def test_a_file_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "learn.json"
    for text in ("my notes", '{"mine": 1}', '{"version": 1, "problems": {"a": {"right": -3}}}'):
        other.write_text(text)
        assert learn(other, PROBLEM.id, "--answer", RIGHT) == 2
        assert "not a progress file" in capsys.readouterr().err
        assert other.read_text() == text
    other.write_text("")
    assert learn(other, PROBLEM.id, "--answer", RIGHT) == 0


def test_a_dialogue(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = iter(["h", "h", "h", "h", "", "what?", WRONG, "v", "s"])
    question = LearnQuestion(PROBLEM.id, progress=str(file))
    report = dialogue(question, lambda record: print(record.sheet()), lambda _: next(typed))
    told = capsys.readouterr().out
    assert all(hint in told for hint in POSED.hints)
    assert "no more hints" in told
    assert POSED.traps[0].why in told
    assert variant(PROBLEM, 1).posed.steps[-1] in told
    assert "problems solved" in report
    assert read_progress(file).tally(PROBLEM.id).wrong == 1


def test_a_dialogue_goes_through_a_chapter_and_ends_with_the_input(file: Path) -> None:
    asked: list[str] = []

    def read(_: str) -> str:
        if len(asked) > 2:
            raise EOFError
        return "n"

    def say(record: object) -> None:
        asked.append(str(getattr(record, "problem", "")))

    dialogue(LearnQuestion(PROBLEM.chapter, progress=str(file)), say, read)
    assert len(set(asked)) == 3
