"""What plans that differ in their batch alone share: the same numbers whether they come from memory or not."""

from dataclasses import replace

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost import section_costs as kept
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change
from dragonscale.training.plan.tuning import Tuning

PLAN = Plan(fsdp=8, microbatch=1)


def job(on: str = "h100:8", batch: int = 64, sequence: int = 4096, model: str = "llama3-8b") -> Job:
    return make_job(load_model(model), parse_slice(on), batch, sequence)


OTHERS = {
    "batch": (job(batch=128), PLAN),
    "sequence": (job(sequence=8192), PLAN),
    "chip": (job(on="h200:8"), PLAN),
    "model": (job(model="llama2-7b"), PLAN),
    "recompute": (job(), replace(PLAN, remat="block")),
    "mesh": (job(), replace(PLAN, fsdp=4, tensor=2)),
    "microbatch": (job(), replace(PLAN, microbatch=2)),
    "passes": (replace(job(), tuning=Tuning(passes=1.0)), PLAN),
    "stack": (make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 4096, "torchtitan"), PLAN),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_after_another_is_judged_as_it_is_alone(name):
    other, plan = OTHERS[name]
    kept._CACHE.clear()
    alone = judge_one(other, plan)
    kept._CACHE.clear()
    judge_one(job(), PLAN)
    after = judge_one(other, plan)
    assert after.ledger.lines == alone.ledger.lines
    assert after.ledger.held == alone.ledger.held


def test_sections_are_worked_out_once_along_a_batch(monkeypatch):
    kept._CACHE.clear()
    worked, own = [], kept.section_costs
    monkeypatch.setattr(kept, "section_costs", lambda *given: worked.append(1) or own(*given))
    for batch in (8, 64, 512):
        judge_one(job(batch=batch), PLAN)
        judge_one(replace(job(batch=batch), tuning=Tuning(passes=1.0)), PLAN)
    assert len(worked) == 1


def test_a_pass_without_a_gradient_hands_nothing_to_a_backward_pass():
    own = make_job(load_model("qwen2.5-1.5b"), parse_slice("h200:1"), 64, 512, "dragonscale")
    moves_more = replace(own, stack=change(own.stack, "memory", kept_moves=20.0))

    def seconds(job: Job, passes: float) -> float:
        return first_number(judge_one(replace(job, tuning=Tuning(passes=passes)), Plan(microbatch=8)).seconds)

    assert seconds(moves_more, 0.0) > 1.1 * seconds(own, 0.0)
    added = [seconds(one, 1.0) - seconds(one, 0.0) for one in (own, moves_more)]
    assert added[1] == pytest.approx(added[0])
