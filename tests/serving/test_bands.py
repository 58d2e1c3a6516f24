"""Bands around expected latencies and rates of servers: what they rest on, and that they hold for what they have not
seen."""

import math
import random
from dataclasses import replace

import pytest

from dragonscale.commands.serve.bands import bands_for, expected_error
from dragonscale.evidence.bands import Residual, band_around, inside, kinds_of, left_out
from dragonscale.physics.hardware.catalogue import chip_names
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.space.bands import FAMILIES, MEASURES, MIN_RUNS, ServedKind, band_of, counted_share, tables
from dragonscale.training.search.error_bands import NOMINAL
from dragonscale.training.search.run_kinds import GENERATIONS
from tools.fit_bands import best_stretch, best_tail

H100 = ServedKind("h100", "vllm", False)


def runs(kind: ServedKind, spread: float, count: int, seed: int) -> list[Residual]:
    """Runs of models of ten, whose errors scatter by `spread`."""
    chance = random.Random(seed)
    return [Residual(kind, f"model {place // 10} {kind.chip}", chance.gauss(0.0, spread)) for place in range(count)]


def test_a_band_covers_models_on_chips_that_it_has_not_seen() -> None:
    some = runs(H100, 0.05, 200, 1) + runs(ServedKind("b200", "sglang", True), 0.15, 100, 2)
    tail = best_tail(some, band_around("tpot", 1.0))
    held = left_out(some, tail, band_around("tpot", 1.0))
    seen = [inside(one, band_around("tpot", 1.0), kinds_of(some, tail)) for one in some]
    assert 0.75 <= sum(held) / len(held) <= 0.88
    assert 0.75 <= sum(seen) / len(seen) <= 0.88
    assert sum(held) + sum(seen) >= 2 * NOMINAL * len(some)
    assert best_stretch(some, "tpot", tail) >= 1.5


def test_runs_of_one_model_lend_a_kind_no_more_than_a_model_is_worth() -> None:
    """However many loads it was measured at; and a kind keeps to its own runs from ten on."""
    others = runs(ServedKind("h100", "sglang", False), 0.3, 400, 7)
    alike = [replace(one, group="model 0 h100") for one in runs(H100, 0.05, 9, 8)]
    apart = [replace(one, group=f"model {place} h100") for place, one in enumerate(alike)]
    one_model, nine = (kinds_of([*others, *own], 0.1)["dense hopper vllm"] for own in (alike, apart))
    assert one_model["high"] > 1.2 * nine["high"]
    assert one_model["low"] < 1.2 * nine["low"]
    many = [replace(one, group="model 0 h100") for one in runs(H100, 0.05, 200, 9)]
    band = kinds_of([*others, *many], 0.1)["dense hopper vllm"]
    beyond = [
        sum(math.expm1(one.log) < band["low"] for one in many),
        sum(math.expm1(one.log) > band["high"] for one in many),
    ]
    assert all(0.04 * len(many) <= count <= 0.13 * len(many) for count in beyond)


def test_guesses_count_by_the_slow_end_of_their_band() -> None:
    """Where neither the kernels of a chip nor enough runs of the engine on it were measured."""
    guess = ServedKind("tpu7x", "vllm-tpu", True)
    assert counted_share(guess) == pytest.approx(1 + band_of(guess, "tokens").low)
    assert counted_share(guess) < 0.75
    assert counted_share(ServedKind("gb200", "sglang-ep", True)) == 1.0
    # measured, and nearly all runs made fewer tokens than expected
    measured = ServedKind("mi300x", "vllm", False)
    assert not band_of(measured, "tokens").estimated
    assert counted_share(measured) == pytest.approx(1 + tables()["tokens"]["kinds"]["dense cdna vllm"]["high"])
    assert "below what is expected" in expected_error(measured).source
    assert counted_share(ServedKind("mi355x", "vllm", False)) < counted_share(measured)


def test_a_chip_leans_on_its_generation_and_an_engine_on_its_family() -> None:
    kinds = kinds_of(runs(H100, 0.05, 100, 3) + runs(ServedKind("a100", "vllm", False), 0.3, 100, 4), 0.1)
    assert band_of(ServedKind("h800", "vllm-ep", False), "tpot", kinds).name == "dense hopper vllm"
    assert band_of(ServedKind("h800", "sglang", False), "tpot", kinds).name == "dense hopper"
    few = kinds_of(runs(H100, 0.05, MIN_RUNS - 1, 5) + runs(ServedKind("b200", "trtllm", False), 0.3, 50, 6), 0.1)
    assert band_of(H100, "tpot", few).name == "dense"


@pytest.mark.parametrize("chip", ["mi355x", "mi300x", "tpu7x", "v100", "v5p", "l40s"])
def test_chips_of_which_nothing_was_measured_say_so(chip: str) -> None:
    own, fitted = (band_of(ServedKind(name, "vllm", True), "tpot") for name in (chip, "b200"))
    assert own.estimated
    assert not fitted.estimated
    assert math.log1p(own.high) - math.log1p(own.low) > math.log1p(fitted.high) - math.log1p(fitted.low)
    error = expected_error(ServedKind(chip, "vllm", True))
    assert error.tpot is None
    assert f"no such run on {chip} was measured" in error.source


def test_measured_kinds_have_errors_of_their_own() -> None:
    dense, moe = (expected_error(ServedKind("h200", "vllm", moe)) for moe in (False, True))
    assert dense.tpot is not None
    assert moe.tpot is not None
    assert dense.tpot < moe.tpot
    assert "estimated" not in moe.source
    assert bands_for(ServedKind("h100", "trtllm", False)) != bands_for(ServedKind("h100", "vllm", False))


@pytest.mark.parametrize("measure", MEASURES)
def test_what_is_expected_lies_in_its_own_band(measure: str) -> None:
    """Of every chip, engine and kind of model, and of kinds whose runs were all slower or all quicker."""
    names = sorted({*FAMILIES, *engines(), "somebody's own"})
    for chip in (*chip_names(), "a new chip"):
        for engine in names:
            for moe in (False, True):
                low, high = band_of(ServedKind(chip, engine, moe), measure).around(2.0)
                assert 0 < low <= 2.0 <= high < math.inf, (chip, engine, moe)
    for one_side in ({"low": 0.1, "high": 0.4}, {"low": -0.4, "high": -0.1}):
        among = {"all": {**one_side, "runs": 100, "median": 0.2}}
        low, high = band_of(H100, measure, among).around(2.0)
        assert low <= 2.0 <= high
        assert (low, high) != (2.0, 2.0)


def test_the_bands_that_answers_carry() -> None:
    assert set(tables()) == set(MEASURES)
    assert set(chip_names()) == {chip for chips in GENERATIONS.values() for chip in chips}
    for measure, table in tables().items():
        assert table["stretch"] >= 1.5
        assert table["chips"]
        for name, row in table["kinds"].items():
            assert -0.8 < row["low"] < row["high"] < 20, (measure, name)
            assert 0 < row["median"] < 0.8, (measure, name)
