"""Bands of expected step times: what they rest on, and that they hold for what they have not seen."""

import math
import random
from dataclasses import replace

import pytest

from dragonscale.evidence.bands import (
    TAIL,
    Residual,
    inside,
    kinds_of,
    left_out,
    quantile,
    training_coverage,
    widened,
)
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.error_bands import (
    MIN_RUNS,
    NOMINAL,
    Band,
    band_of,
    job_band,
    job_error,
    runs_of,
    tables,
)
from dragonscale.training.search.run_kinds import RunKind, generation
from tools.fit_bands import NEAREST, REACH, calibrated, residuals, unpublished_stretch

H100 = RunKind("h100", "megatron-core", False, "pipeline+tp", "bf16")
V5P = RunKind("v5p", "maxtext", False, "fsdp", "bf16")


def runs(kind: RunKind, spread: float, count: int, seed: int, shift: float = 0.0, source: str = "") -> list[Residual]:
    """Runs of sources of ten, or of one, whose errors scatter by `spread` around `shift`."""
    chance = random.Random(seed)
    return [
        Residual(kind, source or f"source {kind.chip} {place // 10}", chance.gauss(shift, spread))
        for place in range(count)
    ]


def width(name: str, kinds: dict[str, dict[str, float]]) -> float:
    return math.log1p(kinds[name]["high"]) - math.log1p(kinds[name]["low"])


def test_a_band_covers_what_it_was_made_of_and_what_it_was_not() -> None:
    some = runs(H100, 0.05, 200, 1) + runs(V5P, 0.15, 100, 2)
    kinds = calibrated(some)
    for held in (left_out(some, TAIL, widened(kinds)), [inside(one, band_of, kinds) for one in some]):
        for part in (held[:200], held[200:]):
            assert NOMINAL - 0.02 <= sum(part) / len(part) <= NOMINAL + 0.08


def test_kinds_of_one_source_are_as_wide_as_it_needs_on_its_side() -> None:
    """Runs of a source that were all quicker make the band wide there, and leave a tenth on the other side."""
    alone = runs(replace(H100, chip="h200"), 0.01, 20, 3, shift=-0.3, source="one")
    others = runs(H100, 0.05, 200, 4)
    kinds = calibrated([*others, *alone])
    row = kinds["dense h200 megatron"]
    assert row["low"] == pytest.approx(math.expm1(-0.3), abs=0.03)
    assert row["high"] == pytest.approx(math.expm1(REACH * NEAREST), abs=0.005)
    held = left_out([*others, *alone], TAIL, widened(kinds))[200:]
    assert NOMINAL <= sum(held) / len(held) <= 0.88


def test_kinds_that_need_less_lean_on_the_wider_one() -> None:
    many, few = runs(H100, 0.15, 200, 5), runs(replace(H100, split="replicas"), 0.002, MIN_RUNS, 6, source="one")
    kinds = calibrated([*many, *few])
    own, above = (kinds[f"dense h100 megatron{plan}"]["wider"] for plan in (" replicas", " pipeline+tp"))
    assert -1 < own < above
    alike = runs(replace(H100, split="replicas"), 0.002, 100, 6)
    assert width("dense h100 megatron replicas", calibrated([*many, *alike])) < width("all", kinds) / 4


def test_a_kind_with_too_few_runs_has_the_band_of_a_wider_one() -> None:
    few = runs(replace(H100, split="fsdp"), 0.5, MIN_RUNS - 1, 7)
    kinds = calibrated([*runs(H100, 0.05, 200, 8), *few])
    assert band_of(H100, kinds).name == "dense h100 megatron pipeline+tp bf16"
    assert band_of(replace(H100, split="fsdp"), kinds).name == "dense h100 megatron"
    assert band_of(RunKind("h200", "megatron-fp32", False, "fsdp", "fp8"), kinds).name == "dense hopper megatron"
    assert band_of(RunKind("h100", "maxtext", False), kinds).name == "dense hopper"


def test_few_runs_lean_on_all_runs_before_bands_are_widened() -> None:
    moe = runs(RunKind("b200", "megatron-core", True), 0.05, 200, 7)
    kinds = kinds_of([*moe, *runs(H100, 0.5, MIN_RUNS, 8)], 0.1)
    alone = kinds_of(runs(H100, 0.5, MIN_RUNS, 8), 0.1)["all"]
    assert kinds["all"]["high"] < kinds["dense"]["high"] < alone["high"]


def test_bands_of_kinds_of_plan_that_were_left_out_are_wider() -> None:
    some = runs(H100, 0.05, 100, 9) + runs(replace(H100, split="fsdp+tp"), 0.05, 40, 10, shift=0.3)
    alike = runs(H100, 0.05, 100, 9) + runs(replace(H100, split="fsdp+tp"), 0.05, 40, 10)
    assert unpublished_stretch(alike, calibrated(alike)) == 1.5
    shifted = calibrated(runs(H100, 0.05, 100, 9))
    assert unpublished_stretch(some, shifted) > 1.5


def test_a_stack_that_starts_from_another_has_its_band() -> None:
    assert band_of(RunKind("h100", "hai-llm", False)).name == "dense h100 megatron"
    assert band_of(RunKind("mi355x", "hf-liger", True)).name == "moe"
    assert generation("gb300") == "blackwell"


def test_the_bands_that_answers_carry() -> None:
    assert tables()["unpublished"] >= 1.5
    for name, row in tables()["kinds"].items():
        assert row["low"] < row["high"], name
        assert -0.7 < row["low"] < 0.3, name
        assert row["high"] < 5, name
        assert row["runs"] >= MIN_RUNS
    assert tables()["kinds"]["moe"]["high"] > tables()["kinds"]["dense"]["high"]


def test_sentence() -> None:
    text = Band(-0.08, 0.12, 19, "moe gb300 megatron").text
    assert text == "4 of 5 of the 19 published MoE runs of megatron on gb300 were within -8%/+12%"
    assert Band(-0.1, 0.2, 372, "all").text == "4 of 5 of the 372 published runs were within -10%/+20%"
    assert "runs of maxtext with FSDP on v5e were" in Band(-0.1, 0.2, 31, "dense v5e maxtext fsdp").text
    assert "dense runs on h100, judged by generic, were" in Band(-0.1, 0.2, 125, "dense h100 generic").text


def test_a_plan_of_which_no_step_is_published_has_a_wider_band_and_says_so() -> None:
    def band(on: str, plan: str, stack: str = "megatron-core") -> Band:
        return job_band(make_job(load_model("llama3-70b"), parse_slice(on), 2048, 8192, stack), parse_plan(plan))

    known, unknown = band("h100:512", "pp4 fsdp16 tp8 z1"), band("h100:512", "fsdp128 tp4 z3")
    assert "with a pipeline and TP on h100" in known.text
    assert unknown.text.startswith("no dense run of megatron with FSDP and TP on hopper is in our data (")
    assert unknown.high > 1.3 * band_of(RunKind("h100", "megatron-core", False)).high
    assert "published dense runs" in band("h100:16384", "pp4 fsdp512 tp8 z1").text  # Llama 3's are documented
    small, large = (band(f"h100:{chips}", f"fsdp{chips} z3", "torchtitan") for chips in (128, 1024))
    assert "on hopper with more than 128 chips is in our data" in large.text
    assert large.low < small.low < small.high < large.high
    assert "judged by generic" in band("h100:512", "fsdp128 tp4 z3", "generic").text
    assert band("h100:1", "mb1").text.startswith("4 of 5")


def test_the_error_of_a_stack_is_larger_where_none_of_its_steps_is_published() -> None:
    here, there = (
        make_job(load_model("llama3-8b"), parse_slice(on), 64, 8192, "megatron-core") for on in ("h100:8", "mi300x:8")
    )
    assert job_error(here) == pytest.approx(0.5 * width_of(band_of(RunKind("h100", "megatron", False))))
    assert job_error(there) == pytest.approx(
        0.5 * tables()["unpublished"] * width_of(band_of(RunKind("mi300x", "megatron", False)))
    )


def width_of(band: Band) -> float:
    return band.high - band.low


@pytest.mark.slow
def test_bands_hold_for_every_kind_with_its_source_left_out() -> None:
    found = training_coverage(residuals()[0])
    assert found["sources_left_out"]
    for name, row in found["by_kind"].items():
        assert row["rows"] < MIN_RUNS or abs(row["covered"] - NOMINAL) <= 0.1, (name, row)


def test_bands_that_answers_carry_hold_for_some_runs() -> None:
    some = residuals(every=5)[0]
    held = [inside(one, band_of) for one in some]
    assert NOMINAL - 0.08 <= sum(held) / len(held) <= NOMINAL + 0.12


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


@pytest.mark.parametrize(
    ("on", "stack", "told"),
    [
        ("h100:8", "megatron-core", ""),
        ("h100+nvlink=2x:8", "megatron-core", "no run of h100+nvlink=2x is in our data, those of h100 stand for it"),
        ("mi300x:8", "megatron-core", ", none of them on mi300x"),
        ("h100:8", "axolotl", "hf (which stands for axolotl)"),
    ],
)
def test_a_band_says_where_its_runs_are_not_of_the_chip_or_the_software(on: str, stack: str, told: str) -> None:
    job = make_job(load_model("llama3-8b"), parse_slice(on), 64, 8192, stack)
    text = job_band(job, parse_plan("fsdp8 z3")).text
    assert told in text
    assert bool(told) is any(word in text for word in ("no run", "of them", "stands for"))


@pytest.mark.parametrize(("on", "counted"), [("h100:16", "8 of them on h100"), ("h200:16", "none of them on h200")])
def test_a_band_of_a_wider_kind_counts_the_runs_of_the_chip(on: str, counted: str) -> None:
    """The number itself: no chip without a run hides behind "few"."""
    job = make_job(load_model("qwen3-30b-a3b"), parse_slice(on), 512, 4096, "megatron-core")
    assert job_band(job, parse_plan("pp2 ep8 z1")).text.endswith(f", {counted}")


def test_counts_are_those_of_the_kinds() -> None:
    """Runs by chip and stack add up to the runs of every kind, those of the unnamed stack too."""
    table = tables()
    for name, row in table["kinds"].items():
        if len(name.split()) <= 3:
            assert runs_of(name) == row["runs"], name


@pytest.mark.parametrize(("share", "value"), [(0.1, 1), (0.25, 2.5), (0.5, 5), (0.9, 9), (0.01, 1), (0.99, 9)])
def test_a_quantile_reaches_for_the_tails(share: float, value: float) -> None:
    """The k-th of n values is the quantile of k / (n + 1): nine values say nothing of what lies beyond a tenth."""
    assert quantile(range(9, 0, -1), share) == pytest.approx(value)
