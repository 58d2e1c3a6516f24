"""In what gradients are added and reduced: as the software does by default, or as in records where that is asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.commands.explain.train import explained_job
from dragonscale.errors import InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import as_asked, judge_one, make_job, with_numerics
from dragonscale.training.plan.plan_file import load_training_file, parse_plan
from dragonscale.training.plan.stack import change, in_numerics, load_stack, numerics_for, stacks

JOB = ["llama3-8b", "--on", "h100:16", "--batch", "128seq", "--seq", "8192", "--stack", "megatron-core"]
PLAN = "fsdp8 tp2 z1 none"


def test_only_stacks_of_megatron_have_two_ways() -> None:
    differs = {name for name, one in stacks().items() if in_numerics(one, "production") != one}
    assert differs == {
        "megatron",
        "megatron-core",
        "megatron-lm",
        "megatron-bridge-26.04",
        "megatron-alltoall",
        "megatron-overlap",
        "megatron-rl",
    } | {
        "megatron-alltoall-overlap",
        "megatron-bridge",
    }
    wide, named = in_numerics(load_stack("megatron-core"), "production"), load_stack("megatron-fp32")
    assert (wide.state, wide.memory) == (named.state, named.memory)
    assert wide.name == "megatron-core"  # what it can run and how far off it was are looked up by its name


def test_half_precision_is_added_up_in_itself() -> None:
    assert [numerics_for("", one) for one in ("bf16", "fp8", "fp16")] == ["production", "production", "benchmark"]
    assert numerics_for("benchmark", "bf16") == "benchmark"


def test_measured_rows_are_judged_as_the_benchmarks_ran() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 128, 8192, "megatron-core")
    assert job.stack == load_stack("megatron-core")


def test_another_stack_or_other_experts_keep_the_numerics() -> None:
    job = make_job(load_model("mixtral-8x7b"), parse_slice("h100:16"), 128, 4096, "megatron-core")
    job = with_numerics(job, "production")
    job = replace(job, stack=change(job.stack, "experts", skew=1.5))
    assert as_asked(job, "megatron-overlap").state.reduce_bytes == 4
    back = with_numerics(job, "benchmark")
    assert (back.stack.state.reduce_bytes, back.stack.experts.skew) == (2, 1.5)
    plan = parse_plan("expert=8,fsdp=2,zero=1")
    wide, narrow = judge_one(job, plan), judge_one(back, plan)
    assert first_number(wide.seconds) > first_number(narrow.seconds)
    assert first_number(wide.hbm_bytes) > first_number(narrow.hbm_bytes)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    main(["train", *JOB, *words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_an_answer_says_which_and_what_the_other_would_change(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--plan", PLAN, "--alone")
    usual, fast = answer(capsys, *given), answer(capsys, *given, "--numerics", "benchmark")
    assert (usual["workload"]["numerics"], fast["workload"]["numerics"]) == ("production", "benchmark")
    (one,), (other,) = usual["plans"], fast["plans"]
    gain = one["step_s"] / other["step_s"] - 1
    there = f"{other['hbm_bytes'] / 1e9:.1f}GB"
    told = f"added and reduced in fp32, the software's default; --numerics benchmark: in bf16, {gain:.1%} faster"
    assert one["gradients"] == f"{told}, {there}"
    assert "in bf16, as in published benchmarks; --numerics production: in fp32" in other["gradients"]
    assert "% slower" in other["gradients"]
    assert main(["train", *JOB, *given, "--explain"]) == 0
    assert "added and reduced in fp32" in capsys.readouterr().out


def test_what_the_other_way_needs_may_not_fit() -> None:
    job = {"on": "h100:8", "batch": "64seq", "seq": 6144, "stack": "megatron-core"}
    plan = "data=1,fsdp=8,zero=1,remat=none"
    report = ds.train("llama3-8b", **job, plan=plan, alone=True, numerics="benchmark", force=True)
    assert report.plans[0].feasible
    assert report.plans[0].gradients.endswith("GB, which does not fit")


def test_a_stack_with_one_way_says_nothing() -> None:
    job = {"on": "h100:16", "batch": "128seq", "seq": 8192, "stack": "torchtitan", "plan": "fsdp16", "alone": True}
    report, asked = ds.train("llama3-8b", **job), ds.train("llama3-8b", **job, numerics="benchmark")
    assert report.plans[0].gradients == asked.plans[0].gradients == ""
    assert asked.notes == [*report.notes, "--numerics changes nothing: torchtitan has one way to add gradients."]


def test_another_word_is_refused() -> None:
    with pytest.raises(InputError, match="benchmark, production"):
        ds.train("llama3-8b", on="h100:16", batch="128seq", seq=8192, numerics="narrow")


def test_a_saved_plan_and_an_export_keep_the_numerics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    given = ("--plan", PLAN, "--alone", "--numerics", "benchmark", "--save", path)
    told = answer(capsys, *given)
    assert load_training_file(path).numerics == "benchmark"
    main(["train", "--plan", path, "--alone", "--json"])
    assert json.loads(capsys.readouterr().out)["plans"][0]["step_s"] == told["plans"][0]["step_s"]
    scripts = {}
    for way in ("production", "benchmark"):
        assert main(["export", path, "--to", "megatron", "--numerics", way]) == 0
        scripts[way] = capsys.readouterr().out
        assert ("--grad-reduce-in-bf16" in scripts[way]) == (way == "benchmark")
    assert main(["export", path, "--to", "megatron-bridge"]) == 0
    assert "grad_reduce_in_fp32" in capsys.readouterr().out


def test_flags_of_megatron_say_the_numerics() -> None:
    words = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    words += "--seq-length 4096 --micro-batch-size 1 --global-batch-size 64"

    def read(flags: str) -> str:
        return read_plan(f"{words} {flags}", Given("llama3-8b", "h100:8")).file.numerics

    assert read("--bf16") == "production"
    assert read("--bf16 --grad-reduce-in-bf16") == read("--bf16 --main-grads-dtype bf16") == "benchmark"
    assert read("--fp16") == ""


def test_formulas_are_of_the_same_numerics() -> None:
    words = {"batch": "128seq", "seq": "8192", "stack": "megatron-core", "dtype": "bf16"}
    for way, size in (("benchmark", 2), ("", 4)):
        job, _ = explained_job(PLAN, "llama3-8b", "h100:16", **words, numerics=way)
        assert job.stack.state.reduce_bytes == size


def test_a_comparison_takes_them_too() -> None:
    job = {"model": "llama3-8b", "on": "h100:16", "batch": "128seq", "seq": "8192", "stack": "megatron-core"}
    plans = (PLAN, "fsdp16 z1 none")
    usual, fast = ds.compare(*plans, **job), ds.compare(*plans, **job, numerics="benchmark")
    assert usual.sides[0].figure("step").value > fast.sides[0].figure("step").value
