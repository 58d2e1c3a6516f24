"""A chapter's file: what it may hold, and the sentence that a mistake in it gets."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from dragonscale.course.chapters import CHAPTERS, all_problems, problems_of, read_problems
from dragonscale.course.expressions import evaluate, fill, new_scope
from dragonscale.course.functions import chips, models
from dragonscale.course.problem import Problem, Trap
from dragonscale.course.variants import variant
from dragonscale.errors import InputError

TEXTS = {one.slug: (files("dragonscale.course") / "problems" / f"{one.slug}.txt").read_text() for one in CHAPTERS}
GOOD = """\
let CHIPS = 'v5e', 'v5p'

# Links
let BOTH = 2

## gather-on-a-line
title: An AllGather on a line
book: sharding.pq2_no_wrap:t
draw chip = *CHIPS
draw size = 4, 1, 2
let link, hop = link_and_hop(chip)
unless: size == 1
note: the chip at the end has one link

ask: {size} {chip} chips gather {1e9:bytes}
  in {{a line}}. How long?
answer: 1e9 * (size - 1) / size / link
dimension: s
hint: One link: {link:bytes/s}.
step: if size > 2 | {size - 1} of {size} arrive
step: {answer:s 3}
trap: answer / BOTH | That is a ring's.
trap: if size > 2 | 1e9 / link | Its own part is there.
check: dscale calc "1GB * {size - 1} / {size} / {chip}.ici_link" | head -1
"""


def one(text: str) -> Problem:
    [problem] = read_problems("sharding", text, "mine.txt")
    return problem


def test_a_file_becomes_problems() -> None:
    problem = one(GOOD)
    assert (problem.id, problem.title) == ("sharding.gather-on-a-line", "An AllGather on a line")
    assert problem.cases == ("sharding.pq2_no_wrap:t",)
    assert problem.draws == {"chip": ("v5e", "v5p"), "size": (4, 1, 2)}
    posed = problem.pose(chip="v5e", size=4)
    assert posed is not None
    answer = 1e9 * 3 / 4 / 45e9
    assert posed.answer == answer
    assert posed.ask == "4 v5e chips gather 1GB in {a line}. How long?"
    assert posed.steps == ("3 of 4 arrive", "16.7ms")
    assert posed.hints == ("One link: 45GB/s.",)
    assert posed.traps == (Trap(answer / 2, "That is a ring's."), Trap(1e9 / 45e9, "Its own part is there."))
    assert posed.check == 'dscale calc "1GB * 3 / 4 / v5e.ici_link" | head -1'


def test_conditions_and_combinations_without_sense() -> None:
    problem = one(GOOD)
    assert problem.pose(chip="v5e", size=1) is None
    fewer = problem.pose(chip="v5e", size=2)
    assert fewer is not None
    assert (len(fewer.steps), len(fewer.traps)) == (1, 1)


def test_names_of_a_section_hold_for_its_problems_alone() -> None:
    other = GOOD[GOOD.index("## ") :].replace("## gather", "## again")
    _, second = read_problems("sharding", f"{GOOD}\n# Another section\n\n{other}", "mine.txt")
    assert second.draws["chip"] == ("v5e", "v5p")
    with pytest.raises(InputError, match=r"mine.txt, again-on-a-line, line \d+: There is no name 'BOTH'"):
        second.pose(chip="v5e", size=4)


MISTAKES = [
    ("title: An AllGather on a line\n", "", "mine.txt, gather-on-a-line: there is no 'title' line."),
    ("hint: One", "One", "line 19: 'One link: {link:bytes/s}.' is not `keyword: text`"),
    ("hint:", "hints:", "line 19: There is no keyword 'hints'; did you mean 'hint'?"),
    ("dimension: s\n", "dimension: s\ndimension: s\n", "there are 2 'dimension' lines; one is meant."),
    ("draw chip = *CHIPS", "draw: chip = *CHIPS", "line 9: 'draw: chip = *CHIPS' is not `draw NAME = …`."),
    ("draw chip = *CHIPS", "draw chip *CHIPS", "line 9: 'draw chip *CHIPS' is not `keyword: text`, `let NAME = …`"),
    ("answer / BOTH | ", "answer / BOTH: ", "line 22: a trap is `VALUE | the mistake`."),
    ("let BOTH = 2", "hint: BOTH", "line 4: 'hint' belongs to a problem, below its `## name`."),
    ("## gather-on-a-line", "## Gather on a line", "a problem is called by small letters, digits and dashes."),
    ("size - 1) / size", "size - 1 / size", "line 17: `1e9 * (size - 1 / size / link` cannot be read"),
    ("{1e9:bytes}", "{1e9:byte", "cannot be read"),
    ("link_and_hop(chip)", "link_and_hob(chip)", "There is no name 'link_and_hob'; did you mean 'link_and_hop'?"),
    ("link_and_hop(chip)", "link_and_hop('h100')", "has no value: AssertionError"),
    ("link_and_hop(chip)", "(lambda: (1, 2))()", "has a Lambda, which is no part of an expression."),
    ("link_and_hop(chip)", "chip.__class__, 1", "asks for __class__; names that begin with _ are private."),
    ("link_and_hop(chip)", "__import__('os'), 1", "There is no name '__import__'"),
    ("unless: size == 1", "holds: size == 1", "`size == 1` does not hold."),
    ("unless: size == 1", "unless: (size := 1)", "has a NamedExpr"),
    ("size == 1", "size == 1 / 0", "`size == 1 / 0` has no value: ZeroDivisionError"),
    ("dimension: s", "dimension: {chip}s", "There is no dimension 'v5es'"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_mistake_is_one_sentence_with_its_place(right: str, wrong: str, sentence: str) -> None:
    assert GOOD.count(right) == 1
    with pytest.raises(InputError) as caught:
        variant(one(GOOD.replace(right, wrong)))
    assert str(caught.value).startswith("mine.txt, ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_problems_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"mine.txt, gather-on-a-line: there are two problems of this name."):
        read_problems("sharding", GOOD + GOOD[GOOD.index("## ") :], "mine.txt")


def test_texts_are_filled_in() -> None:
    scope = new_scope({"n": 4096, "size": 1234567.0, "written": "mine"})
    assert fill("{n:whole}, {size:bytes}, {size:bytes 6}, {size:number 3}, {size:.0f}", scope) == (
        "4,096, 1.235MB, 1.23457MB, 1.23e6, 1234567"
    )
    assert fill("{written}'s {n if n != 3 else ''} \\d {{}}'", scope) == "mine's 4096 \\d {}'"
    assert fill("{f'{n:whole} of ' * 2}it", scope) == "4,096 of 4,096 of it"
    assert evaluate("[n // by for by in (2, 4)]", scope) == [2048, 1024]


@pytest.mark.parametrize("slug", TEXTS)
def test_a_file_is_easy_to_read(slug: str) -> None:
    lines = TEXTS[slug].splitlines()
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("problem", all_problems(), ids=lambda problem: problem.id)
def test_every_name_is_used(problem: Problem) -> None:
    text = "\n".join(f"{line.condition} {line.text}" for line in problem.lines)
    for line in problem.lines:
        if line.keyword in ("draw", "let"):
            for name in re.findall(r"\w+", line.text.partition(" = ")[0]):
                uses = len(re.findall(rf"\b{name}\b", text))
                assert name == "_" or uses > 1, f"{line.place}: {name} is not used"


def test_every_function_is_called() -> None:
    text = "\n".join(TEXTS.values())
    for module in (chips, models):
        source = Path(str(module.__file__)).read_text()
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") == module.__name__:
                calls = len(re.findall(rf"\b{name}\(", source)) - 1  # less its own definition
                assert calls or re.search(rf"\b{name}\b", text), f"no problem calls {name}"


def test_a_chapter_is_read_once() -> None:
    assert problems_of("jax") is problems_of("jax")
