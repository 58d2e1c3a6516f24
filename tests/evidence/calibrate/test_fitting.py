"""Constants are found again from times made with them; the own search ends where SciPy's does; profiles survive their
file."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import Machine, TimedCase, all_cases, read_measurements
from dragonscale.evidence.calibrate.fitting import (
    BOUNDS,
    TABLES,
    by_kind,
    check_tables,
    expected_seconds,
    few_cases,
    fit_between,
    fit_table,
    log_errors,
    median_error,
)
from dragonscale.evidence.calibrate.own_profile import fit_profile
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels import kernel_profile_for
from dragonscale.physics.kernels.profile import KernelProfile, Tables
from dragonscale.physics.kernels.profile_file import make_profile, profile_files
from tools.fit_kernels import errors, get_table, parts, path_of, put_table, read_cases, scipy_solver

MACHINE = Machine("NVIDIA H200", 1, "gpu", {"jax": "0.11.2"}, "jax", "2026-11-16")


def slower_h200() -> KernelProfile:
    """An H200 whose kernels are others than the built-in ones."""
    profile = kernel_profile_for("h200")
    matmul = replace(profile.matmul.of("bf16"), rate=0.8, bandwidth=0.7, launch=6e-6, sustained=0.7)
    attention = replace(profile.attention.of("bf16"), rate=0.45, launch=2e-5, backward=3.4)
    stream = replace(profile.stream, bandwidth=0.7, launch=3e-6)
    return replace(profile, stream=stream, matmul=Tables({"bf16": matmul}), attention=Tables({"bf16": attention}))


def rows_of(profile: KernelProfile, kinds: tuple[str, ...], count: int = 90) -> list[TimedCase]:
    cases = [case for case in all_cases(("bf16",)) if case.kind in kinds][:count]
    rows = [TimedCase(case.kind, case.sizes, case.dtype, 1.0) for case in cases]
    found: list[TimedCase] = []
    for alike in by_kind(rows).values():
        times = expected_seconds(alike, profile)
        found += [TimedCase(row.kind, row.sizes, row.dtype, float(t)) for row, t in zip(alike, times, strict=True)]
    return found


def test_constants_behind_the_times_are_found_and_written() -> None:
    true = slower_h200()
    rows = rows_of(true, ("matmul", "attention", "attention_both", "copy", "read"))
    found = fit_profile(rows, MACHINE, load_chip("h200"))
    assert [one.worth.table for one in found.fits] == ["stream", "matmul.bf16", "attention.bf16"]
    for worth in (fit.worth for fit in found.fits):
        assert worth.error is not None
        assert worth.built_in_error is not None
        assert worth.unseen_shapes_error is not None
        assert worth.error < 0.02 < worth.built_in_error, worth
        assert worth.unseen_shapes_error < 0.03, worth
    again = make_profile(found.file, load_chip("h200"))
    assert again.attention.of("bf16").backward == pytest.approx(3.4, rel=0.02)
    assert median_error(log_errors(rows, again)) < 0.02
    # kernels that were not there at all
    others = [row for row in rows_of(true, ("matmul",), 300) if row.case.id not in {one.case.id for one in rows}]
    assert median_error(log_errors(others, again)) < 0.02
    # what was not measured is the built-in profile's, and says so
    assert again.decode == kernel_profile_for("h200").decode
    assert "built-in profile h200" in again.rests_on["decode.bf16"].note
    assert again.rests_on["matmul.bf16"].rows == len([row for row in rows if row.kind == "matmul"])
    assert again.rests_on["matmul.bf16"].unseen_shapes is not None


def test_a_table_that_the_built_in_profile_lacks_comes_first() -> None:
    """What was measured here is what is usual here."""
    built_in = profile_files()["h200"]
    assert "ragged_dot" not in built_in.grouped["bf16"]
    sizes = [(tokens, 2048, 768, 8, 128) for tokens in (16, 128, 1024, 4096)]
    rows = [TimedCase("experts", size, "bf16", 1e-4 * (1 + size[0] / 1000)) for size in sizes]
    found = fit_profile(rows, MACHINE, load_chip("h200"))
    assert list(found.file.grouped["bf16"]) == ["ragged_dot", *built_in.grouped["bf16"]]
    assert [one.table for one in found.tables if one.error is not None] == ["grouped.bf16.ragged_dot"]


def test_too_few_measurements_make_no_profile() -> None:
    with pytest.raises(InputError, match="too few"):
        fit_profile([TimedCase("matmul", (16, 4096, 4096), "bf16", 1e-5)], MACHINE, load_chip("h200"))


@pytest.mark.parametrize("kind", ["gemm", "attn_context", "attn_generation"])
def test_own_search_ends_where_scipys_does(kind: str) -> None:
    cases = [case for case in read_cases(f"tests/kernels/sample_{kind}.csv")[0] if case.key.chip == "h200"]
    path = path_of(cases[0])
    own = [case for case in cases if path_of(case) == path]
    profile, found = kernel_profile_for("h200"), parts(own)

    def cost(solve) -> float:
        def left(table):
            return errors(found, put_table(profile, path, table))

        table = fit_table(get_table(profile, path), BOUNDS[path[1]], left, solve)
        values = {name: pair for name, pair in BOUNDS[path[1]].items() if getattr(table, name)}
        pull = [0.05 * np.log(getattr(table, name) / pair[1]) for name, pair in values.items()]
        return float((np.sqrt(1 + (np.concatenate([left(table), pull]) / 0.1) ** 2) - 1).sum())

    assert cost(fit_between) == pytest.approx(cost(scipy_solver), rel=0.02)


def test_a_check_tells_a_profile_that_holds_from_one_that_does_not() -> None:
    true = slower_h200()
    few = {case.id for case in few_cases(all_cases(("bf16",)), true.chip)}
    rows = [row for row in rows_of(true, ("matmul", "attention", "copy", "read"), 300) if row.case.id in few]
    assert {row.kind for row in rows} >= {"matmul", "attention", "copy"}
    assert all(one.holds for one in check_tables(rows, true)[0])
    missed = {one.table: one.holds for one in check_tables(rows, kernel_profile_for("h200"))[0]}
    assert missed == {"matmul.bf16": False, "attention.bf16": False, "stream": False}


def test_formats_without_a_rate_are_left_out_of_a_check() -> None:
    """An H200 multiplies fp32 only after rounding it to TF32, or outside its Tensor Cores: no profile has a rate for
    it."""
    profile = kernel_profile_for("h200", "h200-jax")
    rows = read_measurements(Path(__file__).parent / "h200_jax.jsonl").good
    rows = [row for row in rows if row.kind in TABLES]
    single = [msgspec.structs.replace(row, dtype="fp32") for row in rows if row.kind == "matmul"]
    assert single
    assert check_tables([*rows, *single], profile) == check_tables(rows, profile)
    assert {case.dtype for case in few_cases(all_cases(("bf16", "fp8", "fp16", "fp32")), profile.chip)} == {
        "bf16",
        "fp8",
        "fp16",
    }
    own = kernel_profile_for("mi300x")  # whose matrix cores have fp32
    assert "fp32" in {case.dtype for case in few_cases(all_cases(("bf16", "fp32")), own.chip)}
