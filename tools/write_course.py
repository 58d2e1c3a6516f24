"""The problems on the pages of the course: each asked with its own numbers, its hints and worked solution folded away.

On the site they replace what stands between `<!-- problems: CHAPTER -->` and `<!-- /problems -->` (`build_docs`). The
command that checks an answer is run, and must show it.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from dragonscale.commands.learn import answer_text
from dragonscale.course.chapters import problems_of
from dragonscale.course.judging import LETTERS
from dragonscale.course.problem import Posed, Problem
from dragonscale.course.variants import variant
from tools.refresh_docs import run_command
from tools.shown_numbers import numbers_of, shows

Check = Callable[[Problem, Posed], str]
"""Runs the command that checks an answer, and returns what it prints."""
_MARKED = re.compile(r"(<!-- problems: ([\w-]+) -->\n).*?(<!-- /problems -->)", re.DOTALL)


def problems_text(slug: str, check: Check) -> str:
    """The problems of a chapter as Markdown."""
    return "\n".join(_problem_text(number, problem, check) for number, problem in enumerate(problems_of(slug), 1))


def _problem_text(number: int, problem: Problem, check: Check) -> str:
    posed = variant(problem).posed
    lines = [f"### {number}. {problem.title}", "", _escaped(posed.ask), ""]
    if posed.options:
        lines += [*(f"- {letter}) {option}" for letter, option in zip(LETTERS, posed.options, strict=False)), ""]
    lines += _folded("Hints", [f"{index}. {_escaped(hint)}" for index, hint in enumerate(posed.hints, 1)])
    lines += _folded("Solution", _solution(problem, posed, check))
    lines += [f"Try it: `dscale learn {problem.id}`, with other numbers `--seed 1`.", ""]
    return "\n".join(lines)


def _solution(problem: Problem, posed: Posed, check: Check) -> list[str]:
    lines = ["```text", *posed.steps, "```", "", f"**{answer_text(posed)}**", ""]
    if posed.check:
        lines += ["```console", f"$ {posed.check}", check(problem, posed), "```", ""]
    lines += ["Usual mistakes:", ""] if posed.traps else []
    return [
        *lines,
        *(f"- {answer_text(replace(posed, answer=trap.value))}: {_escaped(trap.why)}" for trap in posed.traps),
    ]


def checked(problem: Problem, posed: Posed) -> str:
    """What the checking command prints; it must end well and show the answer."""
    ran = run_command(posed.check)
    printed = ran.out.rstrip("\n")
    if ran.code:
        raise SystemExit(f"{problem.id}: `{posed.check}` ends with {ran.code}:\n{ran.err}")
    if isinstance(posed.answer, str):
        shown = posed.shown or re.escape(posed.answer)
        holds = printed.startswith("true") or re.search(shown, printed, re.IGNORECASE | re.DOTALL)
    elif posed.whole:
        holds = posed.answer in numbers_of(printed)
    else:
        holds = shows(printed, posed.answer, posed.tolerance / 2)
    if not holds:
        raise SystemExit(f"{problem.id}: `{posed.check}` does not show {answer_text(posed)}:\n{printed}")
    return printed


def unchecked(_problem: Problem, _posed: Posed) -> str:
    """Runs nothing and shows nothing: enough to judge links and headings."""
    return ""


def _folded(title: str, lines: list[str]) -> list[str]:
    return ['<details markdown="1">', f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _escaped(text: str) -> str:
    """Prose whose brackets, stars and underscores are not Markdown's."""
    return re.sub(r"(?<!`)([*_<\[\]])(?!`)", r"\\\1", text) if "`" not in text else text


def written_page(text: str, check: Check = checked) -> str:
    """A page with its problems put in."""
    return _MARKED.sub(lambda block: f"{block[1]}\n{problems_text(block[2], check)}\n{block[3]}", text)
