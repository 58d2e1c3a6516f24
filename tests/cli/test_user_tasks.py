"""Tasks of users, each by the one command that someone with the docs types first: its answer says what was asked."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli import main

TASKS = tomllib.loads(Path(__file__).with_name("user_tasks.toml").read_text(encoding="utf-8"))["task"]


def lacks(task: dict[str, Any], code: int, text: str) -> str:
    """What is missing from an answer; empty where nothing is."""
    if code != task.get("code", 0):
        return f"ends with {code}: {text[-300:]}"
    return "; ".join(f"no {word!r}" for word in task["words"] if not re.search(word, text))


@pytest.mark.parametrize(
    "task",
    [pytest.param(one, id=one["asked"], marks=[pytest.mark.slow] * one.get("slow", False)) for one in TASKS],
)
def test_the_first_command_answers(task: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(shlex.split(task["command"]))
    shown = capsys.readouterr()
    assert not lacks(task, code or 0, f"{shown.out}\n{shown.err}")


def test_there_are_enough_and_a_wrong_answer_is_seen() -> None:
    assert len(TASKS) >= 40
    assert lacks({"words": ["MFU"]}, 0, "no such word")
    assert lacks({"words": []}, 3, "")
    assert not lacks({"words": ["MFU"], "code": 4}, 4, "MFU 40%")
