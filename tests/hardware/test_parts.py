"""Peak rates from the parts of a core, against the datasheets."""

import pytest

from dragonscale.course.closed_forms.chip_parts import abstract_chip, reduction_shifts
from dragonscale.errors import InputError
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.parts import alus, matrix_tile, structural_peak


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p"])
def test_the_parts_give_the_published_peak(name: str) -> None:
    assert structural_peak(load_chip(name)) == pytest.approx(load_chip(name).peak("bf16"), rel=0.005)


def test_the_v3_agrees_with_google_rather_than_the_book() -> None:
    chip = load_chip("v3")
    assert structural_peak(chip) == pytest.approx(chip.reading("google").peak("bf16"), rel=0.005)
    assert structural_peak(chip) < 0.9 * chip.reading("book").peak("bf16")


@pytest.mark.parametrize("name", ["v6e", "tpu7x"])
def test_newer_matrix_units_do_the_work_of_two(name: str) -> None:
    assert 2 * structural_peak(load_chip(name)) == pytest.approx(load_chip(name).peak("bf16"), rel=0.01)


@pytest.mark.parametrize("name", ["v3", "v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_the_vector_unit_too(name: str) -> None:
    assert structural_peak(load_chip(name), "vector") == pytest.approx(load_chip(name).peak("fp32", "vector"), rel=0.01)


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "gb200"])
def test_gpus_too(name: str) -> None:
    chip = load_chip(name)
    assert structural_peak(chip) == pytest.approx(chip.peak("bf16"), rel=0.02)
    assert structural_peak(chip, "vector") == pytest.approx(chip.peak("fp32", "vector"), rel=0.02)


def test_only_tpus_have_systolic_arrays() -> None:
    with pytest.raises(InputError, match="systolic"):
        matrix_tile(load_chip("h100"))


def test_what_a_chip_does_not_say() -> None:
    with pytest.raises(InputError, match=r"structure\.sms"):
        alus(abstract_chip(1e15, 1e11))


@pytest.mark.parametrize("width", [0, 3, 12])
def test_rotations_need_a_power_of_two(width: int) -> None:
    with pytest.raises(InputError, match="power of two"):
        reduction_shifts(width)
