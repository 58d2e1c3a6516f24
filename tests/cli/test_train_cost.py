"""`--rank cost`: the cheapest part or slice whose run ends within a year, and what a longer one would save."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import DAY
from dragonscale.training.advice import targets
from dragonscale.training.advice.targets import LONGEST_RUN_S, compare
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.search.space import parse_space
from dragonscale.training.search.stack_search import StackSearch, search_stacks

QUICK = ["--stack", "megatron-core", "--remat", "none", "--fix", "tensor=2,pipe=1,zero=1,context=1,mb1"]
JOB = ["train", "llama3-8b", "--batch", "128seq", "--seq", "8192", "--rank", "cost", *QUICK]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*JOB, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_cheapest_part_is_one_whose_run_ends_within_a_year(capsys: pytest.CaptureFixture[str]) -> None:
    long = answer(["--on", "h100:64", "--tokens", "15T", "--top", "1"], capsys)
    assert long["goodput"]["days"] <= LONGEST_RUN_S / DAY
    assert "costs least within a year: $" in long["answer"]
    assert "years)" in long["answer"], long["answer"]  # of the cheapest of all
    assert long["idle_chips"] == 0
    short = answer(["--on", "h100:16", "--tokens", "100B", "--top", "1"], capsys)
    assert "within a year" not in short["answer"]
    assert "days in all" in short["answer"]
    smallest = int(short["slice"].rpartition(":")[2])
    assert short["idle_chips"] == 16 - smallest > 0
    assert f"{short['idle_chips']} of the 16 chips of h100:16 are left idle." in short["notes"]


def test_where_no_part_ends_within_a_year_a_command_finds_enough_chips(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--on", "h100:8", "--tokens", "15T"], capsys)
    assert "no part ends within a year" in found["answer"]
    assert "--on h100 --deadline 365d finds enough chips" in found["answer"]
    assert (
        main([*JOB[:-6], "--on", "h100", "--deadline", "365d", "--tokens", "15T", *QUICK[:4], *QUICK[4:], "--json"])
        == 0
    )


def test_slices_are_ranked_by_cost_among_runs_of_a_year(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--on", "h100:16,h100:64", "--tokens", "15T"], capsys)
    assert [row["slice"] for row in found["slices"]] == ["h100:64", "h100:16"]
    assert any("h100:16 would cost" in note and "years)" in note for note in found["notes"])


def test_a_named_slice_without_a_plan_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter run needs larger slices; a slice that is named stays as large."""
    searched: list[str] = []

    def counted(job: Job, *given: Any) -> list[StackSearch]:
        searched.append(str(job.slice))
        return search_stacks(job, *given)

    monkeypatch.setattr(targets, "search_stacks", counted)
    job = make_job(load_model("llama3-70b"), parse_slice("h100:8"), 128, 8192, "megatron-core")
    space = parse_space("tensor=2,pipe=1,zero=1,context=1,mb1,remat=none")
    named = [(job.slice.chip, job.slice)]
    rows = compare(lambda piece: replace(job, slice=piece), named, space, "cost", tokens=100e9)
    assert [row.best for row in rows] == [None]
    assert searched == ["h100:8"]


def test_a_bare_chip_is_taken_in_a_size_that_ends_within_a_year() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 128, 8192, "megatron-core")
    space = parse_space("tensor=2,pipe=1,zero=1,context=1,mb1,remat=none")
    chip = job.slice.chip
    by_length = {
        tokens: compare(lambda piece: replace(job, slice=piece), [(chip, None)], space, "cost", tokens=tokens)[0]
        for tokens in (100e9, 15e12)
    }
    small, large = (by_length[tokens].job.slice.chips for tokens in (100e9, 15e12))
    assert small < large
