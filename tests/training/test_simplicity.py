"""Within the slack the simplest plan is recommended; twins are shown once; without slack the fastest plan is the
answer."""

from dataclasses import replace

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.simplicity import handicap, order, points
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.legal import unrunnable
from dragonscale.training.search.search import Found, listed, search, shape_of, twins
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(load_model("llama3-8b"), parse_slice("h100:8"), 128, 8192)


@pytest.fixture(scope="module")
def found(job: Job) -> Found:
    return search(job, count=12)


def score(plan: Plan, sequence: int = 8192) -> int:
    return int(points(plan, vars(plan), sequence))


ORDERED = [
    ("fsdp=8", "data=2 fsdp=4"),
    ("fsdp=8", "cp8"),
    ("cp8", "cp8 ring"),
    ("fsdp=8", "fsdp=4 tp2"),
    ("pp4 z1", "pp4 z1 zb-h1"),
    ("pp4 z1", "pp4 z2"),
    ("pp4 z1", "pp4 z1 v2 interleaved"),
    ("pp4 z1 v2 interleaved", "pp4 z1 dualpipe"),
    ("fsdp=8 block", "fsdp=8 selective"),
    ("fsdp=8 selective", "fsdp=8 matmuls"),
    ("fsdp=8 matmuls", "fsdp=8 remat=offload"),
    ("fsdp=8", "fsdp=8 offload=optimizer"),
    ("fsdp=8 tp8", "fsdp=8 tp8 etp=true"),
    ("pp4 z1", "pp4 z1 layout=ends"),
]


@pytest.mark.parametrize(("simple", "odd"), ORDERED)
def test_what_is_simpler(simple: str, odd: str) -> None:
    assert score(parse_plan(simple)) < score(parse_plan(odd))


def test_eight_gpus_get_plain_fsdp(found: Found) -> None:
    plan = found.best[0].plan
    assert (plan.fsdp, plan.context) == (8, 1)
    assert plan.zero >= 2


def fastest_with_room(found: Found) -> Candidate:
    """It is on the front: what beat it in both would leave room, too."""
    return next(one for one in found.front if one.roomy)


def test_within_the_slack_nothing_with_room_is_simpler(job: Job, found: Found) -> None:
    best, fastest = found.best[0], fastest_with_room(found)
    roomy = [one for one in found.best if one.roomy]
    near = [one for one in roomy if one.seconds <= fastest.seconds * 1.01]
    assert score(best.plan) == min(score(one.plan) for one in near)
    assert best.seconds <= fastest.seconds * 1.01 * (1 + job_error(job))


def test_without_slack_the_fastest_that_leaves_room_is_recommended(job: Job) -> None:
    space = Space(remat=("none", "block"), schedule=("1f1b",))
    exact = search(job, space, 1, slack=0.0)
    assert exact.best[0].seconds == fastest_with_room(exact).seconds
    assert exact.fastest == exact.front[0]
    slow = search(job, space, 1, slack=0.2)
    assert slow.best[0].seconds >= exact.best[0].seconds
    assert score(slow.best[0].plan) <= score(exact.best[0].plan)


def test_context_at_short_sequences_must_gain(job: Job) -> None:
    space = Space(remat=("block",), zero=(3,), schedule=("1f1b",))
    best = search(job, space, 1).best[0]
    fixed = search(job, replace(space, fixed={"context": 1}), 1, slack=0.0).best[0]
    fastest = search(job, space, 1, slack=0.0).best[0]
    assert best.plan.context == 1 or fastest.seconds * (1 + job_error(job)) < fixed.seconds


def test_the_list_has_no_twins_and_no_plan_twice(found: Found) -> None:
    for place, one in enumerate(found.best):
        assert not any(twins(one, other) for other in found.best[place + 1 :])
    assert len({one.plan for one in found.best}) == len(found.best)
    assert len({shape_of(one.plan) for one in found.best}) >= len(found.best) // 2
    times = [one.seconds for one in found.best[1:]]
    assert times == sorted(times)


def test_twins_are_shown_as_the_simplest() -> None:
    plans = [Candidate(parse_plan(text), 1.0, 1e10) for text in ("tp8 matmuls", "tp8 selective", "tp4 fsdp=2")]
    first_of = Candidate(parse_plan("fsdp=8"), 1.0, 2e10)
    shown = {str(one.plan) for one in listed([first_of, *plans], [], 5, 8192)}
    assert shown == {"fsdp=8", "tensor=8,remat=selective", "fsdp=2,tensor=4"}


def test_the_best_that_run_and_verify_take(job: Job, found: Found) -> None:
    assert found.runs is not None
    assert not unrunnable(found.runs.plan, job.model)
    assert first_number(judge_one(job, found.runs.plan).seconds) == pytest.approx(found.runs.seconds, rel=1e-9)


SHORT = [
    "fsdp=8",
    "pp4 tp8 v2 z1",
    "cp2 ring fsdp4 mb2 none",
    "pp4 zb-h1 dp2 z0",
    "tp8 fp8 muon offload",
    "pp2 layout=ends etp=true sp0",
]


@pytest.mark.parametrize("text", SHORT)
def test_what_tables_print_is_read_back(text: str) -> None:
    plan = parse_plan(text)
    assert parse_plan(short_plan(plan)) == plan


def test_short_sequences_are_split_by_nothing_that_gains_little() -> None:
    """A plan that fills its chips comes before one with context, which has memory in plenty and gains two percent."""
    seconds, filled = numpy.array([0.98 * 1.03 / 1.01, 1.0]), numpy.array([0.5, 0.91])
    ranked = order(seconds, filled, numpy.array([8, 6]), numpy.ones(2), 0.01, numpy.array([True, False]))
    assert ranked.tolist() == [1, 0]
    assert handicap(numpy.array([0.03, 0.0]), 0.01).tolist() == pytest.approx([1.03 / 1.01, 1.0])
    assert handicap(numpy.array([0.03]), 0.0) == 1.0


def test_memory_in_plenty_comes_after_simplicity() -> None:
    seconds, filled = numpy.array([1.0, 1.005, 1.008]), numpy.array([0.9, 0.5, 0.85])
    ranked = order(seconds, filled, numpy.array([6, 6, 2]), numpy.ones(3), 0.01)
    assert ranked.tolist() == [2, 1, 0]


def test_a_layout_that_counts_the_ends_costs_a_point_in_a_search() -> None:
    """80 layers and two ends deal into 2 x 41 chunks alone with the ends counted: 0.3% faster than 2 x 40 of the
    layers, and no simpler."""
    job = make_job(load_model("llama3-70b"), parse_slice("h100:1024"), 1024, 4096, "megatron-core")
    best = search(job, count=3).best[0]
    assert best.plan.layout == "even"


def test_some_layers_recomputed_are_less_simple_than_all_or_none() -> None:
    none, every, some = (score(parse_plan(f"fsdp8 remat={remat}")) for remat in ("none", "block", "block:5"))
    assert none == every < some


def test_replicas_of_what_zero_could_shard_are_less_simple() -> None:
    assert score(parse_plan("fsdp4 ep8 z1")) < score(parse_plan("dp4 ep8 z1"))
