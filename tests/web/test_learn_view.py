"""The course on the page: the same problems and verdicts as `dscale learn`, and nothing written."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.web.answers import answer

PROBLEM = "rooflines.time-of-flops"


def asked(panel: str, **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    answer({"view": "learn", "fields": fields, "panels": [panel]}, messages.append)
    return next((one["data"] for one in messages if "panel" in one), messages[-1])


def test_every_chapter_has_problems() -> None:
    chapters = asked("course")["chapters"]
    assert all(one["problems"] for one in chapters)
    assert PROBLEM in [problem["id"] for problem in chapters[0]["problems"]]


def test_a_problem_is_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["learn", PROBLEM, "--seed", "5", "--solution", "--json", "--progress", str(tmp_path / "none.json")])
    told = json.loads(capsys.readouterr().out)
    shown = asked("problem", name=PROBLEM, seed="5", solution=True)
    assert {name: shown[name] for name in told if name != "page"} == {n: v for n, v in told.items() if n != "page"}
    assert shown["hint_count"] >= 2


def test_answers_are_judged_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONSCALE_PROGRESS", str(tmp_path / "learn.json"))
    right = asked("problem", name=PROBLEM, solution=True)["answer"]
    assert asked("problem", name=PROBLEM, answer=right)["right"] is True
    wrong = asked("problem", name=PROBLEM, answer="3s")
    assert wrong["right"] is False
    assert not wrong["solution"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "nowhere"}, "no chapter or problem"),
        ({"name": PROBLEM, "answer": "soon"}, "What you wrote is"),
        ({"name": PROBLEM, "answer": "1" * 500}, "at most 200"),
        ({"name": PROBLEM, "progress": "/etc/passwd"}, "field"),
        ({"name": PROBLEM, "seed": "many"}, "--seed"),
    ],
)
def test_bad_input_is_one_sentence(fields: dict[str, Any], told: str) -> None:
    error = asked("problem", **fields)["error"]
    assert error["kind"] == "input"
    assert told in error["text"]
