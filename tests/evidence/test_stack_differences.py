"""A plan made for another stack: every difference from the compiled program has a switch, and they add up."""

import pytest

pytest.importorskip("jax")

from dragonscale.evidence.verify.planned import plan_of, stack_differences, training_job
from dragonscale.evidence.verify.records import Request, explanations
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import in_numerics, load_stack, stacks

REQUEST = Request("train", "qwen3-30b-a3b", "h100:64", "fsdp=4,expert=8,tensor=2,remat=block", 64, 4096)


EVERY = sorted(stacks())


@pytest.mark.parametrize(
    "name", [name if name in EVERY[::4] else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_differences_add_up_to_the_other_ledger(name: str) -> None:
    planned = plan_of(REQUEST)
    stack = in_numerics(load_stack(name), "production")
    other = judge_one(training_job(REQUEST, stack), parse_plan(REQUEST.plan))
    found = stack_differences(REQUEST, name)
    ours = {"flops": planned.flops, "wire_bytes": planned.ledger.total("wire_bytes"), "hbm_bytes": planned.peak_bytes}
    theirs = {"flops": other.flops, "wire_bytes": other.ledger.total("wire_bytes"), "hbm_bytes": other.hbm_bytes}
    for quantity, size in ours.items():
        more = sum(one.theirs - one.ours for one in found if one.quantity == quantity)
        assert size + more == pytest.approx(theirs[quantity], rel=1e-5), quantity
    assert {one.switch for one in found} <= set(explanations("switches"))
    assert (not found) == (name == "dragonscale")
