"""What people type who know other software, as it was written down before it was tried (`guesses.toml`)."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli.app import run

GUESSES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("guesses.toml").read_text("utf-8"))["guess"]
SHARE = 0.95
"""The share of them that works, or whose refusal names what to type."""


def outcome(guess: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether a guess does what was written down."""
    code = run(shlex.split(guess["line"]))
    printed = capsys.readouterr()
    said = " ".join(f"{printed.err} {printed.out}".split())
    if "names" in guess:
        return code == 2 and guess["names"] in said
    return code in (0, 3) and guess["works"] in said


def test_guesses_work_or_are_told_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    missed = [guess["line"] for guess in GUESSES if not outcome(guess, capsys)]
    assert len(missed) <= (1 - SHARE) * len(GUESSES), missed
