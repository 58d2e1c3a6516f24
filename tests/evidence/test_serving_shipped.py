"""Served runs judged by an engine as it is shipped: what is kept of the run, what is the engine's."""

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.serving import as_shipped, served_runs, validate
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.launch import engine_on

from .measured import DATA, rows_of, write_rows

FILE = DATA / "serving.csv"


def test_limits_are_the_engines_and_the_load_is_the_runs():
    for run in served_runs(FILE)[0]:
        shipped = as_shipped(run, "auto")
        own = engine_on("auto", load_chip(run.row.chip), run.model, chips=run.plan.chips, plan=run.plan)
        assert shipped.engine == own
        assert shipped.budget == own.scheduling.max_tokens
        assert shipped.recipe.memory == own.memory.share
        assert (shipped.row, shipped.plan, shipped.drafts) == (run.row, run.plan, run.drafts)
        assert (shipped.recipe.spread, shipped.recipe.cold) == (run.recipe.spread, run.recipe.cold)
        assert not shipped.recipe.wait
        assert not shipped.recipe.balance


def test_an_engine_for_every_row(tmp_path):
    """The engine that people run, as it is shipped: at 4 clients the generic one had been half as slow again."""
    rows = [row for row in rows_of("serving") if "Llama" in row["model_path"] and int(row["concurrency"]) < 32]
    found = validate(write_rows(tmp_path / "few.csv", rows[:3]), "auto").as_json()
    assert found["engines"] == {"vllm": 3}
    assert found["median_ape"] < 0.25
    with pytest.raises(InputError, match="nothing"):
        validate(FILE, "nothing")
