"""Questions of the book's kind, each by the one command that a reader of the docs types first: its answer is there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from dragonscale.faces.cli import main

FILES = ("first_tries.toml", "more_tries.toml")
QUESTIONS = {name: tomllib.loads(Path(__file__).with_name(name).read_text())["question"] for name in FILES}
LEAST = 60
AMOUNT = re.compile(r"(?<![\w.])\$?([0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) ?([a-zA-Zµ]+(?:/s)?)?")
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24, "B": 1e9}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


def numbers(text: str, unit: str) -> list[float]:
    """Every number of an answer that is in this unit, in base units; a bare count may be followed by any word."""
    found: list[float] = []
    for digits, word in AMOUNT.findall(text):
        value = float(digits.replace(",", ""))
        if unit == "s":
            found += [value * TIMES[word]] if word in TIMES else []
        elif unit:
            prefix = word.removesuffix(unit)
            found += [value * PREFIXES[prefix]] if word.endswith(unit) and prefix in PREFIXES else []
            found += [value] if unit == "B" and word == "bytes" else []
        else:
            found += [value, *([value * PREFIXES[word]] if word in PREFIXES else [])]
    return found


def lacks(question: dict[str, str], text: str) -> str:
    """What an answer does not say; empty where it says all."""
    words = question.get("words", "")
    if words not in " ".join(text.split()):
        return f"no {words!r}"
    if "answer" not in question:
        return ""
    wanted = float(eval(question["answer"], {"__builtins__": {}}))
    close = any(abs(one - wanted) <= 6e-3 * abs(wanted) for one in numbers(text, question.get("unit", "")))
    return "" if close else f"no {wanted:.6g} {question.get('unit', '')}"


@pytest.mark.parametrize("name", FILES)
def test_the_first_command_answers(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert len(QUESTIONS[name]) >= LEAST
    assert len({question["command"] for question in QUESTIONS[name]}) > LEAST - 5
    missed: list[str] = []
    for question in QUESTIONS[name]:
        assert "answer" in question or "words" in question
        main(shlex.split(question["command"]))
        shown = capsys.readouterr()
        if told := lacks(question, f"{shown.out}\n{shown.err}"):
            missed.append(f"{question['command']}: {told}")
    assert not missed, "\n".join(missed)


def test_a_wrong_number_is_not_found() -> None:
    assert lacks({"answer": "1.5e-3", "unit": "s"}, "took 1.5ms") == ""
    assert lacks({"answer": "1.6e-3", "unit": "s"}, "took 1.5ms")
    assert lacks({"answer": "1.5e9", "unit": "B"}, "1.5GB/s")
    assert lacks({"answer": "1.5e9", "unit": "B/s"}, "1.5GB/s") == ""
    assert lacks({"words": "yes"}, "no")
