"""The panels of the train tab: their sums, their numbers beside the command's own, and what they say
of odd questions."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dragonscale.commands.compare.sides import DOLLARS, training_side
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.listener import Listener
from dragonscale.training.cost.formulas import formula_verdict
from dragonscale.training.cost.wire_crossings import crossings
from dragonscale.web.answers import answer
from dragonscale.web.page_request import KEPT, PageRequest
from dragonscale.web.views.train_curves import nearby
from dragonscale.web.views.train_plan import SEQUENCES, job_of

CORE = ["answer", "time", "memory", "mesh"]
QUICK = [*CORE, "sliders", "roofline", "timeline", "batches", "trace"]
DENSE = {
    "model": "llama3-8b",
    "on": "h100:64",
    "batch": "64seq",
    "seq": "8192",
    "plan": "fsdp8 tp8 z3 block",
    "alone": True,
}
JOBS: dict[str, dict[str, Any]] = {
    "torus": {
        "model": "llama3-70b",
        "on": "v5p:8x16x16",
        "batch": "4Mi",
        "seq": "8192",
        "plan": "fsdp512 cp4 z3 none",
        "alone": True,
    },
    "pipeline": {
        "model": "llama3-70b",
        "on": "h100:256",
        "batch": "256seq",
        "seq": "8192",
        "plan": "pp4 dp8 tp8 z1 block",
        "alone": True,
    },
    "experts": {
        "model": "mixtral-8x7b",
        "on": "h100:64",
        "batch": "128seq",
        "seq": "4096",
        "plan": "ep8 fsdp8 z3 block",
        "alone": True,
    },
    "one chip": {
        "model": "qwen2.5-0.5b",
        "on": "h100:1",
        "batch": "8seq",
        "seq": "2048",
        "plan": "z3 block",
        "alone": True,
    },
    "too large": {
        "model": "llama3-70b",
        "on": "h100:8",
        "batch": "8seq",
        "seq": "8192",
        "plan": "fsdp8 z3 block",
        "alone": True,
    },
    "does not divide": {**DENSE, "batch": "60seq"},
}


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    KEPT.clear()


def asked(fields: dict[str, Any], panels: list[str], **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The panels of a question (the last of each name) and every message."""
    messages: list[dict[str, Any]] = []
    answer({"view": "train", "fields": fields, "panels": panels, **more}, messages.append)
    json.dumps(messages, allow_nan=False)
    return {one["panel"]: one["data"] for one in messages if "panel" in one}, messages


@pytest.mark.parametrize("job", [job for job in JOBS if job not in ("too large", "does not divide")])
def test_parts_add_up(job: str) -> None:
    panels, messages = asked(JOBS[job], QUICK)
    assert "done" in messages[-1], messages[-1]
    time, memory = panels["time"], panels["memory"]
    assert sum(part["shown"]["value"] for part in time["parts"]) == pytest.approx(time["total"]["value"], rel=1e-6)
    assert sum(part["shown"]["value"] for part in memory["parts"]) == pytest.approx(memory["used"]["value"], rel=1e-6)
    for part in time["parts"]:
        exposed = sum(line["exposed"]["value"] for line in part["lines"])
        assert exposed == pytest.approx(part["shown"]["value"], rel=1e-6, abs=1e-9), part["name"]
    for part in memory["parts"]:
        assert sum(line["bytes"]["value"] for line in part["lines"]) == pytest.approx(part["shown"]["value"], rel=1e-6)
    tracks = {track["name"]: track["slices"] for track in panels["timeline"]["tracks"]}
    end = max(start + length for _, start, length, *_ in tracks["compute"])
    assert end == pytest.approx(time["total"]["value"], rel=1e-6)
    for depth in (0, 1, 2):  # passes, sections and lines each fill the whole step
        filled = sum(length for _, _, length, deep, *_ in tracks["compute"] if deep == depth)
        assert filled == pytest.approx(time["total"]["value"], rel=1e-6)


@pytest.mark.parametrize("job", ["torus", "pipeline", "experts"])
def test_mesh_names_its_wires_and_holds_every_byte(job: str) -> None:
    panels, _ = asked(JOBS[job], [*CORE, "record"])
    mesh, record = panels["mesh"], panels["record"]
    sent = sum(move["bytes"]["value"] for axis in mesh["axes"] for move in axis["moves"])
    assert sent == pytest.approx(sum(record["plans"][0]["sent_bytes"].values()), rel=0.01)
    assert all(axis["lies"] for axis in mesh["axes"])
    assert mesh["wiring"]
    chips = 1
    for axis in mesh["axes"]:
        chips *= axis["degree"]
    assert chips == record["plans"][0]["chips"]


def test_numbers_are_those_of_the_command() -> None:
    panels, _ = asked(JOBS["torus"], [*CORE, "record"])
    one = panels["record"]["plans"][0]
    shown = {figure["label"]: figure["number"] for figure in panels["answer"]["figures"]}
    assert shown["step"]["value"] == one["step_s"]
    assert shown["MFU"]["value"] == one["mfu"]
    assert shown["memory"]["value"] == one["hbm_bytes"]
    assert panels["answer"]["settings"] == one["plan"]
    terms = {term["name"]: term["exposed_s"] for term in one["terms"] if term["exposed_s"]}
    assert {part["name"]: part["shown"]["value"] for part in panels["time"]["parts"] if part["shown"]["value"]} == terms


def test_brief_answers_show_the_same_numbers() -> None:
    whole, _ = asked(DENSE, CORE)
    brief, _ = asked(DENSE, CORE, brief=True)
    assert brief["answer"]["figures"] == whole["answer"]["figures"]
    assert brief["mesh"] == whole["mesh"]
    assert [part["shown"] for part in brief["time"]["parts"]] == [part["shown"] for part in whole["time"]["parts"]]


def test_every_number_has_a_derivation() -> None:
    panels, _ = asked({**DENSE, "tokens": "1T"}, CORE)
    figures = panels["answer"]["figures"]
    assert {one["label"] for one in figures} >= {"step", "MFU", "memory", "run", "cost"}
    assert all(one["number"]["why"] for one in figures)
    assert all(part["shown"]["why"] for name in ("time", "memory") for part in panels[name]["parts"])
    assert all(move["bytes"]["why"] for axis in panels["mesh"]["axes"] for move in axis["moves"])


def test_money_and_days_are_in_the_sentence_and_rounded() -> None:
    """What a million tokens cost without a run; with one its days and dollars, as compare and the command have them."""
    alone = asked(DENSE, ["answer"])[0]["answer"]
    shown = {one["label"]: one["number"] for one in alone["figures"]}
    side = training_side(tools()["train"].call(DENSE, Listener()))
    assert shown["per million tokens"]["value"] == next(one.value for one in side.figures if one.name == DOLLARS)
    assert alone["sentence"].endswith(f" A million tokens cost {shown['per million tokens']['text']}.")
    panels, _ = asked({**DENSE, "tokens": "15T"}, ["answer", "record"])
    run, said = panels["record"]["goodput"], panels["answer"]
    assert said["sentence"].endswith(
        f" 15T tokens take {run['days']:,.0f} days and ${run['cost_usd'] / 1e6:.3g}M, failures included."
    )
    texts = [one["number"]["text"] + one["about"] for one in said["figures"]]
    dollars = [found for text in texts for found in re.findall(r"\$([\d.,]+)", text)]
    assert len(dollars) >= 3
    assert all(len(found.replace(".", "").lstrip("0")) <= 3 for found in dollars), dollars


def test_crossovers_are_those_of_explain() -> None:
    fields = {
        "model": "llama3-8b",
        "on": "v5p:4x4x4",
        "batch": "64seq",
        "seq": "8192",
        "plan": "fsdp64 z3 none",
        "alone": True,
    }
    panels, _ = asked(fields, ["batches"])
    _, job, plan = job_of(PageRequest.read({"view": "train", "fields": fields}, lambda _: None))
    solved = [one.value for one in crossings(*formula_verdict(job, plan), ["batch"], plan) if one.value is not None]
    assert len(solved) == 1
    assert [rule["at"] for rule in panels["batches"]["rules"]] == [pytest.approx(value, rel=1e-4) for value in solved]


def test_crossovers_are_marked_and_said() -> None:
    panels, _ = asked(JOBS["torus"], ["batches", "answer"])
    batches = panels["batches"]
    assert "fsdp collectives hide from 2.08Mi tokens on" in batches["words"]
    assert batches["rules"][0]["text"] == batches["words"][0]
    assert any("context collectives could always hide" in text for text in batches["words"])
    assert panels["answer"]["region"]["bound"] == "compute"
    assert batches["marks"][0]["x"] == 4 * 2**20


def test_best_plans_over_batches_mark_where_the_network_begins_to_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from dragonscale.web.views import train_curves

    monkeypatch.setattr(train_curves, "nearby", lambda batch: [batch, batch // 4])
    fields = {name: value for name, value in JOBS["torus"].items() if name not in ("plan", "alone")}
    panels, messages = asked({**fields, "fix": "zero=3,remat=none"}, ["best_batches"])
    curve = panels["best_batches"]
    partial = [one["data"]["done"] for one in messages if one.get("panel") == "best_batches"]
    assert partial == [1, 2]
    assert any("progress" in one for one in messages)
    bounds = {point["sequences"]: point["bound"] for point in curve["points"]}
    assert bounds[512] == "compute"
    assert bounds[128] == "communication"
    (rule,) = curve["rules"]
    assert "communication-bound below" in rule["text"]
    assert 2**20 < rule["at"] < 2**22
    for point in curve["points"]:
        assert point["sequences"] % point["divides"] == 0


def test_batches_tried_begin_with_the_own_one() -> None:
    assert nearby(512)[0] == 512
    assert set(nearby(512)) == {32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096}
    assert nearby(1) == [1, 2, 4, 8, 3, 6]
    assert set(nearby(512)) < set(SEQUENCES)


def test_infeasible_plans_say_why_and_take_no_time() -> None:
    panels, _ = asked(JOBS["too large"], CORE)
    said = panels["answer"]
    assert not said["feasible"]
    assert "GB per chip" in said["sentence"]
    assert not panels["time"]["parts"]
    assert panels["memory"]["used"]["value"] > panels["memory"]["limit"]["value"]  # what it lacks is shown
    panels, _ = asked(JOBS["does not divide"], CORE, brief=True)
    assert "does not divide into 8 replicas" in panels["answer"]["problems"][0]
    assert not panels["time"]["parts"]
    assert not panels["memory"]["parts"]
    assert {one["number"]["value"] for one in panels["answer"]["figures"]} == {None}
    assert panels["answer"]["region"] is None  # nothing is said to bound what does not run


def test_where_nothing_fits_the_answer_says_so_and_names_what_would() -> None:
    fields = {
        "model": "llama3-70b",
        "on": "h100:8",
        "batch": "8seq",
        "seq": "8192",
        "fix": "zero=3,tensor=1",
        "remat": "block",
    }
    panels, messages = asked(fields, [*QUICK[:-2], "batches"])
    assert "done" in messages[-1]
    said = panels["answer"]
    assert not said["feasible"]
    assert "plans is feasible" in said["sentence"]
    assert said["neighbours"][0]["on"].startswith("h100:")
    assert panels["mesh"]["frames"] == []


def test_sliders_stop_at_what_the_plan_divides() -> None:
    panels, _ = asked(JOBS["torus"], ["sliders"])
    sliders = panels["sliders"]
    assert all(stop["value"] % 512 == 0 for stop in sliders["batch"])
    assert any(stop["text"] == "512 sequences, 4Mi tokens" for stop in sliders["batch"])
    assert sliders["at"]["chips"] == 2048


def test_what_if_changes_stay_in_their_field() -> None:
    panels, _ = asked({**JOBS["torus"], "set": "hbm=2x"}, ["answer"])
    assert panels["answer"]["on"] == "v5p:8x16x16"
    assert panels["answer"]["slice"] == "v5p+hbm=2x:8x16x16"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"on": "h100:64,v5p:4x4x4"}, "--plan needs a slice"),
        ({"plan": "tq8"}, "is not a setting"),
        ({"batch": "no"}, "batch"),
        ({"model": "llama4-70b"}, "no model"),
        ({"plan": "../x.toml"}, "looks like a file"),
        ({"seq": "0"}, "--seq"),
    ],
)
def test_what_is_wrong_is_said_shortly(changes: dict[str, Any], words: str) -> None:
    _, messages = asked({**DENSE, **changes}, CORE)
    error = messages[-1]["error"]
    assert error["kind"] == "input"
    assert words in error["text"]
    assert len(re.findall(r"\. [A-Z]", error["text"])) <= 2  # what was given, what is allowed, where all names are


def test_several_slices_are_rows_that_can_be_taken() -> None:
    fields = {
        "model": "llama3-8b",
        "on": "h100:8,v5e:4x4",
        "batch": "16seq",
        "seq": "2048",
        "remat": "block",
        "fix": "zero=3,tensor=1",
    }
    panels, messages = asked(fields, [*CORE, "sliders", "batches", "roofline"])
    assert "done" in messages[-1]
    assert {row["on"] for row in panels["answer"]["slices"]} == {"h100:8", "v5e:4x4"}
    assert panels["mesh"]["slice"] == panels["answer"]["slice"]


def test_a_given_plan_is_held_against_the_best() -> None:
    fields = {"model": "llama3-8b", "on": "h100:8", "batch": "16seq", "seq": "4096", "plan": "tp8 z3 block"}
    panels, _ = asked(fields, ["against"])
    assert "MFU" in panels["against"]["text"]
    assert panels["against"]["best"]["plan"]
    assert panels["against"]["changes"]
