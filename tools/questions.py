"""Real questions from public threads, how well they are answered, and the page that says so.

    python -m tools.questions            # the score by topic, before and after
    python -m tools.questions --page     # writes docs/real-questions.md
    python -m tools.questions --ask N    # asks the first command of every N-th question, and prints what comes

`tests/questions/threads` holds the questions with their truth, written down before the tool was asked any of them;
none is removed. `tests/questions/grades/PART.before.toml` and `PART.after.toml` are what a reader who did not write the
answers gave 0.7.0 and this version; an answer in `after` may have `says`, words that must go on standing in it.
"""

import argparse
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUESTIONS = ROOT / "tests" / "questions"
PAGE = ROOT / "docs" / "real-questions.md"
GRADES = ("great", "acceptable", "poor", "none", "wrong")
PARTS = {
    "serving": "Serving engines",
    "local": "Local inference",
    "training": "Training at scale",
    "finetuning": "Fine-tuning and RL",
}


@dataclass(frozen=True)
class Graded:
    """An answer as a reader graded it; `says` are words that its first command must print."""

    grade: str
    commands: list[str]
    why: str
    says: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """A question of a thread, its truth, and the grades of the last release and of this version."""

    id: str
    part: str
    thread: str
    question: str
    truth: str
    confidence: str
    before: Graded | None
    after: Graded | None


def questions() -> list[Question]:
    """All questions in the order in which they were drawn."""
    rows: list[Question] = []
    for part in PARTS:
        before, after = _grades(f"{part}.before.toml"), _grades(f"{part}.after.toml")
        for row in _table(QUESTIONS / "threads" / f"{part}.toml")["question"]:
            facts = {name: row[name] for name in ("id", "thread", "question", "truth", "confidence")}
            rows.append(Question(**facts, part=part, before=before.get(row["id"]), after=after.get(row["id"])))
    return rows


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _grades(name: str) -> dict[str, Graded]:
    path = QUESTIONS / "grades" / name
    if not path.exists():
        return {}
    rows: dict[str, Graded] = {}
    for key, row in _table(path).items():
        rows[key] = Graded(row["grade"], row["commands"], row["why"], row.get("says", []))
    return rows


def score(rows: list[Question], when: str) -> Counter[str]:
    """How many answers have each grade, `before` or `after`."""
    graded = [getattr(row, when) for row in rows]
    return Counter(answer.grade for answer in graded if answer)


def page(rows: list[Question]) -> str:
    """The score by topic, and every question whose answer is not great, with what is wrong with it."""
    lines = [
        "# How well are real questions answered?",
        "",
        f"{len(rows)} questions from public issue threads were written down with their truth before the tool was asked "
        "any of them. A reader who did not write the answers graded the first command and what it leads to.",
        "",
        "- **great**: the first command answers, its verdict is the thread's, every figure that the thread states is "
        "within 15%, the remedy is the thread's or a better one, and no sentence is false",
        "- **acceptable**: right within three commands, figures within 30% or in the printed band",
        "- **poor**: of little use, but nobody would act falsely on it",
        "- **none**: refused or not answered",
        "- **wrong**: a reader would act falsely",
        "",
        "| topic | questions | version | " + " | ".join(GRADES) + " |",
        "|---|---|---|" + "---|" * len(GRADES),
    ]
    for part, title in {**PARTS, "": "All"}.items():
        of_part = [row for row in rows if part in ("", row.part)]
        for when, version in (("before", "0.7.0"), ("after", "this version")):
            counts = score(of_part, when)
            if counts:
                cells = " | ".join(str(counts[grade]) for grade in GRADES)
                lines.append(f"| {title} | {len(of_part)} | {version} | {cells} |")
    lines += ["", *_drawn(), "", "## What is not great yet", ""]
    lines += ["| question | grade | why |", "|---|---|---|"]
    for row in rows:
        answer = row.after or row.before
        if answer and answer.grade != "great":
            lines.append(f"| [{row.id}]({row.thread}): {_cell(row.question)} | {answer.grade} | {_cell(answer.why)} |")
    lines += ["", "## Next", "", "- [How right it is](validation.md): errors on measured runs", ""]
    return "\n".join(lines)


def _drawn() -> list[str]:
    return [
        "The draw: for each of 24 groups of repositories and six phrases for each topic, a search of public threads, "
        "walked in its order; the first thread that states an outcome or a number together with its set-up. Bugs, and "
        "numbers that the set-up does not determine, were passed over; where a pair had none, a further thread of the "
        "same order was taken, which its `draw` says. The files in `tests/questions` have the link, the truth in our "
        "own words, how sure it is, and both gradings."
    ]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def ask(command: str) -> subprocess.CompletedProcess[str]:
    """What a command of a question prints, run in a process of its own."""
    words = shlex.split(command)[1:]
    return subprocess.run([sys.executable, "-m", "dragonscale", *words], capture_output=True, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write docs/real-questions.md")
    parser.add_argument("--ask", type=int, metavar="N", help="ask every N-th question")
    arguments = parser.parse_args()
    rows = questions()
    if arguments.ask:
        for row in rows[:: arguments.ask]:
            answer = row.after or row.before
            if answer and answer.commands:
                print(f"== {row.id}: {row.question}\n$ {answer.commands[0]}\n{ask(answer.commands[0]).stdout}")
    elif arguments.page:
        PAGE.write_text(page(rows), encoding="utf-8")
    else:
        for when in ("before", "after"):
            print(when, dict(score(rows, when)))


if __name__ == "__main__":
    main()
