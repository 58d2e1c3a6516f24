"""The questions for agents: the call that stands with each gives its answer, and the score tells right from wrong."""

import json
from typing import Any

import pytest

from dragonscale.faces.cli.mcp.tools import tools
from tools.score_agent import is_right, questions, reference, score, talk

EVERY = questions()


@pytest.mark.parametrize(
    "question",
    [pytest.param(one, marks=pytest.mark.slow) if one.get("slow") else one for one in EVERY],
    ids=[one["id"] for one in EVERY],
)
def test_the_call_of_a_question_answers_it(question: dict[str, Any]) -> None:
    assert is_right(question, reference(question))


def test_there_are_thirty_over_all_kinds_of_tools() -> None:
    assert len({one["id"] for one in EVERY}) == len(EVERY) >= 30
    asked = {one["tool"] for one in EVERY}
    assert asked <= set(tools())
    assert {"train", "serve", "simulate", "rl", "roofline", "collective", "shard", "chips", "models", "calc"} <= asked
    assert {"export", "import", "profile", "hlo", "compare", "estimate", "explain_train"} <= asked


def test_an_agent_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {one["id"]: one["answer"] for one in EVERY}
    assert score(json.loads(json.dumps(answers))) == 0
    first, second = EVERY[0]["id"], EVERY[2]["id"]
    assert score(answers | {first: answers[first] * 1.2, second: "perhaps"}) == 2
    assert f"wrong  {first}" in capsys.readouterr().out
    del answers[first]
    assert score(answers) == 1


def test_one_call_is_made_of_the_server_from_a_shell() -> None:
    """What an agent without a client of the protocol has: the tools as they are listed, and a call of one."""
    pytest.importorskip("mcp")
    import anyio

    shown, refused = anyio.run(talk, "calc", None)
    assert shown.startswith("calc: ")
    assert '"expression"' in shown
    assert not refused
    assert anyio.run(talk, "calc", {"expression": "2 * 21 bytes"}) == ("42B", False)
    said, refused = anyio.run(talk, "calc", {"expression": "70e9 B", "record": True})
    assert "70e9 bytes" in said
    assert refused
