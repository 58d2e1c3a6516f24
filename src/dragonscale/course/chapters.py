"""The chapters of the course, in order (`chapters.toml`), and the problems of each (`problems/CHAPTER.txt`):

    # Rings and lines                                    a section; its `let` lines hold for its problems
    let CHIPS = 'v5e', 'v5p', 'v4'

    ## gather-on-a-line                                  a problem
    title: An AllGather on a line
    book: sharding.pq2_no_wrap:t                         a result of the book that it reproduces
    draw chip = *CHIPS                                   the values of a parameter, the usual one first
    draw size = 8, 4, 2
    let link = load_chip(chip).network.link              a name for an expression
    unless: size > 4 and chip == 'v4'                    a combination that makes no sense

    ask: {size} {chip} chips in a line gather 1GB. A link carries {link:bytes/s} each way. How long
      does it take, exactly?
    answer: 1e9 * (size - 1) / size / link
    dimension: s
    hint: The chip at the end has one link.
    step: {size - 1}/{size} of the array arrive over one link: {answer:s}
    trap: answer / 2 | That is a ring.                   a value, and the mistake that gives it
    trap: if size > 2 | 1e9 / link | Its own part is there already.
    check: dscale calc "1GB * {size - 1} / {size} / {chip}.ici_link"

What belongs to a line goes on in indented lines. Lines are worked out in order, `holds: EXPRESSION` on the way must be
true, and `note: …` is for who reads the file. The other keywords are fields of `Posed`: `tolerance` and `whole`
(expressions), `option` or `options` (a text, an expression of several), `steps` likewise, `shown`. `expressions.py` has
what may stand in an expression and in a text.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from dragonscale.course.problem import BETWEEN, Line, Problem
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.tables import Strict

_FOLDER = files("dragonscale.course")


class Chapter(Strict, frozen=True):
    """A chapter: its slug, its title, the question it answers; `book` is the book's chapter, where it has one,
    `picture` one of docs/pictures that shows what it is about."""

    slug: str
    title: str
    about: str
    book: str = ""
    picture: str = ""

    @property
    def page(self) -> str:
        return f"docs/course/{self.slug}.md"


_TABLE = _FOLDER.joinpath("chapters.toml").read_bytes()
CHAPTERS = msgspec.toml.decode(_TABLE, type=dict[str, tuple[Chapter, ...]])["chapter"]


def find_chapter(slug: str) -> Chapter:
    """The chapter of a slug."""
    for chapter in CHAPTERS:
        if chapter.slug == slug:
            return chapter
    raise unknown("chapter", slug, [chapter.slug for chapter in CHAPTERS])


@cache
def problems_of(slug: str) -> tuple[Problem, ...]:
    """The problems of a chapter, in the order of its file."""
    name = f"{find_chapter(slug).slug}.txt"
    return read_problems(slug, _FOLDER.joinpath("problems", name).read_text(encoding="utf-8"), name)


def all_problems() -> tuple[Problem, ...]:
    """Every problem, chapter by chapter."""
    return tuple(problem for chapter in CHAPTERS for problem in problems_of(chapter.slug))


_DEFINING = ("draw", "let")
_ONCE = ("title", "ask", "answer", "dimension", "tolerance", "whole", "check", "shown")
_CONDITIONAL = ("hint", "step", "trap")
_KEYWORDS = (*_DEFINING, *_ONCE, *_CONDITIONAL, "book", "unless", "holds", "note", "option", "options", "steps")
_NEEDED = ("title", "draw", "ask", "answer")
_HEADING = re.compile(r"(#{1,2}) (.+)")
_LINE = re.compile(r"(?:(draw|let) ([\w, *()\[\]]+ = .+)|(\w+): (.+))")
_NAME = re.compile(r"[a-z\d]+(-[a-z\d]+)*")


def read_problems(chapter: str, text: str, file: str) -> tuple[Problem, ...]:
    """The problems of a chapter's file, in its order."""
    problems: dict[str, Problem] = {}
    of_all: list[Line] = []
    of_section: list[Line] = of_all
    for heading, name, place, lines in _blocks(text, file):
        if heading != "##":
            of_section = of_all if not heading else []
            of_section += _shared(lines)
        elif name in problems:
            raise InputError(f"{place}: there are two problems of this name.")
        else:
            shared = of_all if of_section is of_all else [*of_all, *of_section]
            problems[name] = _problem(chapter, name, place, lines, tuple(shared))
    return tuple(problems.values())


def _problem(chapter: str, name: str, place: str, lines: list[Line], shared: tuple[Line, ...]) -> Problem:
    if not _NAME.fullmatch(name):
        raise InputError(f"{place}: a problem is called by small letters, digits and dashes.")
    written = Counter(line.keyword for line in lines)
    missing = [keyword for keyword in _NEEDED if not written[keyword]]
    if missing:
        raise InputError(f"{place}: there is no {missing[0]!r} line.")
    twice = [keyword for keyword in _ONCE if written[keyword] > 1]
    if twice:
        raise InputError(f"{place}: there are {written[twice[0]]} {twice[0]!r} lines; one is meant.")
    title = next(line.text for line in lines if line.keyword == "title")
    cases = tuple(line.text for line in lines if line.keyword == "book")
    return Problem(name, chapter, title, tuple(lines), shared, cases)


def _shared(lines: list[Line]) -> list[Line]:
    for line in lines:
        if line.keyword not in ("let", "note"):
            raise InputError(f"{line.place}: {line.keyword!r} belongs to a problem, below its `## name`.")
    return lines


def _blocks(text: str, file: str) -> Iterator[tuple[str, str, str, list[Line]]]:
    """What stands before and below each heading: its marks, its words, its place, and its lines."""
    marks, words, place = "", "", file
    lines: list[Line] = []
    for number, line in _joined(text):
        heading = _HEADING.fullmatch(line)
        if heading:
            yield marks, words, place, lines
            marks, words, lines = heading[1], heading[2], []
            place = f"{file}, {words}" if marks == "##" else file
        else:
            lines.append(_line(line, f"{place}, line {number}"))
    yield marks, words, place, lines


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """The lines with what goes on in indented ones, and the number of each."""
    first, parts = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), "."], 1):
        if line.startswith("  ") and parts:
            parts.append(line.strip())
        elif line.strip():
            if parts:
                yield first, " ".join(parts)
            first, parts = number, [line.rstrip()]


def _line(text: str, place: str) -> Line:
    match = _LINE.fullmatch(text)
    if not match:
        raise InputError(f"{place}: {shorten(text)} is not `keyword: text`, `let NAME = …` or `draw NAME = …`.")
    keyword, content = (match[1], match[2]) if match[1] else (match[3], match[4])
    if keyword not in _KEYWORDS:
        raise InputError(f"{place}: {unknown('keyword', keyword, _KEYWORDS)}")
    if keyword in _DEFINING and not match[1]:
        raise InputError(f"{place}: {shorten(text)} is not `{keyword} NAME = …`.")
    condition = ""
    if keyword in _CONDITIONAL and content.startswith("if ") and BETWEEN in content:
        condition, _, content = content.removeprefix("if ").partition(BETWEEN)
    if keyword == "trap" and BETWEEN not in content:
        raise InputError(f"{place}: a trap is `VALUE{BETWEEN}the mistake`.")
    return Line(keyword, content, place, condition)
