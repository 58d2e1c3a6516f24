"""Plans for the sizes that a slider passes: they divide wherever anything does, and cost one judgement."""

from typing import Any

import pytest

from dragonscale.web.answers import answer
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views import train_near

BEST = {
    "model": "llama3-70b",
    "on": "v5p:8x16x16",
    "batch": "4Mi",
    "seq": "8192",
    "plan": "fsdp512 cp4 z3 none",
    "alone": True,
}


def said(changes: dict[str, str], near: bool = True) -> dict[str, Any]:
    """The answer to a place of a slider."""
    found: dict[str, Any] = {}
    request = {"view": "train", "fields": BEST | changes, "panels": ["answer"], "brief": True, "near": near}
    answer(request, lambda message: found.update(message))
    return found["data"]


def test_a_batch_that_the_best_plan_does_not_divide_is_answered_by_another_mesh() -> None:
    assert not said({"batch": "384seq"}, near=False)["feasible"]
    refitted = said({"batch": "384seq"})
    assert (refitted["feasible"], refitted["plan"]) == (True, "fsdp128 cp8 tp2 z3 none")
    assert refitted["batch"]["sequences"] % refitted["divides"] == 0


def test_the_plan_stays_where_it_divides() -> None:
    assert said({"batch": "1024seq"})["plan"] == BEST["plan"]


@pytest.mark.parametrize(
    ("on", "plan"), [("v5p:8x8x8", "fsdp128 cp4 z3 none"), ("v5p:2x2x4", "fsdp4 cp4 z3 block")], ids=["fewer", "few"]
)
def test_other_chips_take_other_replicas_and_recompute_where_memory_is_short(on: str, plan: str) -> None:
    refitted = said({"on": on})
    assert (refitted["feasible"], refitted["plan"]) == (True, plan)


def test_where_nothing_divides_the_answer_says_so() -> None:
    refused = said({"batch": "1seq"})
    assert not refused["feasible"]
    assert "does not divide" in refused["problems"][0]


def test_a_place_where_a_plan_runs_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    ask = PageRequest.ask

    def counted(self: PageRequest, command: str, fields: Any, brief: bool | None = None) -> Any:
        judged.append(fields["plan"])
        return ask(self, command, fields, brief)

    monkeypatch.setattr(PageRequest, "ask", counted)
    asked = PageRequest.read({"view": "train", "fields": BEST | {"batch": "192seq"}, "brief": True}, lambda _: None)
    assert train_near.near_fields(asked)["plan"] == judged[0]
    assert len(judged) == 1


def test_other_software_stands_beside_with_numbers_that_open_there() -> None:
    from dragonscale.commands.train.train_records import StackRow
    from dragonscale.web.views.train import _stack_row

    row = _stack_row(StackRow(stack="torchtitan", plan="fsdp16", step_s=3.7, mfu=0.46, mostly="attention"))
    assert (row["stack"], row["step"]["text"], row["mfu"]["text"]) == ("torchtitan", "3.7s", "46.0%")
    assert row["step"]["why"].startswith("at?stack=torchtitan")
