"""The questions of tests/agents/questions.toml for an agent that has only the planner's tools, and its score.

    python -m tools.score_agent --ask            the questions, as JSON: id, question, unit
    python -m tools.score_agent ANSWERS.json     {"id": answer} of an agent: right or wrong, and how many
    python -m tools.score_agent --write          the answers anew, by the call that stands with each question

Ask with the server alone (`dscale mcp`), from the root of the repository. The exit code is 1 where an answer is wrong.
"""

import argparse
import json
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from dragonscale.faces.cli.mcp.results import answered
from dragonscale.faces.cli.mcp.tools import WHOLE, tools
from dragonscale.listener import Listener

FILE = Path(__file__).parents[1] / "tests" / "agents" / "questions.toml"
WITHIN = 0.02


def questions() -> list[dict[str, Any]]:
    """Every question with its answer."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))["question"]


def reference(question: dict[str, Any]) -> float | str:
    """The answer by the question's own call of a tool."""
    reply = answered(tools(), question["tool"], question["given"] | {WHOLE: True}, Listener())
    if reply.record is None:
        raise ValueError(f"{question['id']}: {reply.text}")
    value: Any = reply.record
    if "line" in question:
        value = next(row["value"] for row in value["lines"] if row["name"] == question["line"])
    for name in question.get("key", ()):
        value = value[name]
    if "find" in question:
        found = re.search(question["find"], value)
        assert found is not None, question["id"]
        value = float(found[1])
    if "says" in question:
        return question["says"][str(value)]
    return value if isinstance(value, str) else value / question.get("scale", 1)


def is_right(question: dict[str, Any], given: Any) -> bool:
    """Whether an answer is the expected one: a number within so much of it, a word as it is.

    >>> is_right({"answer": 7.1}, "7.15 s"), is_right({"answer": 7.1}, 8), is_right({"answer": "compute"}, "Compute.")
    (True, False, True)
    """
    wanted = question["answer"]
    if isinstance(wanted, str):
        said = re.sub(r"[\s_-]+", " ", str(given).strip().rstrip(".").lower())
        return said == re.sub(r"[\s_-]+", " ", wanted.lower())
    number = re.search(r"-?\d[\d,]*\.?\d*(e[-+]?\d+)?", str(given))
    if number is None:
        return False
    return math.isclose(float(number[0].replace(",", "")), wanted, rel_tol=question.get("within", WITHIN) or 1e-9)


def score(answers: dict[str, Any]) -> int:
    """Print what is right and what is not; how many are not."""
    wrong = 0
    for question in questions():
        given = answers.get(question["id"])
        right = given is not None and is_right(question, given)
        wrong += not right
        if not right:
            print(f"wrong  {question['id']}: {given!r}, and it is {question['answer']} {question.get('unit', '')}")
    print(f"{len(questions()) - wrong} of {len(questions())} are right")
    return wrong


def write() -> None:
    """Put the answers of today into the file."""
    parts = FILE.read_text(encoding="utf-8").split("[[question]]\n")
    for place, question in enumerate(questions(), 1):
        found = reference(question)
        shown = json.dumps(found) if isinstance(found, str) else f"{found:.6g}"
        parts[place] = re.sub(r"(?m)^answer = .*$", f"answer = {shown}", parts[place], count=1)
    FILE.write_text("[[question]]\n".join(parts), encoding="utf-8")


def main() -> int:
    """Parse the arguments and do it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("answers", nargs="?")
    options.add_argument("--ask", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    if given.write:
        write()
    if given.ask:
        asked = [{"id": one["id"], "question": one["ask"], "unit": one.get("unit", "a word")} for one in questions()]
        print(json.dumps(asked, indent=1))
    return int(score(json.loads(Path(given.answers).read_text(encoding="utf-8"))) > 0) if given.answers else 0


if __name__ == "__main__":
    sys.exit(main())
