"""The parts of a chip and the rates that follow from them."""

import math

import pytest

from dragonscale.errors import InputError
from dragonscale.hardware.anatomy import (
    PARTS,
    abstract_chip,
    alus,
    counterpart,
    flops_per_usd,
    matrix_flops_per_cycle,
    vector_flops,
)
from dragonscale.hardware.catalogue import load_chip


@pytest.mark.parametrize("name", ["v100", "a100", "h100", "h200", "b200", "gb200"])
def test_vector_rate_follows_from_the_parts(name: str) -> None:
    chip = load_chip(name)
    assert math.isclose(vector_flops(chip, fused=True), chip.peak("fp32", "vector"), rel_tol=0.02)


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "gb200"])
def test_matrix_rate_follows_from_the_parts(name: str) -> None:
    chip = load_chip(name)
    assert math.isclose(matrix_flops_per_cycle(chip), chip.structure["flops_per_cycle_per_tensor_core"], rel_tol=0.02)


def test_counterparts_go_both_ways() -> None:
    for part in PARTS["gpu"].values():
        assert counterpart(counterpart(part), "tpu", "gpu") == part
    with pytest.raises(InputError, match="There is no part of a GPU called 'SMs'"):
        counterpart("SMs")


def test_what_a_chip_does_not_say() -> None:
    bare = abstract_chip(1e15, 1e11)
    with pytest.raises(InputError, match=r"structure\.sms"):
        alus(bare)
    with pytest.raises(InputError, match="gives no price"):
        flops_per_usd(bare)
