"""Objects given to the library are what is answered about: never the preset of the same name."""

import copy
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.html import html_of
from dragonscale.commands.compare.sides import seconds_of
from dragonscale.commands.explain.formulas import Explanation
from dragonscale.commands.questions.flag import written
from dragonscale.errors import Infeasible
from dragonscale.physics.hardware import changed_chip

LLAMA = ds.load_model("llama3-8b")
SHALLOW = replace(LLAMA, layers=LLAMA.layers[:4])
FAST = replace(ds.parse_slice("h100:8"), chip=replace(changed_chip(ds.load_chip("h100"), "hbm=4x"), name="h100"))
JOB: dict[str, Any] = {"on": "h100:8", "batch": "64seq", "seq": 8192}


def test_an_explanation_is_of_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "serve"):  # the formulas themselves take seconds
        told = f"dragonscale.commands.explain.{name}.explain_{name}"
        monkeypatch.setattr(told, lambda *_: Explanation("", [], [], []))
    job = ds.explain("train", "tp8", model=SHALLOW, **{**JOB, "on": FAST}).asked
    assert (job.model, job.slice) == (SHALLOW, FAST)
    asked = ds.explain("serve", model=SHALLOW, on=FAST, plan="tp8", batch=8).asked
    assert (asked.model, asked.targets) == (SHALLOW, ((FAST.chip, FAST),))


@pytest.mark.parametrize("slice_", [FAST, ds.parse_slice("h100:8")])
def test_the_ledger_of_a_served_object_adds_up_to_its_step(slice_: ds.Slice) -> None:
    found = ds.serve(SHALLOW, slice_, plan="tp8", batch=64)
    assert found.best is not None
    assert float(found.ledger.total("exposed_s")) == pytest.approx(found.best.decode_step_s, rel=1e-6)


def test_what_no_name_stands_for_is_not_saved_compiled_or_commanded(tmp_path: Path) -> None:
    trained = ds.train(SHALLOW, plan="fsdp8", alone=True, **JOB)
    served = ds.serve(LLAMA, FAST, plan="tp8", batch=8)
    for answer, what in ((trained, "model"), (served, "chip")):
        for act in (lambda own=answer: own.save(str(tmp_path / "plan.toml")), answer.verify):
            with pytest.raises(ds.InputError, match=f"The {what} is an object, which a file cannot name"):
                act()
        assert "dscale" not in str(answer).splitlines()[-1]
    with pytest.raises(ds.InputError, match="cannot name"):
        ds.verify("fsdp8", SHALLOW, **JOB)
    named = ds.train(LLAMA, plan="fsdp8", alone=True, **{**JOB, "on": ds.parse_slice("h100:8")})
    assert "--model llama3-8b --on h100:8" in str(named)
    named.save(str(tmp_path / "plan.toml"))


def test_copies_and_pickles_keep_what_an_answer_came_from() -> None:
    answer = ds.train("llama3-8b", on="h100:8", batch="4M", seq="8k", plan="fsdp8", alone=True)
    assert answer.notes_beside
    for again in (copy.copy(answer), copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert again == answer
        assert again.notes_beside == answer.notes_beside
        assert again.ledger.total("flops") == answer.ledger.total("flops")
    for shown in (str(answer), answer._repr_html_()):
        assert answer.notes_beside[0][:20] in shown
    assert answer.notes_beside[0][:20] not in html_of(answer.sheet())


def test_an_answer_without_plans_says_so(tmp_path: Path) -> None:
    trained = ds.train("llama3-405b", on="v5e", batch="8seq", seq="8k", deadline="1ms")
    served = ds.serve("llama3-405b", on="h100:1")
    assert not trained.plans
    assert not served.configs
    for answer in (trained, served):
        for act in (
            lambda own=answer: own.ledger,
            lambda own=answer: own.save(str(tmp_path / "x.toml")),
            answer.verify,
        ):
            with pytest.raises(Infeasible, match="so none"):
                act()
    with pytest.raises(Infeasible, match="none that fits"):
        ds.train("llama3-8b", plan=served, **JOB)


def test_a_found_plan_can_be_given_back() -> None:
    found = ds.train("llama3-8b", top=2, fix="z3", remat="block", **JOB)
    best = found.best
    assert best is not None
    judged = ds.train("llama3-8b", plan=found, alone=True, **JOB).plans[0]
    assert (judged.plan, judged.step_s) == (best.plan, best.step_s)
    assert written(found) == written(best) == written(best.plan)
    compared = ds.compare([best, found.plans[1]], model="llama3-8b", **JOB)
    assert [seconds_of(side) for side in compared.sides] == [best.step_s, found.plans[1].step_s]
    served = ds.serve("llama3-8b", on="h100:2", top=1)
    assert served.best is not None
    again = ds.serve("llama3-8b", on="h100:2", plan=served, batch=served.best.batch)
    assert again.configs[0].decode_step_s == served.best.decode_step_s


def test_slices_in_a_list() -> None:
    two = ds.parse_slice("h100:16")
    found = ds.train("llama3-8b", **{**JOB, "on": [two, "h100:8"]}, fix="z3", remat="block")
    assert {row.slice for row in found.slices} == {"h100:8", "h100:16"}
    assert ds.serve("llama3-8b", on=[two.chip, "v5e"], batch=8).frontier_by_chip.keys() == {"h100", "v5e"}
    with pytest.raises(ds.InputError, match="two different chips that are named h100"):
        ds.train("llama3-8b", **{**JOB, "on": [FAST, two]})


def test_a_wrong_call_is_refused_in_the_name_of_its_function() -> None:
    calls = {
        "ds.train() has no parameter 'bach'; did you mean 'batch'?": lambda: ds.train("llama3-8b", bach="4M"),  # pyright: ignore
        "ds.verify() needs plan: ": lambda: ds.verify(),  # pyright: ignore
        "ds.compare() has no parameter 'modle'; did you mean 'model'?": lambda: ds.compare("tp8", modle="llama3-8b"),
        "ds.explain() has no parameter 'modle'": lambda: ds.explain("train", "tp8", modle="llama3-8b"),
        "ds.serve() is given model twice": lambda: ds.serve("llama3-8b", model="llama3-8b"),  # pyright: ignore
    }
    for sentence, call in calls.items():
        with pytest.raises(TypeError, match=re.escape(sentence)):
            call()


def test_records_and_objects_print_in_a_line() -> None:
    trained = ds.train("llama3-8b", plan="fsdp8", alone=True, **JOB)
    served = ds.serve("llama3-8b", on="h100:1", batch=8, top=1)
    ledger = trained.ledger
    for thing in (trained.plans[0], served.configs[0], ledger, LLAMA, FAST, FAST.chip):
        assert len(repr(thing)) < 120, repr(thing)
    frame: Any = ledger.to_frame()
    assert (frame["flops"] * frame["times"]).sum() == pytest.approx(ledger.total("flops"))


def test_editors_see_what_can_be_loaded() -> None:
    text = Path(str(ds.__file__)).read_text()
    seen = set(re.findall(r"^    from [\w.]+ import (\w+) as \1$", text, re.MULTILINE))
    seen |= set(re.findall(r"^    (\w+) = \w+\.\1\.function$", text, re.MULTILINE))
    assert seen == {*ds.__dir__()} - {"__version__"}
    assert re.fullmatch(r"\d+\.\d+.*", ds.__version__)


def test_a_plan_that_was_found_is_given_whole() -> None:
    found = ds.train("llama3-8b", **JOB, plan="fsdp8 z2 none", alone=True)
    first = found.plans[0]
    assert (first.plan.fsdp, first.plan["zero"], found.to_dict()["plans"][0]["plan"]["fsdp"]) == (8, 2, 8)
    assert "tensor=1" in written(first)  # no setting is left to the stack of the next question
    assert ds.train("llama3-8b", **JOB, plan=found, alone=True).plans[0].plan == first.plan
    assert pickle.loads(pickle.dumps(found)).ledger.total("flops") == found.ledger.total("flops")
