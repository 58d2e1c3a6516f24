"""What `dscale train` and `compare` say first, and what they name next: each is asked, and what it names is run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from dragonscale.faces.cli import main

JOB = ["train", "llama3-8b", "--on", "h100:16", "--batch", "1Mi", "--seq", "8192"]
QUICK = ["--remat", "block", "--fix", "zero=3,schedule=1f1b", "--stack", "megatron-core"]
PIPE = ["train", "llama3-70b", "--on", "h100:64", "--batch", "256seq", "--seq", "8192", "--plan", "pp4 fsdp2 tp8 z1"]


def text_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def next_of(text: str) -> list[str]:
    """The command after `Next:`."""
    return shlex.split(text.rpartition("Next:")[2])[1:]


def test_scaling_goes_from_one_slice_to_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*JOB[:3], "h100:8,h100:64", *JOB[4:], *QUICK, "--scaling"]
    text = text_of(asked, capsys)
    assert re.findall(r"^(h100:\d+) +megatron-lm", text, re.M) == ["h100:8", "h100:16", "h100:32", "h100:64"]
    assert "over those on h100:8" in text
    assert "slices, best first" not in text  # the same rows once
    rows = json.loads(text_of([*asked, "--json"], capsys))["scaling"]
    assert rows[0]["efficiency"] == pytest.approx(1.0)


def test_scaling_is_against_the_slice_that_was_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of([*JOB, *QUICK, "--scaling"], capsys)
    rows = json.loads(text_of([*JOB, *QUICK, "--scaling", "--json"], capsys))["scaling"]
    assert {row["slice"]: row["efficiency"] for row in rows}["h100:16"] == pytest.approx(1.0)
    assert "over those on h100:16" in text
    assert "plans, the recommended one first" not in text  # --explain has them


def test_a_changed_chip_stands_beside_the_one_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(text_of([*PIPE, "--alone", "--json"], capsys))["plans"][0]["step_s"]
    asked = [*PIPE, "--alone", "--set", "nvlink=2x"]
    changed = json.loads(text_of([*asked, "--json"], capsys))
    assert changed["unchanged"]["slice"] == "h100:64"
    assert changed["unchanged"]["step_s"] == pytest.approx(plain)
    gain = plain / changed["plans"][0]["step_s"] - 1
    assert gain > 0.02
    assert f"the change brings {gain:+.1%} tokens/s" in " ".join(text_of(asked, capsys).split())
    searched = json.loads(text_of([*JOB, *QUICK, "--set", "hbm=2x", "--json"], capsys))["unchanged"]
    again = json.loads(text_of([*JOB, *QUICK, "--json"], capsys))["plans"][0]["step_s"]
    assert searched["step_s"] == pytest.approx(again)  # summed in another order
    assert json.loads(text_of([*JOB, *QUICK, "--json"], capsys))["unchanged"] is None


def test_what_was_looked_for_stands_first(capsys: pytest.CaptureFixture[str]) -> None:
    largest = text_of([*JOB, *QUICK, "--largest", "batch"], capsys)
    assert re.search(r"^answer +At most [\d,]+ sequences", largest, re.M)
    assert largest.index("answer") < largest.index("plan  ")
    several = " ".join(text_of([*JOB[:3], "h100:16,h200:16", *JOB[4:], *QUICK], capsys).split())
    assert re.search(
        r"answer h\d00:16, the fastest of 2; h\d00:16 takes [\d.]+s a step \((?:\+\d+%|as fast)\), dollars", several
    )


def test_no_suspect_takes_longer_than_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks recomputed after all would take a third longer, far beyond a step that is a fifth slower."""
    given = json.loads(text_of([*PIPE, "--alone", "--json"], capsys))["plans"][0]
    measured = 1.2 * given["step_s"]
    found = json.loads(text_of([*PIPE, "--alone", "--measured", f"{measured}s", "--json"], capsys))["measured"]
    fast = given["step_low_s"] / given["step_s"]
    assert found["suspects"]
    assert all(one["step_s"] * fast <= measured for one in found["suspects"])
    assert not any("recomputed" in one["cause"] for one in found["suspects"])


def test_the_next_command_goes_on_from_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    given = next_of(text_of([*PIPE, "--fix", "remat=none", "--stack", "megatron-core"], capsys))
    assert given[:2] == ["compare", "pp4 fsdp2 tp8 z1 none 1f1b"]
    compared = text_of(given, capsys)
    assert "fastest B:" in " ".join(compared.split())
    assert next_of(compared)[:2] == ["train", "llama3-70b"]
    nothing = text_of(["train", "llama3-70b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192"], capsys, 3)
    near = next_of(nothing)
    assert near[near.index("--on") + 1] in nothing.partition("Next:")[0]
    assert main(near) == 0


def test_compared_heads_are_found_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--model", "llama3-70b", "--on", "h100:64", "--batch", "256seq", "--seq", "8192", "--stack", "megatron-core"]
    note = "The head matmuls of A are in its uneven stages"
    sides = ["pp4 fsdp2 cp2 tp4 z1 v20", "fsdp64 z3 block"]
    assert note in " ".join(text_of(["compare", *sides, *job, "--explain"], capsys).split())
    others = ["fsdp8 tp8 z3 block", "fsdp64 z3 block"]
    assert note not in " ".join(text_of(["compare", *others, *job, "--explain"], capsys).split())


def test_a_trainer_is_not_asked_for_by_train(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--to", "megatron,slurm"]) == 2
    assert "`dscale export FILE --to NAME`" in capsys.readouterr().err


def test_how_often_a_slice_fails_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(text_of(["chips", "h100:4096", "--json"], capsys))
    run = json.loads(text_of([*JOB[:3], "h100:4096", "--batch", "16Mi", *JOB[6:], "--tokens", "1T", "--json"], capsys))
    assert said["mtbf_s"] == pytest.approx(run["goodput"]["mtbf_s"])
    assert "a job fails once in 12.4h, as LLaMA-3's" in " ".join(text_of(["chips", "h100:4096"], capsys).split())
    assert text_of(["calc", "h100:4096.mtbf"], capsys).startswith("12.4h")


def test_what_is_no_model_and_no_yaml_is_told_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "7B", *JOB[2:]]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].startswith("qwen2.5-7b (7.62B parameters)")
    assert "7B is taken as qwen2.5-7b, a dense preset of that size; `dscale estimate --params 7B` counts" in told.err
    own = tmp_path / "mychip.yaml"
    own.write_text(text_of(["chips", "--template"], capsys), encoding="utf-8")
    assert main(["chips", str(own)]) == 2
    assert "it is TOML: call it .toml" in capsys.readouterr().err
    own.write_text("- neither", encoding="utf-8")
    assert main(["chips", str(own)]) == 2
    assert "no single table" in capsys.readouterr().err


def test_an_estimate_has_the_days_of_a_calculation_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    said = text_of(["estimate", "llama3-70b", "--on", "h100:1024", "--tokens", "15T", "--mfu", "40%"], capsys)
    days = 6 * 6.9503e10 * 15e12 / (1024 * 989.5e12 * 0.4) / 86400
    assert f"(6ND 6.26e24, {days:.0f}d alone, and attention" in said


@pytest.mark.parametrize("plan", ["pp4 fsdp2 tp8 z1", "fsdp64 z3 block"])
def test_formulas_lead_to_the_expected_step(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each term from its formula to what the step waits for, with the reason; they add up to the answer of `train`."""
    job = ["--on", "h100:64", "--batch", "256seq", "--seq", "8192", "--stack", "megatron-core", "--json"]
    said = json.loads(text_of(["explain", "train", plan, "--model", "llama3-70b", *job], capsys))
    step = json.loads(text_of(["train", "llama3-70b", *job, "--plan", plan, "--alone"], capsys))["plans"][0]["step_s"]
    *terms, whole = said["terms"]
    assert whole["name"] == "step"
    assert whole["exposed_s"] == pytest.approx(step)
    assert sum(one["exposed_s"] for one in terms) == pytest.approx(step)
    assert all(one["why"] for one in terms)
    formulas = {line["name"]: line["value_si"] for line in said["lines"]}
    assert {one["name"] for one in terms if one["bound_s"]} == {one["name"] for one in terms} & set(formulas)
    for one in terms:
        if one["bound_s"]:
            assert formulas[one["name"]] == pytest.approx(one["bound_s"], rel=1e-6), one["name"]
    why = {one["name"]: one["why"] for one in terms}
    assert "of HBM's rate" in why["elementwise"]
    assert why["mlp matmuls"].endswith("of the peak")


def test_a_spot_run_stands_beside_the_same_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*JOB, "--plan", "fsdp16 z3 block", "--alone", "--tokens", "1T"]
    spot, kept = ([*asked, "--pricing", "spot"], asked)
    said = json.loads(text_of([*spot, "--json"], capsys))["goodput"]
    own = json.loads(text_of([*kept, "--json"], capsys))["goodput"]
    assert (said["on_demand_days"], said["on_demand_usd"]) == pytest.approx((own["days"], own["cost_usd"]))
    assert own["on_demand_usd"] is None
    assert said["days"] > own["days"]
    text = " ".join(text_of(spot, capsys).split())
    assert f"on demand $3.99, {own['days']:.1f} days and ${own['cost_usd']:,.0f}" in text
