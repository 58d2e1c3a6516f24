"""Strategies do what they say: run step by step on virtual devices, they give the unsharded einsum's numbers.

The einsums are random, and so are the strategies: the first that the algebra lists, others, gather-only ones, and ones
with another legal walk to the output; forward, and for the gradients of both operands.
"""

import json

import pytest

from dragonscale.physics.notation import Einsum, parse_einsum
from dragonscale.physics.sharding import backward
from tests.own_process import run_worker, virtual_devices
from tests.sharding.random_cases import draw_cases
from tests.sharding.xla.einsum_worker import Case

pytest.importorskip("jax")


def run(cases: list[Case]) -> list[dict]:
    given = "\n".join(case.to_json() for case in cases)
    ended = run_worker(["-m", "tests.sharding.run_strategies"], given, virtual_devices(8))
    assert ended.code == 0, ended.notes[-2000:]
    return [json.loads(line) for line in ended.output.splitlines()]


def test_random_strategies_give_the_unsharded_result() -> None:
    answers = run(draw_cases(6, seed=5, most_chips=8, multiples=(1,)))
    assert [answer for answer in answers if answer["wrong"]] == []
    assert sum(answer["ran"] for answer in answers) >= 60
    kinds = {kind for answer in answers for kind in answer["kinds"]}
    assert kinds == {"slice", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"}


@pytest.mark.slow
def test_a_thousand_strategies() -> None:
    answers = run(draw_cases(80, seed=6, most_chips=8, multiples=(1,)))
    assert [answer for answer in answers if answer["wrong"]] == []
    assert sum(answer["ran"] for answer in answers) >= 1000


def test_backward_einsums_are_the_gradients() -> None:
    """The two einsums of the backward pass are what JAX's own differentiation gives."""
    import jax
    import numpy as np

    from tests.sharding.xla.einsum_worker import formula_of, shape_of

    for case in draw_cases(20, seed=7, most_chips=8, multiples=(1,)):
        numbers = np.random.default_rng(0)
        arrays = {
            array.name: numbers.integers(-4, 5, shape_of(array, case.sizes)).astype(np.float32)
            for array in (*case.line.operands, case.line.output)
        }
        formula = formula_of(case.line)
        arrays["dC"] = arrays["C"]
        pullback = jax.jit(lambda a, b, slope, f=formula: jax.vjp(lambda *ab: jax.numpy.einsum(f, *ab), a, b)[1](slope))
        expectations = pullback(arrays["A"], arrays["B"], arrays["dC"])
        for gradient, expected in zip(backward(case.line), expectations, strict=True):
            operands = [arrays[array.name] for array in gradient.operands]
            np.testing.assert_array_equal(np.einsum(formula_of(gradient), *operands), expected)


def test_backward_of_a_backward_is_the_forward_layout() -> None:
    line = parse_einsum("A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]")
    left, right = backward(line)
    assert isinstance(left, Einsum)
    assert (str(left.output), str(right.output)) == ("dA[I_X, J]", "dB[J, K_Y]")
