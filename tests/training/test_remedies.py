"""What is said to make a job fit, or faster, does so."""

from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.advice import remedies
from dragonscale.training.advice.remedies import larger_slices, roomy_larger_slice
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.search.search import Found, search
from dragonscale.training.search.space import parse_space


@pytest.fixture(scope="module")
def too_long() -> TrainReport:
    return ds.train("llama3-8b", "a6000:8", method="lora", stack="hf", batch="8seq", seq="50k")


def test_what_fits_is_named_where_one_sequence_is_too_long(too_long: TrainReport) -> None:
    assert too_long.exit_code == 3
    flags = [remedy.flags for remedy in too_long.remedies]
    assert flags == [{"stack": "axolotl"}, {"stack": "hf-liger"}, {"seq": "22528"}]
    told = " ".join(too_long.notes)
    assert "use more chips" not in told
    assert "of it is logits" in told
    assert "More chips do not help: one sequence of 51,200 tokens has to fit on one chip, since stack hf has no" in told
    assert "--seq 22528 fits here" in told
    assert "no longer multiple of 2,048 tokens does" in told


def test_the_longest_sequence_fits_and_the_next_does_not(too_long: TrainReport) -> None:
    given: dict[str, Any] = {
        "method": "lora",
        "stack": "hf",
        "batch": "8seq",
        "alone": True,
        "plan": too_long.remedies[-1].plan,
    }
    longest = int(too_long.remedies[-1].flags["seq"])
    fits = ds.train("llama3-8b", "a6000:8", seq=str(longest), **given)
    beyond = ds.train("llama3-8b", "a6000:8", seq=str(longest + 2048), **given)
    assert (fits.exit_code, beyond.exit_code) == (0, 3)


def test_the_nearest_slice_with_room_does_not_hide_a_nearer_tight_one() -> None:
    report = ds.train("llama2-13b", "a6000:2", method="full", batch="16seq", seq="4096", optimizer="adam")
    told = next(note for note in report.notes if note.startswith("The nearest slice"))
    assert told.startswith("The nearest slice with room in memory is a6000:8: ")
    assert "; a6000:4 would be tight (" in told


def test_a_plan_table_explains_only_the_columns_it_has_and_prints_no_change_of_nothing() -> None:
    report = ds.train("kimi-linear-48b-a3b", "h200:32", batch="256seq", seq="4096", top=3)
    text = str(report)
    assert "a what-if on stack megatron-lm (auto: no trainer that --stack auto" in " ".join(text.split())
    assert not any(row.runnable for row in report.plans)
    assert "by: r" not in text
    assert "+0.0%" not in text
    assert "-0.0%" not in text


def test_a_faster_given_plan_is_told_why_it_is_not_the_recommended_one() -> None:
    job: dict[str, Any] = {"batch": "64seq", "seq": "8192", "set": "power=350W"}
    report = ds.train("llama3-8b", "h100:8", plan="fsdp8 z3 none", **job)
    assert report.better is not None
    assert report.plans[0].step_s < report.better.step_s
    told = " ".join(report.notes)
    assert "fsdp8 z3 none is " in told
    assert "faster and not recommended: no published run is known that splits a model this way in bf16" in told


def test_changes_that_fit_together_are_named_where_no_single_one_does() -> None:
    job: dict[str, Any] = {"method": "lora", "stack": "hf", "batch": "2seq", "seq": "32768"}
    report = ds.train("qwen2.5-32b", "rtx4090:2", **job)
    assert report.exit_code == 3
    assert [sorted(remedy.flags) for remedy in report.remedies][-1] == ["on"]
    assert report.remedies[0].flags["method"] == "qlora"
    command = " ".join(str(report).partition("Next:")[2].split())
    assert command.startswith("dscale train qwen2.5-32b ")
    assert all(command.count(f" --{name} ") == 1 for name in ("on", "batch", "seq", "method", "stack"))
    for remedy in report.remedies:
        given: dict[str, Any] = {"on": "rtx4090:2", **job, **remedy.flags, "top": 1}
        assert ds.train("qwen2.5-32b", **given).exit_code == 0


def test_offload_is_named_and_fits() -> None:
    report = ds.train("llama3-8b", "h100:1", batch="8seq", seq="8192")
    assert [remedy.flags for remedy in report.remedies] == [{"fix": "offload=optimizer"}]
    assert ds.train("llama3-8b", "h100:1", batch="8seq", seq="8192", fix="offload=optimizer").exit_code == 0


def test_chips_that_do_not_divide_the_batch_are_better_left_idle() -> None:
    report = ds.train("qwen2.5-14b", "gb200:72", batch="6seq", seq=str(2**20))
    first = report.plans[0].helps[0]
    assert first.flags["on"] == "gb200:64"
    given: dict[str, Any] = {"batch": "6seq", "seq": str(2**20), "alone": True, **first.flags}
    fewer = ds.train("qwen2.5-14b", **given)
    assert report.plans[0].step_s / fewer.plans[0].step_s - 1 == pytest.approx(first.gain, abs=0.01)
    assert first.gain > 1


def test_no_stack_is_advised_that_cannot_run_the_plan() -> None:
    report = ds.train("mistral-7b", "a6000:8", batch="6seq", seq="8192")
    for one in (one for one in report.plans[0].helps if "stack" in one.flags):
        given: dict[str, Any] = {"batch": "6seq", "seq": "8192", "plan": short_plan(report.plans[0].plan)}
        assert ds.train("mistral-7b", "a6000:8", alone=True, **given, **one.flags).exit_code == 0


def test_no_batch_beyond_the_critical_one_is_advised() -> None:
    given: dict[str, Any] = {"batch": "32seq", "seq": "8192", "plan": "pp8 tp8 z1 block", "alone": True}
    free = ds.train("llama3-8b", "h100:64", **given)
    limited = ds.train("llama3-8b", "h100:64", tokens="200M", **given)
    assert any("twice the batch" in one.change for one in free.plans[0].helps)
    assert not any("twice the batch" in one.change for one in limited.plans[0].helps)


def test_memory_that_the_host_lacks_is_named_on_larger_slices_too() -> None:
    """A search compares plans that the host's memory cannot hold by no number of bytes."""
    report = ds.train("llama3.1-405b", "h100:8", batch="16seq", seq="8192", method="full", fix="offload=optimizer")
    told = " ".join(report.notes)
    assert "More chips do not help: the nearest plan on h100:16 is " in told
    assert "GB of the host's memory per chip" in told.partition("More chips do not help")[2]
    assert "inf" not in told.replace("infeasible", "")
    for row in report.unfit_stacks:
        assert "infGB" not in row.why
        assert "GB of the host's memory per chip" in row.why
    assert report.unfit_stacks


def test_a_larger_slice_with_a_tight_plan_is_named() -> None:
    """The smallest that holds the job, though no slice that was tried leaves room."""
    job = make_job(load_model("llama3-70b"), parse_slice("a100-40gb:4"), 8, 4096, "torchtitan")
    space = parse_space("tensor=8,pipe=1,remat=block,zero=3")
    assert roomy_larger_slice(job, space, 1.0) is None
    fit = larger_slices(job, space, 1.0).fit
    assert fit is not None
    assert str(fit.job.slice) == "a100-40gb:32"
    assert not fit.roomy


def test_of_a_tight_plan_only_slices_that_would_leave_room_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else larger slices do is of no use to a job that has a plan."""
    searched: list[str] = []

    def counted(job: Job, *given: Any) -> Found:
        searched.append(str(job.slice))
        return search(job, *given)

    monkeypatch.setattr(remedies, "search", counted)
    given: dict[str, Any] = {"batch": "8seq", "seq": "4096", "fix": "tensor=8,context=2,fsdp=2,pipe=1,data=1"}
    report = ds.train("llama3-70b", "a100-40gb:32", stack="torchtitan", **given)
    assert any("it is the least full that was found" in note for note in report.notes)
    assert searched == []
