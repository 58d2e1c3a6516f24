"""No cost that is not a number takes part in a ranking, and no faster and lighter plan loses for simplicity alone."""

import warnings
from dataclasses import replace

import numpy
import pytest

from dragonscale.errors import NonFiniteCost
from dragonscale.faces.cli.app import run
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost import optimizer_update, step_ledger
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.run_kinds import needed_gains
from dragonscale.training.search.search import Found, search
from dragonscale.training.search.space import Space

LATENT = "deepseek-v2-lite"
"""Latent attention, and a first layer without experts, which only the first stage has."""
JOBS = ((LATENT, "muon"), ("qwen3-30b-a3b", "adam"), ("llama3-8b", "muon"))
INTERPOLATED = 0.01
"""Of plans that recompute some layers the search reads times off a line; they are judged alone afterwards."""


def job_of(model: str) -> Job:
    return make_job(load_model(model), parse_slice("h100:16"), 512, 4096, "megatron-core")


@pytest.fixture(scope="module")
def searches() -> list[tuple[Job, Found]]:
    results = []
    for model, optimizer in JOBS:
        job, space = job_of(model), Space(fixed={"context": 1})
        space = replace(space, words=replace(space.words, optimizer=optimizer))
        results.append((job, search(job, space, 8)))
    return results


def test_a_stage_without_a_kind_of_layer_does_nothing_for_it() -> None:
    verdict = judge_one(job_of(LATENT), parse_plan("pp2 fsdp8 z1 muon"))
    done = [line for line in verdict.ledger.lines if line.phase == "update" and line.kind in ("matmul", "all_to_all")]
    assert {line.section for line in done if "block" in line.section}
    assert all(line.flops or line.wire_bytes for line in done)


def needed(job: Job, plan: Plan) -> float:
    return float(needed_gains(job, vars(plan), plan.zero, job_error(job), plan.dtype))


def test_faster_plans_in_less_memory_lose_by_the_slack_at_most(searches: list[tuple[Job, Found]]) -> None:
    for job, found in searches:
        best = found.best[0]
        for other in found.best[1:]:
            better = other.hbm_bytes <= best.hbm_bytes and needed(job, other.plan) <= needed(job, best.plan)
            if better:
                assert other.seconds * (1 + SLACK + INTERPOLATED) >= best.seconds, (job.model.name, other.plan)


def test_a_search_agrees_with_its_plans_judged_alone(searches: list[tuple[Job, Found]]) -> None:
    for job, found in searches:
        for candidate in found.best[:3]:
            alone = judge_one(job, candidate.plan)
            assert candidate.seconds == pytest.approx(first_number(alone.seconds), rel=INTERPOLATED)


def test_a_cost_that_is_no_number_ends_a_search_and_names_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_update, "state_seconds", lambda *_, **__: numpy.nan)
    with pytest.raises(NonFiniteCost, match=r"optimizer of plans with .* came out as nan"):
        search(job_of("llama3-8b"), bounded=False)


def test_a_cost_that_is_no_number_ends_a_single_plan_and_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = step_ledger.muon_lines

    def wrong(*given):
        return [replace(line, expected_s=numpy.nan) for line in lines(*given)]

    monkeypatch.setattr(step_ledger, "muon_lines", wrong)
    with pytest.raises(NonFiniteCost, match=r"expected_s of .* Newton-Schulz"):
        judge_one(job_of("llama3-8b"), parse_plan("fsdp16 z1 muon"))


def test_the_command_line_tells_it_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optimizer_update, "state_seconds", lambda *_, **__: numpy.inf)
    code = run(["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "4k", "--stack", "megatron-core"])
    told = capsys.readouterr().err
    assert code == 1
    assert "optimizer of plans" in told
    assert "fault of its own" in told


def test_numeric_warnings_are_printed_to_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = optimizer_update.state_seconds

    def warns(*given):
        _ = numpy.array([0.0]) / numpy.array([0.0])
        return work(*given)

    monkeypatch.setattr(optimizer_update, "state_seconds", warns)
    line = ["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "4k", "--plan", "fsdp8", "--alone"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(line) == 0
    assert "RuntimeWarning" not in capsys.readouterr().err
    with pytest.raises(RuntimeWarning):  # as an error, which tests make of it, it comes through
        run(line)
