"""`jax.experimental.roofline` as a witness: FLOPs and link bytes of matmuls with explicit collectives.

It walks a traced program and counts; nothing is compiled. Its conventions, beside ours (`Strategy.wire_bytes`, the
bytes that each chip sends):

- FLOPs of a local matmul: the same, 2·I·J·K per chip.
- AllGather, ReduceScatter, AllReduce over one axis: the same bytes.
- Over k axes: it deals the array out to k rings of different colours, so the bytes of *each* axis are 1/k of ours;
  their
  sum is ours.
- AllToAll: not bytes sent but the load of the worst link: V/4 on a ring (V/2 on an axis of two, which it takes for a
  line).
  It equals our bisection formula for a torus, and differs from wire bytes.
- permute: the load of the worst link again; with one hop between neighbours it is what a chip sends.
"""

import functools
import importlib
import logging
import sys
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from dragonscale.physics.collectives import Ring, Rings, collective_time
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, Strategy, strategies
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from tests.sharding.readings import wire_by_axis

jax = pytest.importorskip("jax")
SIZES = {"I": 64, "J": 128, "K": 256}
LINES = [
    "A[I_X, J] @ B[J, K] -> C[I_X, K]",
    "A[I, J_X] @ B[J_X, K] -> C[I, K]",
    "A[I, J_X] @ B[J_X, K] -> C[I, K_X]",
    "A[I, J_X] @ B[J_X, K] -> C[I_X, K]",
    "A[I, J_X] @ B[J, K] -> C[I, K]",
    "A[I_X, J] @ B[J, K_X] -> C[I_X, K]",
    "A[I_X, J] @ B[J, K_X] -> C[I, K_X]",
    "A[I_X, J_Y] @ B[J, K_Y] -> C[I_X, K_Y]",
    "A[I_X, J_Y] @ B[J_Y, K_X] -> C[I_X, K]",
    "A[I_X, J_Y] @ B[J_Y, K] -> C[I_X, K_Y]",
    "A[I_XY, J] @ B[J_XY, K] -> C[I_XY, K]",
    "A[I, J_XY] @ B[J_XY, K] -> C[I, K]",
    "A[I, J_XY] @ B[J_XY, K] -> C[I, K_XY]",
    "A[I_Y, J_X] @ B[J_X, K_Y] -> C[I_Y, K_X]",
]


def counted(line: str, strategy: Strategy, mesh: Mesh, vma: bool) -> Any:
    """JAX's roofline of a strategy, run step by step inside `shard_map`."""
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh

    from tests.sharding.run_strategies import run_strategy

    einsum = parse_einsum(line)
    over = AbstractMesh(tuple(mesh.axes.values()), tuple(mesh.axes))
    specs = tuple(to_partition_spec(array) for array in einsum.operands)

    def function(left: Any, right: Any) -> Any:
        return run_strategy(strategy, [left, right], einsum.operands, mesh)

    out = to_partition_spec(einsum.output)
    mapped: Callable[..., Any] = jax.shard_map(function, mesh=over, in_specs=specs, out_specs=out, check_vma=vma)
    shapes = [
        jax.ShapeDtypeStruct(tuple(SIZES[name] for name in array.names), jnp.bfloat16) for array in einsum.operands
    ]
    _, result = roofline().roofline(mapped, over)(*shapes)
    return result


@functools.cache
def roofline() -> Any:
    """The module. It imports absl only to log which primitives it has no rule for; Python's own
    logging does as well."""
    stand_in = types.ModuleType("absl")
    stand_in.logging = logging.getLogger("jax.roofline")  # pyright: ignore[reportAttributeAccessIssue]
    with mock.patch.dict(sys.modules, {"absl": sys.modules.get("absl", stand_in)}):
        return importlib.import_module("jax.experimental.roofline")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("axes", [{"X": 4, "Y": 8}, {"X": 8, "Y": 2}])
def test_matmuls(line: str, axes: dict[str, int]) -> None:
    mesh = Mesh({axis: size for axis, size in axes.items() if axis in line})
    tried = 0
    for strategy in strategies(parse_einsum(line), SIZES, mesh):
        kinds = {step.kind for step in strategy.collectives}
        if kinds & {"all_to_all", "permute"}:
            continue
        # JAX has a rule for sums that are tracked as varying only, and refuses to track gathers: not both at once.
        if {"all_gather", "all_reduce"} <= kinds:
            continue
        tried += 1
        found = counted(line, strategy, mesh, vma="all_reduce" in kinds)
        assert found.flops == strategy.flops(SIZES, mesh)
        expected = dict.fromkeys(mesh.axes, 0.0)
        for over, sent in wire_by_axis(strategy, SIZES, mesh).items():
            for axis in over:
                expected[axis] += sent / len(over)
        assert {axis: found.ici_bytes.get(axis, 0) for axis in mesh.axes} == expected
    assert tried


@pytest.mark.parametrize(("size", "part"), [(4, 1 / 4), (8, 1 / 4), (2, 1 / 2)])
def test_all_to_all_is_the_load_of_a_link(size: int, part: float) -> None:
    line = "A[I_X, J] @ B[J, K] -> C[I, K_X]"
    mesh = Mesh({"X": size})
    wanted = next(
        each
        for each in strategies(parse_einsum(line), SIZES, mesh)
        if [step.kind for step in each.collectives] == ["all_to_all"]
    )
    found = counted(line, wanted, mesh, vma=False)
    volume = wanted.collectives[0].volume(SIZES, mesh)
    assert found.ici_bytes["X"] == volume * part
    ring = Rings((Ring(size, wrap=size > 2),), link=1.0)
    both_ways = 2 if size > 2 else 1
    assert collective_time("all_to_all", volume, ring).bandwidth * both_ways == pytest.approx(volume / 4)


def test_permute_is_the_load_of_a_link() -> None:
    line = "A[I_X, J] @ B[J, K_Y] -> C[I_Y, K_X]"
    mesh = Mesh({"X": 2, "Y": 2})
    wanted = next(
        each
        for each in strategies(parse_einsum(line), SIZES, mesh)
        if [step.kind for step in each.collectives] == ["permute"]
    )
    found = counted(line, wanted, mesh, vma=False)
    assert found.ici_bytes["X"] >= wanted.collectives[0].volume(SIZES, mesh)
