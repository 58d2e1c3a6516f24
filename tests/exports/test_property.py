"""Legal plans of all presets, drawn at random: what a target writes it reads back, with the header of an export and
without."""

from dataclasses import replace

import msgspec
import pytest

from dragonscale.exports.engines.llamacpp import MAX_UBATCH
from dragonscale.exports.target import Target, of_kind
from tests.exports.drawn import read_back, same_serving, same_training, serving_runs, training_runs


def _check_training(target: Target, seed: int, tries: int) -> int:
    seen = 0
    for run in training_runs(target, seed, tries):
        experts = any("e" in section.dims for section in run.model.program().sections)
        back, made = read_back(target, run)
        if back is None:
            continue
        seen += 1
        plan = made.as_run or run.plan
        said = f"{run.model.name} on {run.slice}: {run.plan}"
        assert same_training(back.file.plan, plan, experts, run.model.n_layers) == [], said
        assert (back.file.model, back.file.slice, back.file.batch, back.file.seq) == (
            run.file.model,
            str(run.slice),
            run.file.batch,
            run.file.seq,
        ), said
        bare, _ = read_back(target, run, header=False)
        assert same_training(bare.file.plan, plan, experts, run.model.n_layers) == [], f"without the header: {said}"
        assert (bare.file.batch, bare.file.seq) == (run.file.batch, run.file.seq), f"without the header: {said}"
    return seen


def _check_serving(target: Target, seed: int, tries: int) -> int:
    seen = 0
    for run in serving_runs(target, seed, tries):
        back, made = read_back(target, run)
        if back is None:
            continue
        seen += 1
        said = (
            f"{run.model.name} on {run.slice} by {run.file.engine}: {run.file.plan} {run.file.launch} "
            f"{run.file.speculation}"
        )
        expected = run.file if made.as_run is None else replace(run.file, plan=made.as_run)
        if any(difference.instead.startswith("they run in parts of ") for difference in made.differences):
            # llama.cpp computes fewer tokens at once than were planned, and says so
            assert target.name == "llamacpp"
            expected = replace(expected, launch=msgspec.structs.replace(expected.launch, token_budget=MAX_UBATCH))
        assert same_serving(back.file, expected) == [], said
        bare, _ = read_back(target, run, header=False)
        degrees = ("tensor", "data", "expert", "pipe")
        plan = made.as_run or run.file.plan
        assert [getattr(bare.file.plan, name) for name in degrees] == [getattr(plan, name) for name in degrees], (
            f"without the header: {said}"
        )
    return seen


@pytest.mark.parametrize("target", of_kind("training"), ids=lambda one: one.name)
def test_training_plans_come_back(target: Target) -> None:
    tries = 2000 if target.tunes else 300
    if target.name == "deepspeed":  # its config cannot say a pipeline, which most drawn plans have
        tries = 900
    assert _check_training(target, 1, tries) >= 3


@pytest.mark.parametrize("target", of_kind("serving"), ids=lambda one: one.name)
def test_serving_plans_come_back(target: Target) -> None:
    tries = 50 if target.name in ("dynamo", "llm-d") else 120  # these are vLLM's words again, inside manifests
    assert _check_serving(target, 1, tries) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("target", [*of_kind("training"), *of_kind("serving")], ids=lambda one: one.name)
def test_many_more_plans_come_back(target: Target) -> None:
    check = _check_training if target.kind == "training" else _check_serving
    assert check(target, 7, 40_000 if target.kind == "training" else 8_000) >= 100
