"""`dscale train` says which software an answer is for, and what the other stack that people run there would give."""

import json
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.train.advice import advice_text, help_row, help_text
from dragonscale.commands.train.slices import slices_note
from dragonscale.commands.train.train_records import Help, SliceRow, StackRow
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import render
from dragonscale.training.advice.speedups import other_stacks, speedups, terms_on_chip
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.stack_search import TIE_TOLERANCE

JOB = ["train", "llama3-8b", "--batch", "64seq", "--seq", "8192", "--fix", "mb1", "--remat", "none"]


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    start = JOB[:6] if "--plan" in arguments else JOB
    assert main([*start, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*JOB, *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_faster_stack_is_taken_and_the_other_named(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8"], capsys)
    own, other = told["stacks"]
    assert (own["stack"], other["stack"]) == ("megatron-lm", "torchtitan")
    assert told["workload"]["stack"] == told["plans"][0]["stack"] == "megatron-lm"
    assert own["step_s"] == pytest.approx(told["plans"][0]["step_s"])
    there = answered(["--on", "h100:8", "--stack", "torchtitan"], capsys)
    assert other["step_s"] == there["stacks"][0]["step_s"] == pytest.approx(there["plans"][0]["step_s"])
    assert (own["mostly"], other["mostly"]) == ("", "attention")
    slower = other["step_s"] / own["step_s"] - 1
    text = printed(["--on", "h100:8", "--explain"], capsys)
    assert f"other stacks torchtitan: step {slower:+.0%} ({render(other['step_s'], 's')}, mostly attention)" in text


def test_a_stack_that_was_named_is_taken_and_another_advised(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8", "--stack", "torchtitan"], capsys)
    assert [one["stack"] for one in told["stacks"]] == ["torchtitan"]
    best, other = told["plans"][0]["helps"][0], answered(["--on", "h100:8"], capsys)["plans"][0]
    assert best["change"] == "--stack megatron-lm"
    assert best["gain"] == pytest.approx(told["plans"][0]["step_s"] / other["step_s"] - 1, abs=0.02)
    given = answered(["--on", "h100:8", "--stack", "torchtitan", "--plan", "fsdp8 z2 none mb1", "--alone"], capsys)
    assert given["plans"][0]["helps"][0]["change"] == "--stack megatron-lm"


def test_no_other_release_of_the_same_software_is_advised() -> None:
    model, plan = load_model("llama3-8b"), parse_plan("fsdp8 z1 none")

    def advised(stack: str) -> list[str]:
        job = make_job(model, parse_slice("h100:8"), 64, 8192, stack)
        return [one.stack.name for one in other_stacks(job)]

    assert advised("torchtitan-2024") == ["megatron-lm"]
    assert advised("megatron-fp32") == ["torchtitan"]
    assert advised("maxtext") == ["torchtitan", "megatron-lm"]
    assert advised("generic") == []
    slow = make_job(model, parse_slice("h100:8"), 64, 8192, "megatron-fp32")
    assert not any("--stack" in help_row(slow, speedup).change for speedup in speedups(slow, plan))


def test_what_is_said_where_nothing_helps() -> None:
    alone = advice_text("bound by compute", [], stacks=False)
    assert alone == "bound by compute; nothing that was tried (batch, microbatch, recompute, links) gains more than 2%."
    assert "recompute, stack, links" in advice_text("bound by compute", [], stacks=True)


def test_advice_says_where_it_leaves_no_room() -> None:
    """Twice the microbatch fits here, above what is recommended."""
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 512, 8192, "megatron-lm")
    found = [help_row(job, speedup) for speedup in speedups(job, parse_plan("fsdp8 z1 block mb1"))]
    room = [one for one in found if not one.needs]
    assert room or all("of memory" in one.needs or "GB a chip" in one.needs for one in found)
    assert help_text([Help("remat=none", 0.1, "94% of memory")]) == (
        "nothing that leaves room in memory; remat=none +10% (needs 94% of memory)."
    )


def test_slices_are_compared_with_their_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8,b200:8,v6e:4x4", "--tokens", "100B"], capsys)
    rows = {row["slice"]: row for row in told["slices"]}
    stacks = {name: (row["stack"], [one["stack"] for one in row["others"]]) for name, row in rows.items()}
    assert stacks == {
        "h100:8": ("megatron-lm", ["torchtitan"]),
        "b200:8": ("megatron-lm", []),
        "v6e:4x4": ("maxtext", []),
    }
    hopper = rows["h100:8"]
    alone = answered(["--on", "h100:8", "--tokens", "100B"], capsys)
    assert hopper["stack"] == alone["plans"][0]["stack"]
    assert hopper["step_s"] == pytest.approx(alone["plans"][0]["step_s"])
    assert hopper["cost_usd"] == pytest.approx(alone["goodput"]["cost_usd"])
    part = hopper["others"][0]["step_s"] / hopper["step_s"]
    line = f"h100:8 with torchtitan ${hopper['cost_usd'] * part:,.0f} ({part - 1:+.0%})"
    text = printed(["--on", "h100:8,b200:8,v6e:4x4", "--tokens", "100B"], capsys)
    assert f"With the other stack that people run there: {line}." in text
    assert "days cost stack plan" in text


def test_notes_under_several_slices_name_the_slice(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["train", "gpt2-xl", "--batch", "64seq", "--seq", "1024", "--on", "v100:8,v100:16"]
    assert main([*job, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any(note.startswith("v100:16: Taken as megatron-2021 has it there: dtype=fp16") for note in told["notes"])


def test_chips_without_a_price_are_ranked_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the step ranks them, a missing price moves no one down."""
    told = answered(["--on", "h800:8,h100:8"], capsys)
    (note,) = [note for note in told["notes"] if "No price" in note]
    assert note == "No price is known for h800; give --price h800=2/h."
    ranked = answered(["--on", "h800:8,h100:8", "--rank", "cost"], capsys)
    assert any("after those with a price" in note for note in ranked["notes"])


def test_scaling_names_the_stack_of_each_slice(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8", "--scaling"], capsys)
    assert {row["stack"] for row in told["scaling"] if row["plan"]} == {"megatron-lm"}
    assert "slice stack step" in printed(["--on", "h100:8", "--scaling"], capsys)


def test_what_follows_an_answer_is_of_its_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved plan, the ledger and a plan given back have the stack that was taken."""
    report = ds.train("llama3-8b", on="h100:8", batch="64seq", seq="8192", fix="mb1", remat="none")
    best = report.plans[0]
    assert report.asked.job.on_slice().stack.name == best.stack == "megatron-lm"
    assert report.ledger.total("exposed_s") == pytest.approx(best.step_s)
    report.save(str(tmp_path / "plan.toml"))
    assert 'stack = "megatron-lm"' in (tmp_path / "plan.toml").read_text()
    given = answered(["--on", "h100:8", "--plan", short_plan(best.plan), "--alone"], capsys)
    assert given["plans"][0]["stack"] == "megatron-lm"
    assert given["plans"][0]["step_s"] == pytest.approx(best.step_s)


def test_slices_of_a_named_stack_have_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8,a100:16", "--stack", "megatron-lm"], capsys)
    assert {(row["stack"], len(row["others"])) for row in told["slices"]} == {("megatron-lm", 0)}
    assert not any("other stack" in note for note in told["notes"])


@pytest.mark.parametrize(
    ("cost", "per_token", "expected"), [(100.0, 0.1, "$80"), (None, 0.1, "$0.0800/Mtok"), (None, None, "8s")]
)
def test_the_line_speaks_of_what_the_table_ranks(cost: float | None, per_token: float | None, expected: str) -> None:
    row = SliceRow("h100:8", 8, "fsdp8", 10.0, 1e5, 0.4, per_token, None, cost, stack="torchtitan")
    row.others = [StackRow("megatron-lm", "fsdp8", 8.0, 0.5)]
    assert slices_note([row]) == [
        f"With the other stack that people run there: h100:8 with megatron-lm {expected} (-20%)."
    ]
    row.others = [StackRow("megatron-lm", "fsdp8", 10.0 * (1 + TIE_TOLERANCE / 2), 0.4)]
    assert slices_note([row]) == []
    row.others = [StackRow("megatron-lm", "fsdp8", 8.0, 0.5, tight=True)]
    assert slices_note([row]) == []


def test_a_job_that_only_the_other_stack_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """torchtitan has no ZeRO-1, which is pinned here."""
    assert main([*JOB[:6], "--on", "a100:16", "--fix", "fsdp16,zero=1,mb1", "--remat", "block", "--explain"]) == 0
    assert "stack megatron-lm (auto: usual for dense" in " ".join(capsys.readouterr().out.split())


def test_work_and_waiting_are_told_apart_by_the_lines_of_the_ledger() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 64, 8192, "megatron-lm")
    ledger = judge_one(job, parse_plan("pp4 tp8 fsdp2 mb1 zero=1 block")).ledger
    work, names = terms_on_chip(ledger), {line.term for line in ledger.lines}
    assert {"mlp matmuls", "attention (QK, softmax, PV)", "recompute", "optimizer"} <= work & names
    assert not work & {*WIRES, "pipeline bubble", "uneven stages", "stragglers", "host", "bound at datasheet rates"}
    assert {"tensor collectives", "pipeline bubble"} <= names - work


@pytest.mark.parametrize(("plan", "told"), [("fsdp16 mb1", True), ("fsdp16 mb2", False), ("fsdp8 cp2 mb1", False)])
def test_half_a_sequence_for_each_device_is_told(plan: str, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    question = ["train", "llama3-8b", "--on", "tpu7x:2x2x4", "--batch", "64seq", "--seq", "8192", "--alone"]
    assert main([*question, "--plan", plan, "--explain"]) == 0
    assert ("2 devices split a sequence of microbatch=1" in " ".join(capsys.readouterr().out.split())) == told
