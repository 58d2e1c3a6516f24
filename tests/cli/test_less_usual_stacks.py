"""Stacks that are less usual on some chips: taken where usual ones cannot run a job, named where they are faster."""

import json
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.training.search.stack_search import TIE_TOLERANCE

LORA = ["train", "llama2-70b", "--method", "lora", "--batch", "8seq", "--seq", "4096"]
FIX = ["--fix", "pipe=1,tensor=1,context=1,zero=3"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main([*LORA, *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_fp8_on_amd_is_searched_with_the_stack_that_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--on", "mi300x:8", "--dtype", "fp8", *FIX], capsys)
    assert found["plans"][0]["stack"] == found["workload"]["stack"] == "megatron-lm"
    assert found["workload"]["stack_why"] == "axolotl and hf cannot run what was asked for"
    given = answer(["--on", "mi300x:8", "--dtype", "fp8", "--plan", "fsdp8", "--alone"], capsys)
    assert given["plans"][0]["stack"] == "megatron-lm"
    assert given["plans"][0]["feasible"]


def test_what_no_stack_has_stays_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--on", "mi300x:8", "--dtype", "nvfp4"], capsys, code=3)
    assert any("has no nvfp4 matmul" in note for note in found["notes"])


def test_a_faster_stack_is_told_of_beside_the_usual_ones(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--on", "h100:8", *FIX], capsys)
    rows = {row["stack"]: row for row in found["stacks"]}
    taken, faster = rows[found["workload"]["stack"]], rows["megatron-bridge"]
    assert (taken["stack"], taken["usual"], faster["usual"]) == ("axolotl", True, False)
    assert faster["step_s"] * (1 + TIE_TOLERANCE) < taken["step_s"]
    named = answer(["--on", "h100:8", *FIX, "--stack", "megatron-bridge"], capsys)
    assert named["plans"][0]["step_s"] == pytest.approx(faster["step_s"])
    assert len(named["stacks"]) == 1
    assert main([*LORA, "--on", "h100:8", *FIX]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "megatron-bridge: step -" in text
    assert "less usual there)" in text
    assert "so is megatron-bridge" not in text
