"""What a stack's makers advise against is not offered, and judged with a note where it is given."""

import json

import pytest

from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.advice import given_plan
from dragonscale.training.advice.memory_relief import memory_relief
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.allowed_space import advice_against
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import Found, search, space_size, whole_size
from dragonscale.training.search.space import Space, parse_space

SMALL = "microbatch=1,remat=none|block,schedule=1f1b|interleaved"


def job(on: str, stack: str = "megatron-core", model: str = "llama3-70b") -> Job:
    return make_job(load_model(model), parse_slice(on), 64, 8192, stack)


def split_and_sharded(found: Found) -> list[Plan]:
    last = [one for one in (found.fastest, found.runs) if one is not None]
    plans = [one.plan for one in (*found.best, *found.front, *last)]
    return [one for one in plans if one.zero > 1 and one.fsdp > 1 and one.tensor * one.context > 1]


@pytest.mark.parametrize(
    ("on", "stack", "offers"),
    [
        ("h100:64", "megatron-core", False),
        ("h200:64", "megatron-bridge", False),
        ("a100:64", "megatron-core", False),
        ("mi300x:64", "megatron-core", False),
        ("b200:64", "megatron-core", True),
        ("h100:64", "torchtitan", True),
    ],
)
def test_megatron_fsdp_beside_tp_or_cp_is_offered_on_blackwell_alone(on: str, stack: str, offers: bool) -> None:
    here = job(on, stack)
    found = search(here, parse_space(SMALL), 20)
    assert found.best
    assert bool(split_and_sharded(found)) == offers
    given = advice_against(here, parse_plan("fsdp32 tp2 z3"))
    assert bool(given) == (not offers)


@pytest.mark.parametrize("pins", ["zero=3", "zero=2|3", "zero=1|3,tensor=4"])
def test_it_is_offered_where_zero_is_pinned(pins: str) -> None:
    assert split_and_sharded(search(job("h100:64"), parse_space(f"{SMALL},pipe=1,{pins}"), 20))


def test_other_pins_do_not_ask_for_it() -> None:
    found = search(job("h100:64", model="llama3-8b"), parse_space(f"{SMALL},pipe=1,tensor=4"), 20)
    assert not split_and_sharded(found)
    assert {one.plan.zero for one in found.best} <= {0, 1}


def test_where_nothing_fits_an_answer_says_what_was_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "llama3-70b", "--on", "h100:64", "--batch", "64seq", "--seq", "8192", "--stack", "megatron-core"]
    assert main([*words, "--fix", "pp1,tp4,mb1"]) == 3
    assert "--fix zero=3 tries it" in " ".join(capsys.readouterr().out.split())


def test_fsdp_alone_is_offered() -> None:
    """Megatron-FSDP without TP and CP has nothing against it, whatever else is searched beside it."""
    best = search(job("h100:64", model="llama3-8b"), parse_space(f"{SMALL},pipe=1"), 50).best
    alone = {one.plan.zero for one in best if one.plan.tensor * one.plan.context == 1}
    assert alone & {2, 3}


def test_what_is_left_out_is_counted() -> None:
    here, space = job("h100:64"), parse_space(SMALL)
    found = search(here, space, 1)
    assert found.judged == space_size(here, space)
    assert found.searched == whole_size(here, space)


def test_a_pipeline_of_llama_3s_own_is_not_meant() -> None:
    here, plan = job("h100:64", "megatron-2024"), parse_plan("pp4 tp4 fsdp4 z2")
    assert illegal(here, plan) == advice_against(here, plan) == []


def test_a_given_plan_is_judged_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "llama3-8b", "--on", "h100:16", "--batch", "32seq", "--seq", "8192", "--stack", "megatron-core"]
    assert main([*words, "--plan", "fsdp8 tp2 z3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("zero=3 with tensor=2 is not recommended: Megatron warns" in note for note in told["notes"])
    assert told["plans"][0]["plan"]["zero"] == 3
    assert not (told["best"]["plan"]["zero"] > 1 and told["best"]["plan"]["tensor"] > 1)
    assert main([*words, "--fix", "fsdp8,tp2,zero=3,mb1", "--remat", "none", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("is not recommended" in note for note in told["notes"])


def test_a_bounded_comparison_does_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large space a comparison takes the plan's own words, which pins nothing."""
    monkeypatch.setattr(given_plan, "MAX_PLANS_COMPARED", 1)
    here, plan = job("h100:64"), parse_plan("fsdp16 tp4 z3")
    around = given_plan.space_around(here, plan, Space(fixed={"microbatch": 1}))
    assert not split_and_sharded(search(here, around, 20))
    pinned = given_plan.space_around(here, plan, parse_space("zero=3"))
    assert pinned.zero == (3,)


def test_advice_on_memory_does_not_lead_there() -> None:
    """ZeRO-3 is what would fit."""
    here, plan = job("h100:64"), parse_plan("dp16 fsdp1 tp4 z0")
    relief = memory_relief(here, plan, judge_one(here, plan))
    assert relief is not None
    assert relief.plan.zero == 1
