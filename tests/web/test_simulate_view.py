"""The panels of the simulate tab: the fleet over time against the run's own books, and its numbers beside the
command's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.listener import Listener
from dragonscale.web.answers import answer
from dragonscale.web.page_request import KEPT
from dragonscale.web.views.tracks import fields_of_command

PANELS = ["answer", "over_time", "percentiles", "replicas"]
FLEET = {
    "model": "llama3-8b",
    "on": "h100:1",
    "replicas": "3",
    "rate": "20/s",
    "requests": "600",
    "prompt": "512",
    "output": "64",
}


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    KEPT.clear()


def asked(fields: dict[str, Any], panels: list[str], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panels of a question, and the last message."""
    messages: list[dict[str, Any]] = []
    answer({"view": "simulate", "fields": fields, "panels": panels, **more}, messages.append)
    json.dumps(messages, allow_nan=False)
    return {one["panel"]: one["data"] for one in messages if "panel" in one}, messages[-1]


def test_the_fleet_over_time_agrees_with_the_books_of_the_run() -> None:
    panels, last = asked(FLEET, [*PANELS, "record"])
    assert "done" in last, last
    over, record = panels["over_time"], panels["record"]
    moments = over["moments"]
    width = moments[1] - moments[0]
    tokens = [sum(row["tokens"]) * width for row in over["replicas"]]
    assert sum(tokens) == pytest.approx(600 * 64, rel=0.01)
    assert tokens == pytest.approx([row["output_tokens"] for row in record["replicas"]], rel=0.02)
    running = [sum(row["running"][at] for row in over["replicas"]) for at in range(len(moments))]
    mean = sum(over["fleet"]["running"]) / len(moments)
    assert sum(running) / len(running) == pytest.approx(mean, rel=0.1), "looks at replicas follow the fleet's mean"
    assert all(0 <= part <= 1 for row in over["replicas"] for part in row["pages"])
    assert over["seconds"]["value"] == record["simulated_s"]


def test_numbers_are_those_of_the_command() -> None:
    fields = {**FLEET, "ttft": "500ms", "tpot": "40ms"}
    panels, _ = asked(fields, PANELS)
    printed = tools()["simulate"].call(fields, Listener()).to_dict()
    figures = {one["label"]: one["number"]["value"] for one in panels["answer"]["figures"]}
    assert figures["TTFT mean"] == printed["latency"]["ttft_s"]["mean"]
    assert figures["TPOT mean"] == printed["latency"]["tpot_s"]["mean"]
    assert figures["goodput"] == printed["rates"]["goodput_requests_per_s"]
    assert figures["busy"] == printed["utilisation"]
    assert panels["answer"]["meets"] is True
    assert panels["answer"]["holds"]
    rows = {row["name"]: row["cells"] for row in panels["percentiles"]["rows"]}
    assert rows["end to end"][4]["value"] == printed["latency"]["e2e_s"]["p99"]
    for one in panels["percentiles"]["series"]:
        shares = [share for _, share in one["points"]]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1.0)
    assert [row["tokens"]["value"] for row in panels["replicas"]["rows"]] == [
        row["output_tokens"] for row in printed["replicas"]
    ]


def test_what_does_not_hold_is_told_without_looking_for_what_would() -> None:
    slow = {**FLEET, "replicas": "1", "rate": "60/s", "tpot": "8ms"}
    said = asked(slow, ["answer"])[0]["answer"]
    assert not said["holds"]
    assert said["meets"] is False
    assert "does not hold" in said["sentence"]
    assert said["capacity"] == ""
    assert said["advice"].startswith("Overloaded")


@pytest.mark.slow
def test_what_would_hold_is_found() -> None:
    slow = {**FLEET, "replicas": "1", "rate": "30/s", "tpot": "8ms", "requests": "60", "max_rate": True}
    found = asked(slow, ["answer"])[0]["answer"]
    assert "requests/s at most" in found["capacity"]
    assert int(found["next"]["fields"]["replicas"]) > 1, "the next question is the fleet that would hold"


@pytest.mark.parametrize(
    "more",
    [
        {"prefill_on": "h100:1"},
        {"autoscale": "1..4,target=8,startup=2s", "replicas": ""},
        {"fail": "1@5s+5s"},
        {"rate": "", "clients": "8"},
        {"requests": "1"},
    ],
)
def test_odd_fleets_are_drawn(more: dict[str, Any]) -> None:
    panels, last = asked({**FLEET, "requests": "150", **more}, PANELS)
    assert "done" in last, last
    over = panels["over_time"]
    assert over["replicas"]
    assert all(len(row["running"]) == len(over["moments"]) for row in over["replicas"])
    if "prefill_on" in more:
        assert {row["pool"] for row in over["replicas"]} == {"serve", "prefill"}


def test_a_file_of_the_server_is_no_trace() -> None:
    for name in ("README", "trace.csv", "/etc/passwd"):
        _, last = asked({"model": "llama3-8b", "on": "h100:1", "trace": name}, ["answer"])
        assert last["error"]["kind"] == "input"
        assert "No such file" not in last["error"]["text"]


def test_a_dropped_trace_is_replayed() -> None:
    rows = "\n".join(f"{at / 10},200,20" for at in range(60))
    text = f"arrival_s,input_tokens,output_tokens\n{rows}\n"
    panels, last = asked(
        {"model": "llama3-8b", "on": "h100:1", "trace": "mine"}, [*PANELS, "record"], dropped={"mine": text}
    )
    assert "done" in last, last
    assert panels["record"]["requests"]["finished"] == 60
    assert panels["record"]["traffic"]["trace"] == "mine"
    _, last = asked({"model": "llama3-8b", "on": "h100:1", "trace": "mine"}, ["answer"], dropped={"mine": "a,b\n1,2\n"})
    assert "The trace 'mine' begins with" in last["error"]["text"]


def test_a_command_line_is_fields() -> None:
    line = "dscale simulate llama3-8b --on h100:1 --rate 4/s --prefixes '1x100' --max-rate"
    assert fields_of_command(line) == {
        "model": "llama3-8b",
        "on": "h100:1",
        "rate": "4/s",
        "prefixes": "1x100",
        "max_rate": True,
    }
    assert fields_of_command("") == {}
