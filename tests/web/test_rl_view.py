"""The panels of the tab of reinforcement learning, beside the command's own numbers."""

from typing import Any

import pytest

from dragonscale.web.answers import answer

FIELDS = {
    "model": "qwen2.5-0.5b",
    "on": "h100:2",
    "prompts": "8",
    "samples": "4",
    "prompt": "128",
    "output": "256",
    "mode": "colocated",
    "stack": "verl",
}


@pytest.fixture(scope="module")
def panels() -> dict[str, Any]:
    found: dict[str, Any] = {}
    request = {"view": "rl", "fields": FIELDS, "panels": ["answer", "phases", "record"]}
    answer(
        request, lambda message: found.update({message["panel"]: message["data"]} if "panel" in message else message)
    )
    return found


def test_the_sentence_says_what_the_command_says(panels: dict[str, Any]) -> None:
    said, best = panels["answer"], panels["record"]["plans"][0]
    assert said["feasible"]
    assert said["figures"][0]["number"]["value"] == best["likely_s"]
    assert said["figures"][0]["number"]["text"] in said["sentence"]
    assert "GRPO of qwen2.5-0.5b on h100:2, colocated" in said["sentence"]


def test_what_the_phases_expose_adds_up_to_the_step(panels: dict[str, Any]) -> None:
    phases = panels["phases"]
    assert sum(part["shown"]["value"] for part in phases["parts"]) == pytest.approx(phases["total"]["value"])
    assert all(part["hidden"]["value"] >= 0 for part in phases["parts"])


def test_where_nothing_fits_it_is_said() -> None:
    found: dict[str, Any] = {}
    fields = FIELDS | {"model": "llama3-70b", "on": "h100:1"}
    answer({"view": "rl", "fields": fields, "panels": ["answer"]}, found.update)
    told = found.get("error", {}).get("text") or found["data"]["sentence"]
    assert told
    assert not found.get("data", {}).get("feasible", False)
