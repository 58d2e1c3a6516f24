"""`dscale learn` in a terminal: the problems asked one by one, answers judged as they are typed."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from dragonscale.commands.learn import lesson_report, named_problem, problem_report
from dragonscale.commands.questions.facts import LearnQuestion
from dragonscale.commands.record import Record
from dragonscale.course.chapters import CHAPTERS, find_chapter, problems_of
from dragonscale.course.judging import judge
from dragonscale.course.problem import Problem
from dragonscale.course.progress import Progress, answered, read_progress, usual_file, write_progress
from dragonscale.course.variants import Variant, variant
from dragonscale.errors import InputError

PROMPT = "answer (h hint, s solution, v other numbers, n next, q quit): "
HELP = "Type a number with its unit (1.2ms, 16GB, 240), a sum (2*64*8192 / v5e.bf16), or an option's letter."
Say = Callable[[Record], None]
Read = Callable[[str], str]


def wants_dialogue(question: LearnQuestion) -> bool:
    """Whether the problems are to be asked: something is named, nothing is answered or listed, and a
    person is there."""
    told = question.list or question.answer or question.hint or question.solution
    return bool(question.name) and not told and sys.stdin.isatty() and sys.stdout.isatty()


def dialogue(question: LearnQuestion, say: Say, read: Read = input) -> str:
    """Ask until all are answered or the reader has had enough; returns how the chapter stands, in a line."""
    path = Path(question.progress) if question.progress else usual_file()
    progress = read_progress(path)
    name = question.name.strip().lower()
    whole = name in [one.slug for one in CHAPTERS]
    asked: Sequence[Problem] = _unsolved(name, progress) if whole else (named_problem(name),)
    try:
        for problem in asked:
            progress = _ask_one(problem, question.seed, progress, path, say, read)
    except (EOFError, KeyboardInterrupt):
        print()
    chapter = lesson_report(find_chapter(asked[0].chapter), progress)
    return f"{chapter.headline()}. Next: {chapter.next}"


def _unsolved(slug: str, progress: Progress) -> Sequence[Problem]:
    """What is left of a chapter; all of it again where nothing is."""
    every = problems_of(slug)
    return [one for one in every if not progress.solved(one.id)] or every


def _ask_one(problem: Problem, seed: int, progress: Progress, path: Path, say: Say, read: Read) -> Progress:
    """One problem until it is answered right or left; `q` ends everything as the end of the input does."""
    made, hints = variant(problem, seed), 0
    _show(made, say)
    while True:
        typed = read(PROMPT).strip()
        word = typed.lower()
        if word in ("q", "quit", "exit"):
            raise EOFError
        if word in ("n", "next", "skip"):
            return progress
        if word in ("help", "?"):
            print(HELP)
        elif word in ("h", "hint"):
            hints += 1
            every = made.posed.hints
            print(every[hints - 1] if hints <= len(every) else "There are no more hints; s shows the solution.")
        elif word in ("s", "solution"):
            _show(made, say, solution=True)
            return progress
        elif word in ("v", "variant"):
            made, hints = variant(problem, made.seed + 1), 0
            _show(made, say)
        elif typed:
            right, progress = _judged(made, typed, progress, path, say)
            if right:
                return progress


def _show(made: Variant, say: Say, solution: bool = False) -> None:
    """The problem without what to type next, which the prompt says."""
    say(replace(problem_report(made, None, "", hint=False, solution=solution), next=""))
    print()


def _judged(made: Variant, typed: str, progress: Progress, path: Path, say: Say) -> tuple[bool, Progress]:
    """An answer judged and kept; what cannot be read is told and costs nothing."""
    try:
        verdict = judge(made.posed, typed)
    except InputError as error:
        print(error)
        return False, progress
    after = answered(progress, made.problem.id, made.seed, verdict.right)
    write_progress(path, after)
    if verdict.right:
        report = problem_report(made, verdict, typed, hint=False, solution=False)
        say(replace(report, next="", ask="", title="", options=[]))
        print()
    else:
        print(verdict.told)
    return verdict.right, after
