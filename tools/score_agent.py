"""The questions of tests/agents/questions.toml for an agent that has only the planner's tools, and its score.

    python -m tools.score_agent --ask              the questions, as JSON: id, question, unit
    python -m tools.score_agent --tools            what a client of `dscale mcp` is told: instructions, tools
    python -m tools.score_agent --tools TOOL       one tool, with the JSON Schema of its parameters
    python -m tools.score_agent --call TOOL JSON   what the server says to one call, such as chips '{"name": "h100"}'
    python -m tools.score_agent ANSWERS.json       {"id": answer} of an agent: right or wrong, and how many
    python -m tools.score_agent --write            the answers anew, by the call that stands with each question

From the root of the repository. `--tools` and `--call` start the server and speak its protocol. The exit code is 1
where an answer is wrong or a call is refused.
"""

import argparse
import json
import math
import os
import re
import signal
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


async def talk(tool: str, given: dict[str, Any] | None) -> tuple[str, bool]:
    """Start the server; what it says to a call or, where nothing is given, of its tools; whether that is an error."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=["-m", "dragonscale", "mcp"], env=dict(os.environ))
    async with Client(server) as client:
        if given is None:
            listed = [one for one in (await client.list_tools()).tools if tool in ("", one.name)]
            told = [f"{one.name}: {one.description}" for one in listed] or [f"There is no tool {tool!r}."]
            shown = json.dumps(listed[0].input_schema, indent=1) if tool and listed else client.instructions
            return "\n\n".join([*told, shown or ""]), not listed
        reply = await client.call_tool(tool, given)
        texts = [block.text for block in reply.content if block.type == "text"]
        record = reply.structured_content
        return "\n".join(texts if record is None else [*texts, json.dumps(record, indent=1)]), bool(reply.is_error)


def main() -> int:
    """Parse the arguments and do it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("answers", nargs="?")
    options.add_argument("--ask", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--tools", nargs="?", const="", metavar="TOOL")
    options.add_argument("--call", nargs=2, metavar=("TOOL", "JSON"))
    given = options.parse_args()
    if given.call or given.tools is not None:
        import anyio

        tool, words = given.call or (given.tools, "null")
        try:
            text, failed = anyio.run(talk, tool, json.loads(words))
        except json.JSONDecodeError as error:
            options.error(f"{words!r} is not JSON: {error}")
        print(text)
        return int(failed)
    if given.write:
        write()
    if given.ask:
        asked = [{"id": one["id"], "question": one["ask"], "unit": one.get("unit", "a word")} for one in questions()]
        print(json.dumps(asked, indent=1))
    return int(score(json.loads(Path(given.answers).read_text(encoding="utf-8"))) > 0) if given.answers else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    sys.exit(main())
