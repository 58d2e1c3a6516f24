"""Bands of expected step times: what they rest on, and that they hold for what they have not seen."""

import math
import random

import pytest

from dragonscale.evidence.bands import Residual, inside, kinds_of, left_out, training_coverage
from dragonscale.training.bands import LEAST, NOMINAL, Band, RunKind, band_of, tables
from tools.fit_bands import TAILS, best_tail

H100 = RunKind("h100", "megatron-core", False)


def runs(kind: RunKind, spread: float, count: int, seed: int, shift: float = 0.0) -> list[Residual]:
    """Runs of sources of ten, whose errors scatter by `spread` around `shift`."""
    chance = random.Random(seed)
    return [Residual(kind, f"source {kind.chip} {place // 10}", chance.gauss(shift, spread)) for place in range(count)]


def test_a_band_covers_what_it_was_made_of_and_what_it_was_not() -> None:
    some = runs(H100, 0.05, 200, 1) + runs(RunKind("v5p", "maxtext", False), 0.15, 100, 2)
    tail = best_tail(some)
    assert NOMINAL <= sum(left_out(some, tail)) / len(some) <= NOMINAL + 0.06
    assert sum(inside(one, band_of, kinds_of(some, tail)) for one in some) >= NOMINAL * len(some)


def test_wider_tails_make_narrower_bands() -> None:
    some = runs(H100, 0.1, 100, 3)
    widths = [band_of(H100, kinds_of(some, tail)).high - band_of(H100, kinds_of(some, tail)).low for tail in TAILS]
    assert widths == sorted(widths)


def test_bands_need_not_be_symmetric() -> None:
    band = band_of(H100, kinds_of(runs(H100, 0.05, 200, 4, shift=0.1), 0.1))
    assert band.low > -0.02
    assert band.high > 0.1


def test_kinds_with_few_runs_lean_on_the_wider_kind() -> None:
    many, few = runs(H100, 0.05, 200, 5), runs(RunKind("v6e", "maxtext", False), 0.5, LEAST - 1, 6)
    kinds = kinds_of([*many, *few], 0.1)
    assert band_of(few[0].kind, kinds).name == "dense"
    own, pooled = kinds["dense v6e"], kinds["dense"]
    alone = kinds_of(few, 0.1)["all"]
    assert pooled["high"] < own["high"] < alone["high"]


def test_few_dense_runs_lean_on_all_runs() -> None:
    moe = runs(RunKind("b200", "megatron-core", True), 0.05, 200, 7)
    kinds = kinds_of([*moe, *runs(H100, 0.5, LEAST, 8)], 0.1)
    alone = kinds_of(runs(H100, 0.5, LEAST, 8), 0.1)["all"]
    assert kinds["all"]["high"] < kinds["dense"]["high"] < alone["high"]


def test_a_stack_that_nobody_measured_has_the_band_of_its_chip() -> None:
    assert band_of(RunKind("h100", "hai-llm", False)).name == "dense h100"
    assert band_of(RunKind("mi355x", "hai-llm", True)).name == "moe"


def test_the_bands_that_answers_carry() -> None:
    for name, row in tables()["kinds"].items():
        assert row["low"] < row["high"], name
        assert -0.6 < row["low"] < 0.3, name
        assert row["high"] < 3, name
    assert tables()["kinds"]["moe"]["high"] > tables()["kinds"]["dense"]["high"]


def test_sentence() -> None:
    text = Band(-0.08, 0.12, 19, "moe gb300 megatron").text
    assert text == "4 of 5 of the 19 published MoE runs of megatron on gb300 were within -8%/+12%"
    assert Band(-0.1, 0.2, 372, "all").text == "4 of 5 of the 372 published runs were within -10%/+20%"
    assert "runs of maxtext were" in Band(-0.1, 0.2, 31, "dense * maxtext").text


def test_files_of_one_source_are_held_against_the_shipped_bands() -> None:
    one = [Residual(H100, "my cluster", math.log(1.01)), Residual(H100, "my cluster", math.log(3.0))]
    found = training_coverage(one)
    assert found["covered"] == pytest.approx(0.5)
    assert not found["sources_left_out"]


def test_what_is_expected_lies_in_its_own_band() -> None:
    """Also where nearly all runs of a kind were slower than expected."""
    for name in tables()["kinds"]:
        band = band_of(RunKind("h100", "generic", False), {"all": tables()["kinds"][name]})
        assert band.low <= 0.0 <= band.high, name
