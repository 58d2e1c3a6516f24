"""A text cut into words: numbers with their units, names of chips, slices and models, letters, signs.

Names hold signs that are also arithmetic (`llama3-70b`, `v5p:8x16x16`), so known ones are recognised first, the longest
that fits.
"""

import re
from dataclasses import dataclass, field

from dragonscale.course.calculator.measure import Measure, checked
from dragonscale.course.calculator.tables import TABLES
from dragonscale.course.calculator.unit_words import LONE, PREFIXES, WORDS, find_unit
from dragonscale.errors import InputError, shorten
from dragonscale.models.catalogue import is_preset
from dragonscale.physics.hardware.catalogue import is_chip

LONGEST = 4000
MOST_WORDS = 600
_BYTES_FROM = 1e5
"""Nobody counts so many billions: 163840B is meant as bytes."""
_SIGN = re.compile(r"\*\*|==|>=|<=|[-+*/^()\[\],=<>;.·×⋅−÷≥≤²³]")
_NUMBER = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9]+|\.(?![A-Za-z]))?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_UNIT = re.compile(r"[A-Za-zµμ]+")
_PER = re.compile(r"/([A-Za-zµμ]+)(?![\w.(:]|-[0-9])")
_RUN = re.compile(r"[A-Za-z][\w.\-]*")
_WORD = re.compile(r"[^\W\d]\w*")
_SHAPE = re.compile(r":[0-9]+(?:[xX×][0-9]+)*(?:\*[0-9]+(?![.0-9eE]*[0-9]))?")
_TAIL = re.compile(r"(?:\.[A-Za-z_]\w*)+")
_CHANGES = re.compile(r"\?\w+=\w+(?:\.[0-9]+)?(?:&\w+=\w+(?:\.[0-9]+)?)*")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(frozen=True)
class Lexeme:
    """One word: its kind (number, name, word, text, sign, end), how it was written, and what it is."""

    kind: str
    text: str
    measure: Measure = field(default=Measure(0.0))
    tail: str = ""
    bare: float = 0.0
    """A number as it stands before its unit."""


def split_words(text: str, assigned: frozenset[str] = frozenset()) -> list[Lexeme]:
    """The words of a text; `assigned` are letters that it gives a value to, which are no units or names.

    >>> [one.text for one in split_words("2·16GB / v5e.hbm_bandwidth")]
    ['2', '*', '16GB', '/', 'v5e', '']
    """
    if len(text) > LONGEST:
        raise InputError(f"The expression has {len(text):,} characters; {LONGEST:,} are the most.")
    found: list[Lexeme] = []
    calls: list[bool] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        one, place = _next(text, place, assigned, grouping=not any(calls))
        if one.text in ("(", "["):
            calls.append(one.text == "[" or (bool(found) and found[-1].kind == "word"))
        elif one.text in (")", "]") and calls:
            calls.pop()
        found.append(one)
        if len(found) > MOST_WORDS:
            raise InputError(f"The expression has more than {MOST_WORDS} words; write it as several.")
    return [*found, Lexeme("end", "")]


def _next(text: str, place: int, assigned: frozenset[str], grouping: bool) -> tuple[Lexeme, int]:
    letter = text[place]
    if (
        (letter.isdigit() and letter.isascii())
        or letter == "$"
        or (letter == "." and text[place + 1 : place + 2].isdigit())
    ):
        return _number(text, place, assigned, grouping)
    if (quoted := _QUOTED.match(text, place)) is not None:
        return Lexeme("text", quoted[1] or quoted[2] or ""), quoted.end()
    if (sign := _SIGN.match(text, place)) is not None:
        return Lexeme("sign", TABLES.signs.get(sign[0], sign[0])), sign.end()
    word = _WORD.match(text, place)
    if word is None:
        raise InputError(
            f"{shorten(text[place : place + 20])} cannot be read; {shorten(letter)} is no sign of a calculation."
        )
    if word[0] not in assigned:
        named = _name(text, place)
        if named is not None:
            return named
    return Lexeme("word", word[0]), word.end()


def _name(text: str, place: int) -> tuple[Lexeme, int] | None:
    """The longest known name that starts here, with the facts asked of it behind its points."""
    run = _RUN.match(text, place)
    if run is None:
        return None
    ends = [run.end(), *(place + at for at in range(len(run[0]) - 1, 0, -1) if run[0][at] in ".-")]
    for end in ends:
        name = text[place:end]
        slice_of, _, count = name.rpartition("-")
        cloud = count.isdigit() and is_chip(slice_of)
        if not (is_chip(name) or cloud or is_preset(name)):
            continue
        shape = _SHAPE.match(text, end) if is_chip(name) else None
        if shape is not None:
            name, end = name + shape[0], shape.end()
        elif is_preset(name) and (changes := _CHANGES.match(text, end)) is not None:
            name, end = name + changes[0], changes.end()
        tail = _TAIL.match(text, end)
        return Lexeme("name", name, tail=tail[0][1:] if tail else ""), tail.end() if tail else end
    return None


def _number(text: str, place: int, assigned: frozenset[str], grouping: bool) -> tuple[Lexeme, int]:
    start, money = place, text[place] == "$"
    if money:
        place += 1
        place += len(text[place:]) - len(text[place:].lstrip())
    match = (_GROUPED.match(text, place) if grouping else None) or _NUMBER.match(text, place)
    if match is None:
        raise InputError(f"{shorten(text[start : start + 20])} is no amount of money; write $1.2 or $1.2/h.")
    if re.match(r"0[0-9]", match[0]):
        raise InputError(
            f"{shorten(match[0])} begins with a zero; in a list commas part values, so write 1000 and not 1,000."
        )
    number, place = float(match[0].replace(",", "").replace("_", "")), match.end()
    made = Measure(checked(number)) * WORDS["USD" if money else "token"]
    made, place, unit = _with_unit(made, text, place, assigned)
    below_line = text[:start].endswith(
        ("/", "÷")
    )  # 3.8/1000/day is (3.8/1000)/day; 3 / 20/s and 3 GB / 2 GB/s keep theirs
    while (per := _PER.match(text, place)) is not None:
        below = find_unit(per[1])
        seconds = below is not None and below.unit == "s"
        if below is None or per[1] in assigned or not (unit or money or (seconds and not below_line)):
            break
        made, place = made / below, per.end()
    return Lexeme("number", text[start:place].strip(), made, bare=number), place


def _with_unit(made: Measure, text: str, place: int, assigned: frozenset[str]) -> tuple[Measure, int, bool]:
    """The number with what stands behind it: a prefix, a unit, or a prefix and then what is counted."""
    if text[place : place + 1] == "%" or text[place : place + 2] == " %":
        return made * WORDS["%"], text.index("%", place) + 1, True
    tight = _UNIT.match(text, place)
    if tight is not None:
        word = tight[0]
        if word == "B" and made.number >= _BYTES_FROM and not any(made.exponents):
            count = f"{made.number:.0f}"
            raise InputError(f"{count}B would be {made.number:,.0f} billion; write {count} bytes, or {count}e9.")
        rate = text[tight.end() : tight.end() + 2] == "/s"
        found = Measure(PREFIXES[word]) if word in PREFIXES else find_unit(word, rate)
        if found is None or text[tight.end() : tight.end() + 1].isdigit():
            whole = text[place - 1 : place] + (_WORD.match(text, place) or tight)[0]
            raise InputError(f"{shorten(whole)} has no known unit; write * between a number and a letter.")
        made, place = made * found, tight.end()
        if word not in PREFIXES:
            return made, place, True
    spaced = _UNIT.match(text, place + 1) if text[place : place + 1] == " " else None
    if spaced is not None and spaced[0] not in assigned and (len(spaced[0]) > 1 or spaced[0] in LONE):
        word = spaced[0]
        follows = text[spaced.end() : spaced.end() + 1]
        found = find_unit(word, rate=text[spaced.end() : spaced.end() + 2] == "/s")
        if found is None and word in ("Ki", "Mi", "Gi", "Ti"):
            found = Measure(PREFIXES[word])
        if found is not None and not (follows.isalnum() or follows in ("_", "(")):
            return made * found, spaced.end(), True
    return made, place, tight is not None
