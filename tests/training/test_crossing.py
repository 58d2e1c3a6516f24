"""Where one choice overtakes another: at the number that is named both are equally fast."""

import json

import pytest

from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.codesign import knobs, on_chip, raised
from dragonscale.training.advice.crossing import CAPACITY, crossings
from dragonscale.training.advice.overtaking import overtaking, price_where
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan

JOB = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 64, 8192)
TENSOR, SHARDED = parse_plan("tensor=8,fsdp=2,zero=1"), parse_plan("fsdp=16")


def seconds(job, plan) -> float:
    return first_number(judge_one(job, plan).seconds)


def test_both_are_equally_fast_where_one_overtakes() -> None:
    (row,) = crossings((JOB, TENSOR), (JOB, SHARDED))
    knob = next(knob for knob in knobs(JOB.slice) if knob.title == row.title == "network bandwidth")
    assert row.factor < 1
    assert seconds(JOB, SHARDED) < seconds(JOB, TENSOR)

    def ratio(factor: float) -> float:
        job = on_chip(JOB, raised(JOB.slice.chip, knob, factor))
        return seconds(job, SHARDED) / seconds(job, TENSOR)

    assert ratio(row.factor) == pytest.approx(1, abs=0.02)
    assert ratio(row.factor * 0.8) > 1 > ratio(row.factor * 1.25)
    (text,) = overtaking((JOB, TENSOR), (JOB, SHARDED), ("A", "B"))
    assert text.startswith("A overtakes B below ")
    assert text.endswith("of network bandwidth (400GB/s now).")


def test_a_plan_that_does_not_fit_overtakes_where_it_does() -> None:
    job = make_job(load_model("llama3-70b"), parse_slice("h100:16"), 64, 8192)
    whole = parse_plan("fsdp=16")
    held = first_number(judge_one(job, whole).hbm_bytes)
    found = [row for row in crossings((job, parse_plan("tensor=8,fsdp=2")), (job, whole)) if row.title == CAPACITY]
    assert [(row.now, row.value) for row in found] == [(job.slice.chip.visible, held)]
    (text,) = overtaking((job, parse_plan("tensor=8,fsdp=2")), (job, whole), ("A", "B"))
    assert "B fits from " in text


def test_on_two_chips_the_second_changes_alone() -> None:
    other = make_job(load_model("llama3-8b"), parse_slice("a100:16"), 64, 8192)
    found = {row.title: row for row in crossings((JOB, SHARDED), (other, SHARDED))}
    assert found["FLOP/s"].factor > 1
    assert found["FLOP/s"].now == 312e12


def test_the_price_at_which_tokens_cost_the_same() -> None:
    each, price = 1234.0, 2.5
    usd = price / each / 3600 * 1e6
    assert price_where("B", "A", usd, each, None) == "B costs less than A below $2.50 a chip-hour (no price is known)."


def test_compare_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "llama3-8b", "--batch", "512k", "--seq", "8192", "--json"]
    assert main(["compare", "fsdp8 block", *words, "--on", "h100:8,a100:8"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = {side["key"]: {one["name"]: one["value"] for one in side["figures"]} for side in found["sides"]}
    cheap, dear = sorted(named, key=lambda key: named[key]["$/Mtok"])
    text = next(one for one in found["overtakes"] if "costs less than" in one)
    assert text.startswith(f"{dear} (")
    level = named[cheap]["$/Mtok"] * named[dear]["tokens/s/chip"] * 3600 / 1e6
    assert f"below ${level:.2f} a chip-hour" in text
    assert any("overtakes" in one for one in found["overtakes"])
