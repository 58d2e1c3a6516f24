"""Refits: constants are found again where runs determine them, left alone where they do not, and
scored on runs unseen."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from dragonscale.evidence.score import Scored
from dragonscale.serving.engine.engine import engines, load_engine
from dragonscale.training.plan.stack import stacks
from tools import fit_engines, fit_stacks
from tools.halves import half_of, halves_table
from tools.refit import (
    FitRow,
    FreeConstant,
    errors,
    fit,
    free_constants,
    get,
    held_out,
    lines_of,
    put,
    refit,
    responses_of,
    to_try,
)

FREE = (FreeConstant("host.step_s", 0.0, 1.0), FreeConstant("host.token_s", 0.0, 1.0))


def made(rows: int, truth: tuple[float, float], shipped: tuple[float, float] = (0.5, 0.5)):
    """Runs of an engine whose time is 1 + step + (a size) x token, measured with known constants."""
    engine = put(load_engine("generic"), {"host.step_s": shipped[0], "host.token_s": shipped[1]})
    sizes = np.linspace(0.1, 4.0, rows)
    tried = to_try(engine, FREE, 3)

    def times(change):
        own = put(engine, change)
        return 1 + get(own, "host.step_s") + sizes * get(own, "host.token_s")

    labels = [
        FitRow(1 + truth[0] + size * truth[1], f"chip{place % 3}", "one source") for place, size in enumerate(sizes)
    ]
    return responses_of(labels, engine, FREE, tried, np.array([times(change) for change in tried]).T), times


def test_constants_are_found_again():
    responses, times = made(12, (0.25, 0.75))
    found = refit("made", responses, times)
    assert found.constants == pytest.approx((0.25, 0.75), abs=0.04)
    assert np.abs(found.exact).max() < 0.02
    assert np.abs(errors(responses, responses.shipped, np.arange(12))).max() > 0.1
    assert {fold: len(seen) for fold, seen in found.left_out.items()} == {"every second": 12, "chips": 12, "sources": 0}
    assert np.abs(found.left_out["chips"]).max() < 0.05
    [(what, runs, said)] = lines_of(found)
    assert (what, runs, len(said), said[-1]) == ("", 12, 5, "–")


def test_the_shipped_constants_do_not_sway_the_fit():
    places = np.arange(0, 12, 2)
    one, other = made(12, (0.25, 0.75))[0], made(12, (0.25, 0.75), shipped=(1.0, 0.0))[0]
    assert one.neutral == other.neutral == (0.0, 0.0)
    assert fit(one, places) == pytest.approx(fit(other, places))


def test_what_runs_leave_open_stays_neutral():
    responses, _ = made(12, (0.25, 0.75))
    flat = replace(
        responses, table=tuple(np.repeat(part[:, :1] * 0 + responses.base[:, None], 3, 1) for part in responses.table)
    )
    assert fit(flat, np.arange(12)) == flat.neutral


def test_labels_that_are_all_the_same_leave_nothing_to_score():
    responses, _ = made(4, (0.2, 0.2))
    assert len(held_out(responses, lambda _, row: row.source)) == 0


@pytest.mark.parametrize(("kind", "known"), [("stacks", stacks), ("engines", engines)])
def test_free_constants_exist_and_hold_the_shipped_ones(kind, known):
    for name, free in free_constants(kind).items():
        for one in free:
            assert one.low <= get(known()[name], one.path) <= one.high, (name, one.path)


@pytest.mark.slow
def test_a_stack_on_a_few_runs():
    rows = fit_stacks.read_runs(fit_stacks.FILES)["nanotron"][:6]
    free = [one for one in free_constants("stacks")["nanotron"] if one.path in ("state.accumulate", "host.step_s")]
    with ThreadPoolExecutor(1) as pool:
        found = fit_stacks.fit_stack("nanotron", rows, free, pool)
    everything = np.arange(len(rows))
    shipped = np.abs(np.log1p(errors(found.responses, found.responses.shipped, everything))).mean()
    assert len(found.responses.rows) == 6
    assert np.abs(np.log1p(found.exact)).mean() < shipped
    # What the table of single changes says of both together is what the model says.
    assert errors(found.responses, found.constants, everything) == pytest.approx(found.exact, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "engine", "count", "numbers"),
    [("inference", "fastertransformer", 6, 6), pytest.param("serving", "vllm", 3, 6, marks=pytest.mark.slow)],
)
def test_an_engine_on_a_few_runs(kind, engine, count, numbers):
    rows = fit_engines.read_runs()[kind][engine][:count]
    with ThreadPoolExecutor(1) as pool:
        found = fit_engines.fit_engine(kind, engine, rows, free_constants("engines")[engine][:2], pool)
    everything = np.arange(numbers)
    shipped = np.abs(np.log1p(errors(found.responses, found.responses.shipped, everything))).mean()
    assert len(found.responses.rows) == numbers
    assert np.abs(np.log1p(found.exact)).mean() < shipped + 0.005
    assert errors(found.responses, found.constants, everything) == pytest.approx(found.exact, abs=0.08)


def test_the_halves_never_share_a_model_on_a_chip():
    rows = [row for rows in fit_engines.read_runs()["serving"].values() for row in rows]
    sides = {}
    for row in rows:
        assert sides.setdefault((row.model, row.chip), half_of(row)) == half_of(row)
    share = sum(half_of(row) for row in rows) / len(rows)
    assert 0.25 < share < 0.75
    assert {row.engine for row in rows if half_of(row)} == {row.engine for row in rows if not half_of(row)}


def test_the_table_of_halves_has_engines_and_kinds_of_models():
    rows = [row for rows in fit_engines.read_runs()["serving"].values() for row in rows[::40]]
    series = {"TPOT": [Scored(row.id, row.source, row.tpot_s, 1.1 * row.tpot_s) for row in rows]}
    table = halves_table(series, rows)
    assert f"| **all runs** | {len(rows)} | 10.0% | 10.0% | +10.0% |" in table
    assert all(f"| {label} |" in table for label in ("MoE", "dense", "`vllm`", "`sglang`", "`trtllm`"))
