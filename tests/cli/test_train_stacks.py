"""`dscale train` says which software an answer is for, and what the other stack that people run there would give."""

import json
from typing import Any

import msgspec
import pytest

from dragonscale.app.train.advice import advice_text, bound_by, worked_terms
from dragonscale.app.train.plans import DIFFERS, plan_report, slices_note
from dragonscale.app.train.train_records import SliceRow, StackRow
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.evaluation import make_job
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.step_ledger import WIRES

JOB = ["train", "llama3-8b", "--batch", "64seq", "--seq", "8192", "--fix", "mb1", "--remat", "none"]
SHORTER = "more or faster chips make it shorter"


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*JOB, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*JOB, *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_another_stack_that_is_faster_is_advised(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8"], capsys)
    own, other = told["stacks"]
    assert (own["stack"], other["stack"]) == ("torchtitan", "megatron-core")
    assert own["step_s"] == pytest.approx(told["plans"][0]["step_s"])
    there = answered(["--on", "h100:8", "--stack", "megatron-core"], capsys)
    assert other["step_s"] == there["stacks"][0]["step_s"] == pytest.approx(there["plans"][0]["step_s"])
    gain = own["step_s"] / other["step_s"] - 1
    assert told["plans"][0]["helps"][0] == {"change": "--stack megatron-core", "gain": pytest.approx(gain), "needs": ""}
    text = printed(["--on", "h100:8"], capsys)
    assert f"to change --stack megatron-core {gain:+.0%}" in text
    assert SHORTER not in text


def test_a_stack_that_was_named_is_taken_at_its_word(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8", "--stack", "torchtitan"], capsys)
    assert [one["stack"] for one in told["stacks"]] == ["torchtitan"]
    assert "with this stack" in told["plans"][0]["advice"]
    assert SHORTER not in told["plans"][0]["advice"]


def test_what_is_said_where_nothing_helps() -> None:
    assert advice_text("bound by compute", [], all_stacks=True) == f"bound by compute; only {SHORTER}."
    assert SHORTER not in advice_text("bound by compute", [], all_stacks=False)


def test_slices_are_compared_with_their_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8,b200:8,v6e:4x4", "--tokens", "100B"], capsys)
    rows = {row["slice"]: row for row in told["slices"]}
    stacks = {name: (row["stack"], [one["stack"] for one in row["others"]]) for name, row in rows.items()}
    assert stacks == {
        "h100:8": ("torchtitan", ["megatron-core"]),
        "b200:8": ("megatron-core", []),
        "v6e:4x4": ("maxtext", []),
    }
    hopper = rows["h100:8"]
    part = hopper["others"][0]["step_s"] / hopper["step_s"]
    line = f"h100:8 with megatron-core ${hopper['cost_usd'] * part:,.0f} ({part - 1:+.0%})"
    text = printed(["--on", "h100:8,b200:8,v6e:4x4", "--tokens", "100B"], capsys)
    assert f"With the other stack that people run there: {line}." in text
    assert "days cost stack plan" in text


def test_slices_of_a_named_stack_have_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(["--on", "h100:8,a100:16", "--stack", "megatron-core"], capsys)
    assert {(row["stack"], len(row["others"])) for row in told["slices"]} == {("megatron-core", 0)}
    assert not any("other stack" in note for note in told["notes"])


@pytest.mark.parametrize(
    ("cost", "per_token", "expected"), [(100.0, 0.1, "$80"), (None, 0.1, "$0.0800/Mtok"), (None, None, "8s")]
)
def test_the_line_speaks_of_what_the_table_ranks(cost: float | None, per_token: float | None, expected: str) -> None:
    row = SliceRow("h100:8", 8, "fsdp8", 10.0, 1e5, 0.4, per_token, None, cost, stack="torchtitan")
    row.others = [StackRow("megatron-core", "fsdp8", 8.0, 0.5)]
    assert slices_note([row]) == [
        f"With the other stack that people run there: h100:8 with megatron-core {expected} (-20%)."
    ]
    row.others = [StackRow("megatron-core", "fsdp8", 10.0 * (1 + DIFFERS / 2), 0.4)]
    assert slices_note([row]) == []
    row.others = [StackRow("megatron-core", "fsdp8", 8.0, 0.5, tight=True)]
    assert slices_note([row]) == []


def test_a_job_that_only_the_other_stack_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """torchtitan has no ZeRO-1, which is pinned here."""
    assert (
        main([*JOB[:6], "--on", "h100:16", "--fix", "fsdp16,zero=1,mb1", "--remat", "none", "--numerics", "benchmark"])
        == 3
    )
    assert "With --stack megatron-core there is a plan: fsdp16 z1 none" in " ".join(capsys.readouterr().out.split())


def test_work_and_waiting_are_told_apart_by_the_lines_of_the_ledger() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 64, 8192, "megatron-core")
    one = plan_report(job, parse_plan("pp4 tp8 fsdp2 mb1 zero=1 block"), brief=True)
    assert one.verdict is not None
    work, names = worked_terms(one.verdict.ledger), {row.name for row in one.terms}
    assert {"mlp matmuls", "attention (QK, softmax, PV)", "recompute", "optimizer"} <= work & names
    assert not work & {*WIRES, "pipeline bubble", "uneven stages", "stragglers", "host", "bound at datasheet rates"}
    assert {"tensor collectives", "pipeline bubble"} <= names - work
    shorter = [msgspec.structs.replace(row, exposed_s=9e9 * (row.name == "pipeline bubble")) for row in one.terms]
    assert (one.bound_by, bound_by(shorter, one.verdict.ledger)) == ("compute", "pipeline bubble")
