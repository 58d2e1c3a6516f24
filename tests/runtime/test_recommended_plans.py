"""What may be recommended for our own program runs and verifies: random plans that its stack takes on eight devices."""

import random
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("orbax.checkpoint")

from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import Request
from dragonscale.models import load_model
from dragonscale.models.huggingface import load_config
from dragonscale.physics.hardware import parse_slice
from dragonscale.runtime.lines import COMPUTED
from dragonscale.runtime.train.settings import Order, RunSettings, check
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.legality import Legality, rules
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.space import misfits
from tests.runtime import test_train_curves
from tests.runtime.test_flops import NAMES
from tests.runtime.tiny import CONFIGS
from tools.accepted_plans import JOBS, accepted

CHIPS = 8
WORDS = ("zero", "remat", "schedule", "context_by", "sequence", "etp", "optimizer", "offload")


def random_plan(draw: random.Random) -> Plan:
    """Any plan for eight chips in the words of the stack."""
    sizes = dict.fromkeys(AXES, 1)
    for _ in range(3):
        sizes[draw.choice(AXES)] *= 2
    row: Legality = rules("dragonscale", "nvidia", sizes["pipe"] > 1)
    words = {name: draw.choice(getattr(row, name)) for name in WORDS}
    words["remat"] = {"block:N": "block:1", "modules": "layernorm+mlp"}.get(words["remat"], words["remat"])
    words["offload"] = {"activations:N": "activations:1"}.get(words["offload"], words["offload"])
    virtual = draw.choice((1, 2)) if sizes["pipe"] > 1 and words["schedule"] == "interleaved" else 1
    if words["schedule"] == "interleaved" and virtual == 1:
        words["schedule"] = "1f1b"
    return Plan(**sizes, **words, virtual=virtual, microbatch=draw.choice((1, 2)))


def random_plans(job: Job, count: int, seed: int) -> list[Plan]:
    """So many different plans that the stack runs."""
    draw, found = random.Random(seed), dict[Plan, None]()
    for _ in range(200 * count):
        plan = random_plan(draw)
        if not illegal(job, plan) and not misfits(job, plan) and job.batch % (plan.replicas * plan.microbatch) == 0:
            found[plan] = None
        if len(found) == count:
            break
    return list(found)


def test_the_table_has_what_the_program_computes() -> None:
    assert set(rules("dragonscale", "nvidia").functions) == set(COMPUTED)
    job = make_job(load_model("jamba-52b"), parse_slice("h200:8"), 16, 4096, "dragonscale")
    assert illegal(job, Plan(fsdp=8)) == [
        "stack dragonscale does not compute conv and scan of jamba-52b yet; take --stack auto"
    ]


EVERY = [pytest.param(name, marks=() if place % 4 == 0 else pytest.mark.slow) for place, name in enumerate(NAMES)]


@pytest.mark.parametrize("name", EVERY)
def test_no_plan_of_our_stack_is_refused(name: str) -> None:
    job = make_job(load_model(name), parse_slice(f"h200:{CHIPS}"), 16, 4096, "dragonscale")
    plans = random_plans(job, 2, seed=len(name))
    assert plans
    for plan in plans:
        settings = RunSettings(data=("none",), steps=1, batch=job.batch, seq=job.sequence, dtype=plan.dtype)
        check(Order(name, "", plan, settings))
        assert plan_of(Request("train", name, f"h200:{CHIPS}", str(plan), job.batch, job.sequence)).flops > 0


def test_plans_with_every_word_of_the_table_are_drawn() -> None:
    job = make_job(load_model("qwen3-4b"), parse_slice(f"h200:{CHIPS}"), 16, 4096, "dragonscale")
    plans = random_plans(job, 60, seed=0)
    row = rules("dragonscale", "nvidia")
    assert {plan.zero for plan in plans} == set(row.zero)
    assert {plan.offload for plan in plans} >= {"none", "optimizer"}
    assert {plan.schedule for plan in plans if plan.pipe > 1} == set(row.schedule)
    assert any(plan.pipe * plan.context > 2 for plan in plans)


def lines(every: int) -> list[str]:
    jobs = [line.removeprefix("* ") for line in JOBS.read_text().splitlines() if line and not line.startswith("#")]
    return [line for line in jobs if "--dtype" not in line and "--stack" not in line][::every]


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=() if place % 9 == 0 else pytest.mark.slow) for place, line in enumerate(lines(3))],
)
def test_what_is_recommended_for_our_own_stack_is_accepted(line: str) -> None:
    found = accepted(f"{line} --stack dragonscale")
    assert found.accepted, (found.plan, found.run, found.verify)


@pytest.mark.slow
def test_most_recommended_plans_are_accepted_or_have_a_near_plan_that_is() -> None:
    found = [accepted(line) for line in lines(4)]
    assert sum(one.near for one in found) >= 0.85 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_losses_are_those_of_one_device(kind: str, tmp_path: Path) -> None:
    job = make_job(load_config(CONFIGS[kind]), parse_slice(f"h200:{CHIPS}"), 8, 32, "dragonscale")
    plans = tuple(str(plan) for plan in random_plans(job, 6, seed=1))
    # Muon rounds to bf16, and after a few steps a token whose experts are nearly tied may go to another.
    test_train_curves.check(tmp_path, kind, plans, near=3e-4 if any("muon" in plan for plan in plans) else 5e-5)
