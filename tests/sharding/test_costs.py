"""A strategy's cost as a number, as an array of numbers and as a formula: one and the same."""

import itertools

import numpy as np
import pytest
import sympy

from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, Strategy, derive, make_mesh, strategies
from dragonscale.physics.sharding.algebra import rank
from tests.sharding.readings import executed_flops

LINES = [
    "A[I_X, J] @ B[J, K] -> C[I_X, K]",
    "A[I, J_X] @ B[J, K] -> C[I, K]",
    "A[I, J_X] @ B[J_X, K] -> C[I, K]",
    "A[I_X, J] @ B[J, K_X] -> C[I_X, K]",
    "A[I_X, J_Y] @ B[J_X, K_Y] -> C[I_X, K_Y]",
    "A[I_X, J] @ B[J, K] -> C[I, K_X]",
    "A[I_XY, J] @ B[J_XY, K] -> C[I_XY, K]",
]
POINTS = [
    {"I": 64, "J": 128, "K": 256, "X": 4, "Y": 8},
    {"I": 1024, "J": 128, "K": 64, "X": 8, "Y": 2},
    {"I": 8, "J": 8192, "K": 1024, "X": 2, "Y": 4},
]


def costs(strategy: Strategy, sizes: dict, mesh: Mesh) -> list:
    return [
        strategy.wire_bytes(sizes, mesh),
        strategy.flops(sizes, mesh),
        strategy.comms_seconds(sizes, mesh),
        strategy.math_seconds(sizes, mesh),
        strategy.lower_seconds(sizes, mesh),
        strategy.hbm_bytes(sizes, mesh),
    ]


def split(point: dict, line: str) -> tuple[dict, dict]:
    return {name: point[name] for name in "IJK"}, {axis: point[axis] for axis in "XY" if axis in line}


@pytest.mark.parametrize("line", [*LINES[:4], *(pytest.param(line, marks=pytest.mark.slow) for line in LINES[4:])])
def test_symbols_arrays_and_floats_agree(line: str) -> None:
    symbols = {name: sympy.Symbol(name, positive=True) for name in "IJKXY"}
    sizes, axes = split(symbols, line)
    einsum, on = parse_einsum(line), load_chip("v5p")
    symbolic = make_mesh(axes, on)
    arrays = {name: np.array([point[name] for point in POINTS], dtype=float) for name in symbols}
    array_sizes, array_axes = split(arrays, line)
    for strategy in derive(einsum, symbolic)[:6]:
        formulas = costs(strategy, sizes, symbolic)
        columns = costs(strategy, array_sizes, make_mesh(array_axes, on))
        for place, point in enumerate(POINTS):
            plain_sizes, plain_axes = split(point, line)
            numbers = costs(strategy, plain_sizes, make_mesh(plain_axes, on))
            values = {symbols[name]: value for name, value in point.items()}
            for number, formula, column in zip(numbers, formulas, columns, strict=True):
                assert float(sympy.sympify(formula).subs(values)) == pytest.approx(number, rel=1e-9)
                assert float(np.broadcast_to(column, (len(POINTS),))[place]) == pytest.approx(number, rel=1e-9)


@pytest.mark.parametrize("line", LINES)
def test_what_sizes_allow_is_listed_for_symbols_too(line: str) -> None:
    """With symbols for axis sizes the same strategies are derived, but for sends between axes of equal size."""
    einsum = parse_einsum(line)
    plain = derive(einsum, Mesh({axis: size for axis, size in (("X", 4), ("Y", 8)) if axis in line}))
    symbolic = derive(einsum, Mesh({axis: sympy.Symbol(axis, positive=True) for axis in "XY" if axis in line}))
    assert {str(strategy.local) for strategy in plain} == {str(strategy.local) for strategy in symbolic}


@pytest.mark.parametrize("line", LINES)
def test_the_cheapest_comes_first(line: str) -> None:
    for point, chip in itertools.product(POINTS, (None, "v5e")):
        sizes, axes = split(point, line)
        mesh = make_mesh(axes, load_chip(chip) if chip else None)
        found = strategies(parse_einsum(line), sizes, mesh)
        ranked = [rank(strategy, sizes, mesh) for strategy in found]
        assert ranked == sorted(ranked)
        if chip:
            assert ranked[0][0] == min(each.lower_seconds(sizes, mesh) for each in derive(parse_einsum(line), mesh))


def test_repeated_work_is_counted() -> None:
    line = parse_einsum("A[I, J_X] @ B[J, K] -> C[I, K]")
    sizes, mesh = {"I": 8, "J": 8, "K": 8}, Mesh({"X": 4})
    gathering = next(each for each in derive(line, mesh) if each.replicated == ("X",))
    assert executed_flops(line, gathering, sizes, mesh) == (2 * 8**3, 4 * 2 * 8**3)
    summing = next(each for each in derive(line, mesh) if not each.replicated)
    assert executed_flops(line, summing, sizes, mesh) == (2 * 8**3, 2 * 8**3)
