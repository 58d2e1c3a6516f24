"""`dscale train` says what it assumes or leaves out: the trainer, its release and its EP, towers, other stacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli import main

STEP = ["--batch", "64seq", "--seq", "4096"]
SMALL = [*STEP, "--fix", "mb1,tp1", "--remat", "block"]
ALONE = [*STEP, "--alone", "--plan"]


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit code, the answer on one line, and the notes."""
    code = main(["train", *arguments])
    told = capsys.readouterr()
    return code, " ".join(told.out.split()), told.err


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["train", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_vision_tower_is_frozen_and_counted_as_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16}
    text |= {"num_key_value_heads": 2, "vocab_size": 152064, "model_type": "qwen2_5_vl"}
    tower = {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3456, "num_heads": 16}
    tower |= {"in_chans": 3, "out_hidden_size": 2048, "patch_size": 14, "spatial_merge_size": 2, "window_size": 112}
    config = tmp_path / "vl.json"
    config.write_text(json.dumps(text | {"vision_config": tower | {"temporal_patch_size": 2}}), encoding="utf-8")
    job = [str(config), "--on", "h100:8", *ALONE, "fsdp8 z3 block"]
    code, out, notes = run(job, capsys)
    assert code == 0
    assert "of vision frozen) on h100:8" in out
    assert "The text model alone is trained: " in notes
    assert "parameters of vision are frozen and counted as weights" in notes
    left_out = answered(job, capsys)["workload"]["left_out"]
    assert 6e8 < left_out["vision"] < 7e8


def test_the_release_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    on_gpus = answered(["llama3-8b", "--on", "h100:8", *ALONE, "fsdp8 z1 block"], capsys)
    assert on_gpus["release"] == "Megatron-LM 0.19.2"  # torchtitan has no ZeRO-1
    _, out, _ = run(["llama3-8b", "--on", "v5p:2x2x2", *ALONE, "fsdp8 z3 block"], capsys)
    assert "software MaxText 0.2.5" in out


def test_experts_over_tensor_ranks_are_told_in_the_trainers_words(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["deepseek-v3", "--on", "h100:1024", "--batch", "4096seq", "--seq", "4096", "--dtype", "fp8", "--alone"]
    _, _, notes = run([*job, "--plan", "tp2 pp8 v4 ep64 z1"], capsys)
    assert "spreads experts over 128 ranks, as --expert-model-parallel-size 128 does" in notes
    assert "for 64 ranks write ep32" in notes
    for plan in ("tp1 pp8 v4 ep64 z1", "tp2 pp8 v4 ep32 etp=true z1"):
        assert "spreads experts" not in run([*job, "--plan", plan], capsys)[2]


def test_a_stack_that_does_not_fit_stays_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["qwen2.5-7b", "--on", "h100:1", "--batch", "1seq", "--seq", "131072", "--method", "lora"]
    assert "other stacks hf: does not fit (" in run(job, capsys)[1]
    row = answered(job, capsys)["unfit_stacks"][0]
    assert row["stack"] == "hf"
    assert row["hbm_bytes"] > 85e9
    assert "of it logits" in row["why"]


def test_megatron_core_is_read_as_a_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["glm-4.5-air", "--on", "h100:64", "--batch", "256seq", "--seq", "4096", "--stack", "megatron-core"]
    plan = tmp_path / "plan.toml"
    _, out, notes = run([*job, "--plan", "pp4 fsdp2 ep8 z1 block", "--alone", "--save", str(plan)], capsys)
    assert "megatron-core is the library of Megatron-LM and Megatron-Bridge; read as --stack megatron-lm" in notes
    assert "stack megatron-lm" in out
    older = plan.read_text(encoding="utf-8").replace("megatron-lm", "megatron-core")
    plan.write_text(older, encoding="utf-8")
    assert "megatron-core" in older
    saved = answered(["--plan", str(plan), "--alone"], capsys)
    assert saved["workload"]["stack"] == "megatron-lm"


def test_megatron_is_megatron_lm(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["llama3-8b", "--on", "h100:8", *ALONE, "fsdp8 z1 block", "--stack", "megatron"]
    assert answered(job, capsys)["workload"]["stack"] == "megatron-lm"


def test_a_named_stack_that_does_not_build_the_model_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    code, out, notes = run(
        ["olmo2-7b", "--on", "h100:8", *SMALL, "--stack", "megatron-lm", "--save", str(plan)], capsys
    )
    assert code == 0
    assert "Megatron-LM 0.19.2 does not build models of type olmo2" in notes.splitlines()[0]
    assert "stack megatron-lm (Megatron-LM 0.19.2 does not build models of type olmo2" in out
    assert "dscale export" not in out + notes


def test_a_model_that_no_trainer_builds_is_planned_as_the_nearest_would_run_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = answered(["kimi-linear-48b-a3b", "--on", "h200:32", *ALONE, "pp2 fsdp4 ep4 z1 block"], capsys)["workload"]
    why = "no trainer that --stack auto weighs for this job on NVIDIA GPUs builds kimi_linear models"
    assert f"{why} (axolotl and NeMo AutoModel do)" in work["stack_why"]
    assert "planned as Megatron-LM would run it" in work["stack_why"]
    assert "does not build models of type kimi_linear" in work["unbuilt"]


def test_trainium_has_trainers_that_are_not_modelled(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(["llama3-8b", "--on", "trainium2:16", *ALONE, "fsdp16 z3 block"], capsys)
    assert "NxD Training" in out
    assert "no trainer is known" not in out


def test_a_given_plan_that_no_building_trainer_runs_is_judged_by_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of those that build Falcon, none has a pipeline."""
    job = ["falcon-40b", "--on", "a100:32", "--batch", "256seq", "--seq", "2048", "--alone"]
    work = answered([*job, "--plan", "pp4 tp2 fsdp4 z1"], capsys)["workload"]
    assert work["stack"] == "megatron-lm"
    assert "no trainer modelled here that does runs this plan" in work["stack_why"]
    assert answered([*job, "--plan", "fsdp32 z3 block"], capsys)["workload"]["stack"] == "hf-fsdp"
