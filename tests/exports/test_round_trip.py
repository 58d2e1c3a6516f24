"""An export that is imported again is judged to the same numbers; and a name that a software lacks
cannot be written."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.exports.keys import flag_words
from dragonscale.exports.target import Target, of_kind
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan, effective
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import load_stack
from tests.exports.plans import exports_of, plan_files

SOFTWARE = [*of_kind("training"), *of_kind("serving")]


def _judged(target: Target, back: Any, saved: Path) -> tuple[float | None, ...]:
    if target.kind == "training":
        back.save(str(saved))
        found = ds.train(plan=str(saved), alone=True).plans[0]
        return found.step_s, found.hbm_bytes
    back.save(str(saved))  # as it is: a foreign plan is held against the best, which takes a search
    best = ds.serve(plan=str(saved)).configs[0]
    return best.tpot_s, best.hbm_bytes


def _check(target: Target, tmp_path: Path, most: int | None) -> int:
    seen = 0
    for path, export in itertools.islice(exports_of(target, tmp_path), most):
        seen += 1
        folder = tmp_path / path.stem
        export.write_into(str(folder))
        back = ds.import_plan(str(folder))
        assert (back.model, back.slice) == (export.model, export.slice)
        if "prefill" in back.workload:  # pools are judged by `dscale simulate`
            continue
        numbers = (export.step_s if target.kind == "training" else export.tpot_s, export.hbm_bytes)
        assert _judged(target, back, tmp_path / f"{path.stem}-back.toml") == pytest.approx(numbers, rel=1e-9), (
            path.name,
            export.plan,
            back.plan,
        )
    return seen


@pytest.mark.parametrize("target", SOFTWARE, ids=lambda one: one.name)
def test_an_export_is_judged_as_its_plan_was(target: Target, tmp_path: Path) -> None:
    assert _check(target, tmp_path, 1) == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", SOFTWARE, ids=lambda one: one.name)
def test_every_export_is_judged_as_its_plan_was(target: Target, tmp_path: Path) -> None:
    assert _check(target, tmp_path, None) >= 2


def test_a_flag_that_the_software_lacks_cannot_be_written() -> None:
    with pytest.raises(LookupError, match="no-such"):
        flag_words(SOFTWARE[-1].key_table(), {"--no-such-flag": 1})


def test_there_are_plans_to_export(tmp_path: Path) -> None:
    assert len(plan_files(of_kind("serving")[0], tmp_path)) > 20


WRITTEN = [
    ("megatron", "data=16,sequence=false"),
    ("megatron", "fsdp=16,zero=1,context_by=ring"),
    ("torchtitan", "data=4,tensor=4"),
    ("maxtext", "data=8,tensor=2,zero=0"),
    ("accelerate", "fsdp=16,fold=context"),
]


@pytest.mark.parametrize(("target", "plan"), WRITTEN)
def test_settings_without_effect_come_back_the_same(target: str, plan: str, tmp_path: Path) -> None:
    on = "v5p:2x2x4" if target == "maxtext" else "h100:16"
    made = ds.export(plan, model="llama3.2-1b", on=on, batch="64seq", seq="4096", to=target)
    made.write_into(str(tmp_path / "out"), False)
    assert ds.import_plan(str(tmp_path / "out")).plan == made.plan


@pytest.mark.parametrize(
    "plan",
    [
        Plan(data=8, zero=2, sequence=False, context_by="ring"),
        Plan(data=4, tensor=2, fold="context"),
        Plan(fsdp=8, etp=True),
    ],
)
def test_settings_without_effect_have_none(plan: Plan) -> None:
    job = Job(load_model("llama3.2-1b"), parse_slice("h100:8"), 64, 4096, load_stack("megatron-core"))
    usual = effective(plan)
    assert usual != plan
    same = [judge_one(job, one) for one in (plan, usual)]
    assert same[0].hbm_bytes == same[1].hbm_bytes
    assert same[0].ledger.total("exposed_s") == same[1].ledger.total("exposed_s")


@pytest.mark.parametrize(
    "words", ["fsdp=4,tensor=2,sequence=false", "fsdp=4,context=2,context_by=ring", "context=2,zero=2"]
)
def test_settings_with_an_effect_stay(words: str) -> None:
    assert effective(parse_plan(words)) == parse_plan(words)
