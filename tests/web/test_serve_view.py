"""The panels of the serve tab: their sums, their numbers beside the command's own, crossings, and what they say of odd
questions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.listener import Listener
from dragonscale.web.answers import answer
from dragonscale.web.page_request import KEPT

LIVE = ["answer", "time", "memory", "roofline", "mesh"]
ALL = [*LIVE, "timeline", "frontier", "batches"]
DENSE = {"model": "llama3-8b", "on": "h100:2", "prompt": "1024", "output": "256"}
JOBS: dict[str, dict[str, Any]] = {
    "dense": {**DENSE, "tpot": "15ms"},
    "experts and latent attention": {
        "model": "deepseek-v3",
        "on": "h200:16",
        "prompt": "2048",
        "output": "512",
        "plan": "dp16 ep16",
        "batch": "512",
    },
    "experts over both axes": {
        "model": "deepseek-v3",
        "on": "h200:8",
        "plan": "tp4 dp2 ep8",
        "batch": "64",
        "engine": "sglang",
    },
    "torus": {"model": "llama3-70b", "on": "v5e:4x4", "dtype": "int8", "plan": "tp16", "batch": "16", "prompt": "7000"},
    "cached prefix": {**DENSE, "plan": "tp2", "batch": "64", "cached": "0.5"},
    "one token": {**DENSE, "plan": "tp1", "batch": "8", "output": "1"},
}


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    KEPT.clear()


def asked(fields: dict[str, Any], panels: list[str], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panels of a question, and the last message."""
    messages: list[dict[str, Any]] = []
    answer({"view": "serve", "fields": fields, "panels": panels, **more}, messages.append)
    json.dumps(messages, allow_nan=False)
    return {one["panel"]: one["data"] for one in messages if "panel" in one}, messages[-1]


@pytest.mark.parametrize("job", JOBS)
def test_parts_add_up(job: str) -> None:
    panels, last = asked(JOBS[job], ALL)
    assert "done" in last, last
    bars = {bar["name"]: bar for bar in panels["time"]["bars"]}
    assert set(bars) == ({"prefill"} if job == "one token" else {"decode", "prefill"})
    for bar in bars.values():
        shown = sum(part["shown"]["value"] for part in bar["parts"])
        assert shown == pytest.approx(bar["total"]["value"], rel=1e-6), bar["name"]
        assert 0 < bar["lower"]["value"] < 0.98 * bar["total"]["value"], "the bound is a time of its own, below"
        for part in bar["parts"]:
            lines = sum(line["exposed"]["value"] for line in part["lines"])
            assert lines == pytest.approx(part["shown"]["value"], rel=1e-9), part["name"]
    memory = panels["memory"]
    assert sum(part["shown"]["value"] for part in memory["parts"]) == pytest.approx(memory["used"]["value"], rel=1e-9)
    named = {part["name"]: part for part in memory["parts"]}
    assert named["weights"]["lines"], "weights open their tensors"
    assert bool(named["KV cache"]["lines"]) == (job != "cached prefix")
    whole = sum(part["shown"]["value"] for part in [*memory["parts"], *memory["rest"]])
    assert whole == pytest.approx(memory["limit"]["value"], rel=1e-6)
    step = panels["timeline"]["total"]["value"]
    assert step == pytest.approx(sum(bar["total"]["value"] for bar in bars.values()), rel=1e-6)


@pytest.mark.parametrize("job", ["experts and latent attention", "experts over both axes", "torus"])
def test_operations_lie_under_the_roof_and_axes_carry_their_collectives(job: str) -> None:
    panels, _ = asked(JOBS[job], LIVE)
    roofs, points = panels["roofline"]["roofs"], panels["roofline"]["points"]
    peak = max(roof["peak"] for roof in roofs)
    assert {point["phase"] for point in points} == {"decode", "prefill"}
    assert all(0 < point["rate"] <= peak for point in points)
    axes = panels["mesh"]["axes"]
    degrees = {"torus": {"tensor": 16}, "experts over both axes": {"data": 2, "tensor": 4}}.get(job, {"data": 16})
    assert {axis["name"]: axis["degree"] for axis in axes} == degrees
    for bar in panels["time"]["bars"]:
        moves = [move for axis in axes for move in axis["moves"] if move["phase"] == bar["name"]]
        sent = sum(move["exposed"]["value"] for move in moves)
        wires = [part for part in bar["parts"] if part["name"].split()[-1] in ("collectives", "exchange")]
        assert sent == pytest.approx(sum(part["shown"]["value"] for part in wires), rel=1e-3), bar["name"]
        assert sent > 0


def test_numbers_are_those_of_the_command() -> None:
    fields = JOBS["dense"]
    panels, _ = asked(fields, ["answer", "frontier", "record"])
    tool = tools()["serve"]
    printed = tool.call(fields, Listener()).to_dict()
    first, said = printed["configs"][0], panels["answer"]
    figures = {one["label"]: one["number"]["value"] for one in said["figures"]}
    assert figures["TTFT"] == first["ttft_s"]
    assert figures["TPOT"] == first["tpot_s"]
    assert figures["output tokens/s per chip"] == first["output_tokens_per_s_per_chip"]
    assert figures["per million output tokens"] == first["cost_usd_per_mtok"]
    assert panels["record"]["configs"][0] == first
    # a configuration that is clicked, and the dragged plan in brief, are the same configuration
    for brief in (False, True):
        again = asked({**fields, **said["configs"][1]["fields"]}, ["answer"], brief=brief)[0]["answer"]
        other = printed["configs"][1]
        assert again["figures"][1]["number"]["value"] == other["tpot_s"]
        assert again["settings"]["plan"] == other["plan"]
    chosen = [point for point in panels["frontier"]["points"] if point["chosen"]]
    assert [(point["x"], point["y"]) for point in chosen] == [
        (first["tokens_per_s_per_user"], first["output_tokens_per_s_per_chip"])
    ]
    ends = panels["frontier"]["frontier"]
    assert [x for x, _ in ends] == sorted((x for x, _ in ends), reverse=True)
    assert panels["frontier"]["rules"][0]["at"] == pytest.approx(1 / 0.015)


def test_crossings_are_marked_where_they_are_solved() -> None:
    fields = {**DENSE, "plan": "tp2", "tpot": "15ms"}
    panels, _ = asked(fields, ["answer", "batches", "record"])
    batches, record = panels["batches"], panels["record"]
    critical = next(row["value"] for row in record["limits"] if row["name"] == "critical batch")
    mark = batches["marks"][1]
    assert mark["x"] == critical
    assert "compute takes over" in mark["text"]
    lines = {one["name"]: one["points"] for one in batches["series"]}
    by = {name: dict(map(tuple, points)) for name, points in lines.items()}
    both = sorted(set(by["matmul FLOPs"]) & set(by["weight reads"]))
    crossed = [batch for batch in both if by["matmul FLOPs"][batch] > by["weight reads"][batch]]
    # the heaviest matmul crosses at its own batch, the whole within a grid step or two of it
    assert crossed
    assert crossed[0] == pytest.approx(critical, rel=0.35)
    rules = {rule["text"]: rule["at"] for rule in batches["rules"] if rule.get("along") != "y"}
    met = next(at for text, at in rules.items() if text.startswith("SLO met up to"))
    over, under = (
        asked({**fields, "batch": str(batch)}, ["answer"], brief=True)[0]["answer"] for batch in (met + 1, met)
    )
    assert under["meets"]
    assert not over["meets"]
    assert "misses the SLO" in over["sentence"]
    assert sum(row["here"] for row in batches["crossings"]) == 1
    # of mean and of full length: the picture's own limit stands beside the solved one
    largest = next(row["text"] for row in batches["crossings"] if row["text"].startswith("largest batch"))
    assert largest.endswith(f"at full length {next(text for text in rules if text.endswith('fit'))}")


def test_what_cannot_be_served_is_told() -> None:
    panels, last = asked({**DENSE, "model": "llama3-70b", "on": "h100:1"}, ALL)
    assert "done" in last
    assert not panels["answer"]["feasible"]
    assert "does not fit" in panels["answer"]["sentence"]
    assert panels["time"] == {"bars": []}
    over = {**DENSE, "plan": "tp2", "batch": "100000"}
    told = [asked(over, ["answer"], brief=brief)[0]["answer"]["sentence"] for brief in (True, False)]
    assert told[0] in told[1] or "at most" in told[1]
    missed = asked({**DENSE, "tpot": "1us"}, ["answer"], brief=True)[0]["answer"]
    assert missed["feasible"]
    assert not missed["meets"]
    assert "misses the SLO" in missed["sentence"]
    assert [one["met"] for one in missed["figures"] if one["label"] == "TPOT"] == [False]
    for wrong in (
        {"on": "h100:3x3"},
        {"batch": "-4"},
        {"plan": "tp3"},
        {"output": "-1"},
        {"tpot": "soon"},
        {"kv_dtype": "int3"},
    ):
        _, last = asked({**DENSE, **wrong}, ["answer"])
        assert last["error"]["kind"] == "input", wrong


def test_the_answer_opens_the_simulation_of_its_own_fleet() -> None:
    said = asked({**DENSE, "rate": "20/s"}, ["answer"])[0]["answer"]
    fields = said["simulate"]
    assert fields["model"] == "llama3-8b"
    assert fields["rate"] == "20/s"
    assert fields["prompt"] == "1024"
    assert tools()["simulate"].question(fields).replicas == int(fields.get("replicas", 0)) or "replicas" not in fields


def test_a_rate_is_answered_with_the_fleet_first() -> None:
    """Sentence and figures are of the fleet, those of a full replica stand apart, and the table has chips and $/h."""
    panels, _ = asked(
        {"model": "deepseek-v3", "on": "h200", "rate": "50/s", "prompt": "2000", "output": "500"}, ["answer", "record"]
    )
    said, best = panels["answer"], panels["record"]["configs"][0]
    assert best["fleet_ttft_s"] < best["ttft_s"], "the fleet has headroom"
    figures = {one["label"]: one["number"] for one in said["figures"]}
    shown = ["replicas", "chips", "cost of an hour", "TTFT", "TPOT", "per million output tokens"]
    assert list(figures) == shown
    fields = ["replicas", "fleet_chips", "fleet_usd_per_h", "fleet_ttft_s", "fleet_tpot_s", "fleet_usd_per_mtok"]
    assert [figures[label]["value"] for label in shown] == [best[field] for field in fields]
    for label in shown[:5]:
        assert figures[label]["text"] in said["sentence"], label
    replica = {one["label"]: one["number"]["value"] for one in said["replica"]["figures"]}
    assert replica["TTFT"] == best["ttft_s"]
    assert "full load" in said["replica"]["about"]
    hours = [row["hour"]["value"] for row in said["configs"]]
    assert hours == [row["fleet_usd_per_h"] for row in panels["record"]["configs"]]
    assert said["dearer"] or hours[0] == min(hours)
    assert not any("next command" in note for note in said["notes"]), "it is a button here"
    alone = asked(DENSE, ["answer"])[0]["answer"]
    assert "replica" not in alone
    assert "per million output tokens" in alone["sentence"]


@pytest.mark.slow
def test_what_would_meet_the_targets_is_told() -> None:
    said = asked({**DENSE, "tpot": "1us"}, ["answer"])[0]["answer"]
    assert any("Nothing meets the targets" in note for note in said["notes"])


def test_drafts_are_told_as_asked() -> None:
    """The number that the answer's TPOT rests on, not the best one."""
    fields = {"model": "llama3-8b", "on": "h100:1", "prompt": "512", "output": "128", "accept": "0.8", "drafts": "4"}
    told: list[dict[str, Any]] = []
    answer({"view": "serve", "fields": fields, "panels": ["answer"]}, told.append)
    notes = next(one["data"]["notes"] for one in told if one.get("panel") == "answer")
    assert any(note.startswith("Speculation: 4 drafts a step") for note in notes), notes
    assert any(note.startswith("Simulated: TTFT ") for note in notes), notes
    assert any(note.startswith("No target was given") for note in notes), notes
