"""The limits of training as the book writes them are those that its shardings derive."""

import math

import pytest

from dragonscale.course.closed_forms import training_limits as limits
from dragonscale.course.closed_forms.crossovers import best_split, find_rules, least_tokens
from dragonscale.course.closed_forms.rooflines import layer_times, letters, ring_mesh
from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.errors import Infeasible, InputError
from dragonscale.physics.hardware import load_chip
from tests.book.formulas import numbers_of

CHIPS = ("v4p", "v5e", "v5p", "v6e")
MIXED = read_scheme("fsdp+tp")


def derived(scheme: str, chip: str, spans: dict[str, int], **sizes: float) -> float:
    found = read_scheme(scheme)
    (rule,) = find_rules(found, *letters(found))
    return float(rule.value.subs(numbers_of(load_chip(chip), sizes, spans=spans)))


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("axes", [1, 2])
def test_one_parallelism(name: str, axes: int) -> None:
    chip = load_chip(name)
    for scheme in ("dp", "fsdp"):
        assert math.isclose(limits.fsdp_tokens(chip, axes), derived(scheme, name, {"X": axes}))
    assert math.isclose(limits.tp_degree(chip, 28672, axes), derived("tp", name, {"Y": axes}, F=28672))
    assert math.isclose(limits.tp_degree(chip, limits.tp_width(chip, 8, axes), axes), 8)


@pytest.mark.parametrize("overlap", ["max", "sum"])
@pytest.mark.parametrize("spans", [(2, 1), (1, 1), (1, 2)])
def test_mixture(overlap: str, spans: tuple[int, int]) -> None:
    chip = load_chip("v5p")
    split = best_split(MIXED, *letters(MIXED), "X", "Y", overlap)
    sizes = {"B": 2**21, "F": 28672, "N": 4096}
    values = numbers_of(chip, sizes, spans={"X": spans[0], "Y": spans[1]})
    assert math.isclose(limits.mixed_tokens(chip, 28672, *spans, overlap), float(split.tokens_per_chip.subs(values)))
    assert math.isclose(limits.mixed_degree(chip, 2**21, 28672, 4096, *spans), float(split.degrees.subs(values)))
    if overlap == "max":
        assert math.isclose(limits.mixed_ratio(chip, 2**21, 28672, 4096, *spans), float(split.ratio.subs(values)))


@pytest.mark.parametrize("ways", [(1024, 8), (512, 16), (4096, 1), (1, 8), (16, 4)])
def test_splits_in_whole_numbers(ways: tuple[int, int]) -> None:
    chip, sizes = load_chip("v5p"), {"B": 2**20, "D": 8192, "F": 28672}
    mesh = ring_mesh(dict(zip("XY", ways, strict=True)), chip, {"X": 2})
    times = layer_times(MIXED, sizes, mesh)
    sent = [
        seconds
        for axis, seconds in zip("XY", (times.comms["X",], times.comms["Y",]), strict=True)
        if mesh.axes[axis] > 1
    ]
    assert math.isclose(limits.split_ratio(chip, 2**20, 28672, *ways), times.math / max(sent))
    if min(ways) > 1:
        least = least_tokens(MIXED, {"D": 8192, "F": 28672}, mesh, phases=("forward",))
        if least is None:
            with pytest.raises(Infeasible, match="at any batch"):
                limits.split_tokens(chip, 28672, *ways)
        else:
            assert math.isclose(limits.split_tokens(chip, 28672, *ways), least)
    assert math.isclose(limits.layer_seconds(chip, 2**20, 8192, 28672, math.prod(ways)), times.math)
    if ways[0] > 1:
        assert math.isclose(limits.weight_seconds(chip, 8192, 28672, ways[1], axes=2), times.comms["X",])
    if ways[1] > 1:
        assert math.isclose(limits.activation_seconds(chip, 2**20, 8192, ways[0]), times.comms["Y",])


def test_fsdp_has_the_axes_that_are_left() -> None:
    for name, axes in (("v5p", 2), ("v5e", 1), ("h100", 1)):
        chip = load_chip(name)
        assert limits.mixed_tokens(chip, 28672) == limits.mixed_tokens(chip, 28672, axes)
        assert limits.split_ratio(chip, 2**20, 28672, 64, 4) == limits.split_ratio(chip, 2**20, 28672, 64, 4, axes)


def test_refused() -> None:
    with pytest.raises(InputError, match="data-centre network"):
        limits.pod_tokens(load_chip("h100"))
    with pytest.raises(InputError, match="sends nothing"):
        limits.split_ratio(load_chip("v5p"), 1, 1, 1)
    with pytest.raises(InputError, match="overlap"):
        limits.mixed_tokens(load_chip("v5p"), 28672, overlap="mean")


def test_the_ratio_is_that_of_the_degree() -> None:
    """Both take the axes that the chip leaves to FSDP, so the ratio at the best degree is that of a split there."""
    for name, axes in (("v5p", 2), ("v5e", 1)):
        chip, sizes = load_chip(name), (2**20, 28672, 256)
        degree = limits.mixed_degree(chip, *sizes)
        assert degree == limits.mixed_degree(chip, *sizes, fsdp_axes=axes)
        at_best = limits.split_ratio(chip, *sizes[:2], degree, sizes[2] / degree)
        assert math.isclose(limits.mixed_ratio(chip, *sizes), at_best)
