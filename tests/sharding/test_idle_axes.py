"""Mesh axes that split nothing: `dscale shard` says what all chips do, and what a gather over their
links would take."""

import pytest

import dragonscale as ds

SIZES = "B=1024,D=4096,F=4096"


def test_chips_that_repeat_the_work_of_others() -> None:
    report = ds.shard("X[B,D] @ W[D,F_X] -> O[B,F_X]", on="v5e:4x8", sizes=SIZES)
    assert report.best[0].flops_all_chips == 8 * 2 * 1024 * 4096 * 4096
    assert "Y splits nothing" in report.repeats
    assert "8x what the einsum takes" in report.repeats
    assert not ds.shard("X[B_Y,D] @ W[D,F_X] -> O[B_Y,F_X]", on="v5e:4x8", sizes=SIZES).repeats


def test_a_gather_is_told_with_the_links_of_idle_axes() -> None:
    (row,) = ds.shard("A[I_X, J] -> A[I, J]", on="v5p:4x4x4", sizes="I=4096,J=4096").forward_collectives
    assert row.spread_over == ["Y", "Z"]
    together = ds.collective("all_gather", "bf16[4096, 4096]", on="v5p:4x4x4", axis="XYZ")
    assert row.spread_s == pytest.approx(together.lower_s, rel=1e-6)
    (odd,) = ds.shard("A[I_X, J] -> A[I, J]", on="v5p:4x4x4", sizes="I=4100,J=4096").forward_collectives
    assert odd.spread_s is None  # 4100 does not divide into 64 parts


def test_groups_and_exact_bytes_of_an_instruction() -> None:
    told = ds.hlo("bf16[100,300]{1,0:T(8,128)(2,1)}").__str__()
    assert "79,872 B (79.9kB)" in told
    line = (
        "%ar = f32[1024]{0} all-reduce(f32[1024]{0} %x), replica_groups={{0,4,8,12},{1,5,9,13},{2,6,10,14},{3,7,11,15}}"
    )
    assert "4 groups of 4, 4 apart" in str(ds.hlo(line))
