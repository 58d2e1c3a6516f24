"""An answer in brief: the same numbers as in full, without what is tried around them; and what it was read off stays
with it."""

import pickle
from typing import Any

import msgspec
import numpy
import pytest

import dragonscale as ds
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.serve.answer import answer as answer_serve
from dragonscale.commands.serve.serve_question import read_question as read_serve
from dragonscale.commands.train.ask_train import answer as answer_train
from dragonscale.commands.train.ask_train import understood as read_train
from dragonscale.training.cost.evaluation import degrees_of, judge, judge_one
from dragonscale.training.plan.plan_file import parse_plan

TRAIN = {"on": "h100:64", "batch": "4Mi", "seq": 4096, "plan": "fsdp=16,pipe=4", "alone": True}
SERVE = {"on": "h100:8", "prompt": 2048, "output": 128, "plan": "tp8", "batch": "32"}
TRIED = (
    "simulated",
    "advice",
    "helps",
    "gradients",
    "limits",
    "speculation",
    "prefix",
    "search_s",
    "rungs",
    "releases",
    "counted_runs",
    "beside",
)


def told(answer: Any) -> Any:
    """The answer without what is tried around it."""
    if isinstance(answer, dict):
        return {name: told(value) for name, value in answer.items() if name not in TRIED}
    return [told(one) for one in answer] if isinstance(answer, list) else answer


def test_training_in_brief_has_the_numbers_of_the_full_answer() -> None:
    brief = answer_train(read_train(TrainQuestion("llama3-8b", **TRAIN)), brief=True)
    full = ds.train("llama3-8b", **TRAIN)
    assert not brief.plans[0].advice
    assert full.plans[0].advice
    assert told(brief.to_dict()) == told(full.to_dict())


def test_serving_in_brief_has_the_numbers_of_the_full_answer() -> None:
    brief = answer_serve(read_serve(ServeQuestion("llama3-8b", **SERVE)), brief=True)
    full = ds.serve("llama3-8b", **SERVE)
    assert not brief.advice
    assert not brief.limits
    assert full.limits
    # the full verdict goes on with what stands beside the plan
    fits = brief.verdict.removesuffix(".")
    assert full.verdict.startswith(f"{fits}; beside one chip, tp8 is ")
    assert told(brief.to_dict() | {"verdict": full.verdict}) == told(full.to_dict())


def test_limits_are_solved_when_they_are_asked_for() -> None:
    """Formulas take a second, which an answer as text does not show; copies and JSON have them."""
    report = ds.serve("llama3-8b", **SERVE)
    assert "formula" not in str(report)
    assert not report.limit_rows
    limits = pickle.loads(pickle.dumps(report)).to_dict()["limits"]
    assert "critical batch" in [row["name"] for row in limits]
    assert limits == [msgspec.to_builtins(row) for row in report.limits]


def test_a_report_keeps_the_ledger_that_it_was_read_off() -> None:
    report = ds.train("llama3-8b", **TRAIN)
    assert report.ledger is report.ledger
    assert report.ledger.total("exposed_s") == pytest.approx(report.plans[0].step_s)
    assert "verdict" not in report.to_dict()["plans"][0]
    served = ds.serve("llama3-8b", **SERVE)
    assert served.ledger is served.ledger
    assert "ledgers" not in served.to_dict()


def test_axes_of_one_chip_cost_nothing_beside_plans_that_use_them() -> None:
    """Moves over axes that no plan of a batch splits are not costed: the numbers are those of a batch where some do."""
    job = read_train(TrainQuestion("mixtral-8x7b", on="h100:64", batch="4Mi", seq=4096)).job.on_slice()
    plans = [parse_plan(text) for text in ("fsdp=64", "fsdp=32,tensor=2", "fsdp=32,context=2", "fsdp=8,expert=8")]
    together = judge(job, plans[0], degrees_of(plans))
    alone = [judge_one(job, plan) for plan in plans]
    assert numpy.ravel(together.seconds).tolist() == pytest.approx([one.seconds for one in alone], rel=1e-12)
    assert numpy.ravel(together.hbm_bytes).tolist() == pytest.approx([one.hbm_bytes for one in alone], rel=1e-12)
