"""Commands and configs that projects publish are read as the plans that they are (`published/*.toml`), and judged."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.target import of_kind
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.training.plan.plan_file import given_settings, parse_plan

PUBLISHED = Path(__file__).with_name("published")


def runs() -> list[tuple[str, dict[str, Any]]]:
    """Every published run, with the target that it is for."""
    found = []
    for path in sorted(PUBLISHED.glob("*.toml")):
        found += [(path.stem, run) for run in tomllib.loads(path.read_text(encoding="utf-8"))["run"]]
    return found


@pytest.mark.parametrize(("target", "run"), runs(), ids=lambda one: one if isinstance(one, str) else one["name"])
def test_a_published_run_is_read(target: str, run: dict[str, Any]) -> None:
    found = read_plan(run["text"], Given(run.get("model", ""), run["on"]))
    expect = run["expect"]
    assert found.target == target
    assert found.file.model == expect["model"]
    for name in given_settings(expect["plan"]) if target in {one.name for one in of_kind("training")} else ():
        assert getattr(found.file.plan, name) == getattr(parse_plan(expect["plan"]), name), name
    if isinstance(found.file, SavedPlan):
        from dragonscale.serving.engine.plan import given_settings as named
        from dragonscale.serving.engine.plan import parse_serving_plan

        for name in named(expect["plan"]):
            assert getattr(found.file.plan, name) == getattr(parse_serving_plan(expect["plan"]), name), name
    for name in ("batch", "seq", "method", "lora_rank", "lora_targets", "frozen", "stack"):
        if name in expect:
            assert getattr(found.file, name) == expect[name], name


def test_every_target_has_two_published_runs() -> None:
    counted = [target for target, _ in runs()]
    targets = [one.name for one in (*of_kind("training"), *of_kind("serving"))]
    assert set(counted) <= set(targets)
    assert {name: counted.count(name) for name in targets if counted.count(name) < 2} == {}


def test_the_page_lists_every_target() -> None:
    from tools.list_targets import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(PAGE.read_text(encoding="utf-8"))


def test_the_page_of_published_runs_has_each() -> None:
    from tools.judge_published import PAGE, page

    text = page(PAGE.read_text(encoding="utf-8"))
    assert [run["name"] for _, run in runs() if run["name"] not in text] == []
