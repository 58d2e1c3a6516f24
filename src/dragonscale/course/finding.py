"""A search by words over what the course and the calculator have: functions by what they give, problems by what they
ask.

>>> [match.name for match in find_by_words("ingress switch bytes")][:2]
['gpus.bytes-through-the-switch', 'switch_traffic']
"""

import inspect
import re
from dataclasses import dataclass

from dragonscale.course.calculator.functions import CLOSED, ONE_LINE, function_of
from dragonscale.course.chapters import all_problems
from dragonscale.errors import InputError

_WORD = re.compile(r"[a-z0-9]+")
# Endings that do not change what a word means here: hops, gathered, sharding.
_ENDING = re.compile(r"(?:ings?|ed|es|s)$")
NAME_WEIGHT = 3
"""A word in a name says more than one in a sentence."""


@dataclass(frozen=True)
class Match:
    """A function of the calculator or a problem of the course: how it is asked for, and what it is about."""

    name: str
    about: str
    command: str


def find_by_words(words: str, count: int = 12) -> list[Match]:
    """Functions and problems that the words are about, the best first: those that have more of the words, and have them
    in their names."""
    wanted = _stems(words)
    if not wanted:
        raise InputError("Give one word or several to search for, such as 'switch bytes'.")
    ranked: list[tuple[int, int, Match]] = []
    for match, text in _searched():
        name_stems, text_stems = _stems(match.name), _stems(text)
        hits = wanted & (name_stems | text_stems)
        if hits:
            weight = len(hits) + NAME_WEIGHT * len(wanted & name_stems)
            ranked.append((len(hits), weight, match))
    ranked.sort(key=lambda row: (-row[0], -row[1]))
    return [match for _, _, match in ranked[:count]]


def _searched() -> list[tuple[Match, str]]:
    """Every function and problem with the text that is searched beside its name."""
    rows: list[tuple[Match, str]] = []
    for name in (*ONE_LINE, *CLOSED):
        function = function_of(name)
        about = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        call = f'dscale calc "{name}({", ".join(inspect.signature(function).parameters)})"'
        rows.append((Match(name, about, call), about))
    for problem in all_problems():
        match = Match(problem.id, problem.title, f"dscale learn {problem.id}")
        rows.append((match, " ".join((problem.title, *problem.cases))))
    return rows


def _stems(text: str) -> set[str]:
    """Words without their endings, in small letters; a name is cut at its dots, dashes and underscores."""
    return {_ENDING.sub("", word) for word in _WORD.findall(text.lower().replace("_", " ").replace("-", " "))}
