"""Columns side by side: asked as the tabs ask them, held against the first in words, on one scale."""

from typing import Any

import pytest

from dragonscale.physics.hardware import parse_slice
from dragonscale.web.answers import answer

JOB = {"model": "llama3-8b", "batch": "64seq", "seq": "4096"}
COLUMNS: list[dict[str, Any]] = [
    {**JOB, "on": "h100:8", "plan": "fsdp8", "alone": True},
    {**JOB, "on": "h100:8", "plan": "tp8", "alone": True},
    {**JOB, "on": "v5p:2x2x2", "plan": "fsdp8", "alone": True},
]


def asked(**request: Any) -> dict[str, Any]:
    heard: list[dict[str, Any]] = []
    answer({"view": "compare", **request}, heard.append)
    return heard[-1] if "error" in heard[-1] else next(one["data"] for one in heard if "panel" in one)


def test_plans_and_chips_side_by_side() -> None:
    found = asked(of="train", columns=COLUMNS, panels=["sides"])
    assert [side["key"] for side in found["sides"]] == ["A", "B", "C"]
    assert found["winner"] == "A"
    step = next(row for row in found["rows"] if row["name"] == "step")
    values = [cell["number"]["value"] for cell in step["cells"]]
    change = values[1] / values[0] - 1
    assert step["cells"][1]["mark"] == "worse"
    assert f"{change:+.0%}" in step["cells"][1]["text"]
    assert step["cells"][1]["text"].endswith(("beyond the error", "within the error"))
    assert step["cells"][0]["mark"] == ""
    for bars in (found["time"], found["memory"]):
        assert all(
            sum(part["shown"]["value"] for part in bar["parts"]) <= bars["scale"] * (1 + 1e-9) for bar in bars["bars"]
        )
    assert {row["name"] for row in found["settings"]} >= {"fsdp", "tensor"}
    assert found["sentences"][0].startswith("B (")
    assert f"takes {change:.0%} longer than A" in found["sentences"][0]


def test_a_number_of_a_column_is_derived_as_in_its_tab() -> None:
    found = asked(of="train", columns=COLUMNS[:2], panels=["sides"])
    cell = next(row for row in found["rows"] if row["name"] == "MFU")["cells"][1]["number"]
    heard: list[dict[str, Any]] = []
    answer(
        {
            "view": "why",
            "of": "compare",
            "kind": "train",
            "columns": COLUMNS[:2],
            "number": cell["why"],
            "panels": ["facts"],
        },
        heard.append,
    )
    assert heard[0]["data"]["number"]["value"] == cell["value"]


def test_comparable_slices_are_suggested() -> None:
    found = asked(of="train", fields={"on": "v5p:8x16x16"}, panels=["suggest"])["slices"]
    assert found[0]["on"] == "h100:2048"
    assert "as many chips" in found[0]["why"]
    fast = next(one for one in found if one["chip"].startswith("NVIDIA H100") and "FLOP/s" in one["why"])
    ratio = parse_slice(fast["on"]).flops / parse_slice("v5p:8x16x16").flops
    assert 0.7 < ratio < 1.5


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"of": "train", "columns": COLUMNS[:1]}, "has 2 to 4 columns"),
        ({"of": "train", "columns": COLUMNS * 2}, "has 2 to 4 columns"),
        ({"of": "chips", "columns": COLUMNS}, "kind of answer"),
        ({"of": "train", "columns": "x"}, "a list of questions"),
        ({"of": "train", "columns": [COLUMNS[0], {**COLUMNS[1], "model": "/etc/passwd"}]}, "looks like a file"),
    ],
)
def test_what_cannot_be_compared_is_said(request_: dict[str, Any], said: str) -> None:
    assert said in asked(panels=["sides"], **request_)["error"]["text"]


@pytest.mark.slow
def test_serving_side_by_side() -> None:
    job = {"model": "llama3-8b", "prompt": "1024", "output": "128"}
    found = asked(
        of="serve",
        columns=[{**job, "on": "h100:1", "engine": engine} for engine in ("vllm", "sglang")],
        panels=["sides"],
    )
    assert [side["software"] for side in found["sides"]] == ["vllm", "sglang"]
    assert {row["name"] for row in found["rows"]} >= {"TTFT", "TPOT", "decode step", "memory"}
