"""The project's text keeps to the field's words: the table of odd ones, over package, docs and README."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = tomllib.loads(Path(__file__).with_name("odd_words.toml").read_text(encoding="utf-8"))["word"]
KINDS = {".py", ".md", ".toml", ".js", ".txt", ".html", ".css", ".ipynb"}
PAST = "changelog.md"
"""What once was said may be told as it was."""


@cache
def texts() -> dict[str, str]:
    """Everything that a reader meets, by its path."""
    every = [*ROOT.glob("*.md"), *(path for room in ("src", "docs", "examples") for path in (ROOT / room).rglob("*"))]
    kept = [one for one in every if one.suffix in KINDS and one.name.lower() != PAST and one.is_file()]
    return {str(one.relative_to(ROOT)): one.read_text(encoding="utf-8") for one in kept}


def found(odd: str, text: str) -> list[str]:
    return [text[max(one.start() - 20, 0) : one.end() + 20] for one in re.finditer(odd, text, re.I | re.M)]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["say"])
def test_an_odd_word_is_not_said(word: dict[str, str]) -> None:
    said = {path: told for path, text in texts().items() if (told := found(word["odd"], text))}
    assert not said, f"say {word['say']!r} in {said}"


def test_the_list_is_looked_for() -> None:
    assert len(WORDS) >= 18
    assert len(texts()) > 900
    for text in ("54.0% is there (+24.4%), with", "8 are fewer than tensor=9", "Model (needed)", "make it anew"):
        assert any(found(word["odd"], text) for word in WORDS), text
