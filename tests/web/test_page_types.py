"""The page's scripts read what panels are: real answers fit the records, and `tsc` and the linter find what does not."""

import re
import shutil

import msgspec
import pytest

from dragonscale.web.answers import answer
from dragonscale.web.view_names import view_names
from dragonscale.web.views.registry import panels_of
from tools import lint_page, page_types

SHAPES = page_types.panel_shapes()

TRAIN = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": "8192"}
GIVEN = TRAIN | {"plan": "fsdp8", "alone": True}
ASKED = (
    {"view": "train", "fields": TRAIN, "panels": ["answer", "time", "memory", "mesh", "sliders", "timeline"]},
    {"view": "train", "fields": GIVEN, "panels": ["batches", "answer"]},
    {"view": "train", "fields": GIVEN | {"batch": "3seq"}, "panels": ["answer", "time", "memory", "mesh", "timeline"]},
    {"view": "train", "fields": TRAIN | {"on": "h100:8,h100:16", "tokens": "1T"}, "panels": ["answer"]},
    {"view": "serve", "fields": {"model": "llama3-8b", "on": "h100:1"}, "panels": ["memory", "mesh", "timeline"]},
    {"view": "rl", "fields": {"model": "llama3-8b", "on": "h100:16"}},
    {"view": "why", "of": "train", "fields": GIVEN, "number": "step_s", "panels": ["facts", "formula"]},
    {"view": "learn", "panels": ["course"]},
)


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked['view']} {len(asked.get('fields', ()))}")
def test_answers_are_of_their_records(asked):
    found = {}
    answer(asked, lambda message: found.update({message["panel"]: message["data"]} if "panel" in message else message))
    assert "error" not in found, found
    known = SHAPES[asked["view"]]
    assert known.keys() & found.keys()
    for panel in known.keys() & found.keys():
        msgspec.convert(found[panel], known[panel])


def test_a_key_that_no_interface_has_is_refused():
    sizes = page_types.Shapes(page_types.TYPES.read_text()).record("BatchSizes")
    msgspec.convert({"tokens": 1, "sequences": 1, "seq": 1}, sizes)
    with pytest.raises(msgspec.ValidationError, match="unknown field `sequence`"):
        msgspec.convert({"tokens": 1, "sequences": 1, "seq": 1, "sequence": 1}, sizes)
    with pytest.raises(msgspec.ValidationError, match="missing required field `seq`"):
        msgspec.convert({"tokens": 1, "sequences": 1}, sizes)


def test_every_interface_is_read_and_every_panel_has_one():
    text = page_types.TYPES.read_text()
    assert set(page_types.Shapes(text).read) == set(re.findall(r"interface (\w+)", text))
    assert {view: set(panels_of(view)) for view in view_names()} == {
        view: set(shapes) & set(panels_of(view)) for view, shapes in SHAPES.items()
    }


def test_the_schema_is_that_of_the_types():
    assert page_types.SCHEMA.read_text() == page_types.schema_text(), "python -m tools.page_types"


def test_without_node_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "not installed" in (lint_page.why_not() or "")


@pytest.mark.slow
def test_a_wrong_key_and_an_unused_name_are_found(monkeypatch, tmp_path):
    reason = lint_page.why_not()
    if reason:
        pytest.skip(reason)
    assert lint_page.complaints() == []
    for where in ("src/dragonscale/web", "tools/page_lint"):
        shutil.copytree(lint_page.ROOT / where, tmp_path / where, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    card = tmp_path / "src/dragonscale/web/page/js/tabs/train_cards.js"
    card.write_text(card.read_text().replace("time.upper", "time.uper") + "\nconst never = 1;\n")
    monkeypatch.setattr(lint_page, "HERE", tmp_path / "tools" / "page_lint")
    types, lint = lint_page.complaints(tmp_path / "src/dragonscale/web/page/js")
    assert "Did you mean 'upper'" in types
    assert "never is unused" in lint
