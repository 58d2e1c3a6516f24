"""JAX's explicit sharding types, asked on an abstract mesh: no devices, no compiler, only the typing rules.

The correspondence, for an einsum of two operands:

- `natural_output` without partial sums: JAX gives exactly that spec;
- with partial sums: JAX calls the output ambiguous, and given the spec with `unreduced` axes as the wanted output it
  agrees to it;
- None because an axis or a shared index is laid out in two contradicting ways: JAX raises.

One exception, by name:

- *one-sided*: a shared index is split in one operand and whole in the other. The algebra says that this needs a choice
  (gather the one, slice the other, or leave partial sums). JAX chooses: a summed index is gathered, a kept one follows
  the left operand of its `dot_general` (which may be the einsum's right one). So its answer must be the natural output
  once the one-sided indices are resolved in one of these ways.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.sharding.partition_spec import from_partition_spec, to_partition_spec
from dragonscale.physics.sharding.reshard_step import layout_of
from tests.sharding.random_cases import draw_cases
from tests.sharding.readings import natural_output
from tests.sharding.xla.einsum_worker import Case, formula_of, shape_of

jax = pytest.importorskip("jax")
CASES = draw_cases(400, seed=3)


def typed(case: Case, wanted: Array | None = None) -> Array | str:
    """The output's layout as JAX types it, or the class of its error."""
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, AxisType, NamedSharding

    kinds = (AxisType.Explicit,) * len(case.mesh)
    mesh = AbstractMesh(tuple(case.mesh.values()), tuple(case.mesh), axis_types=kinds)
    formula = formula_of(case.line)
    out = None if wanted is None else to_partition_spec(wanted)
    with jax.sharding.use_abstract_mesh(mesh):
        shapes = [
            jax.ShapeDtypeStruct(
                shape_of(array, case.sizes), jnp.bfloat16, sharding=NamedSharding(mesh, to_partition_spec(array))
            )
            for array in case.line.operands
        ]
        try:
            result = jax.eval_shape(lambda left, right: jnp.einsum(formula, left, right, out_sharding=out), *shapes)
        except Exception as error:
            return type(error).__name__
    return from_partition_spec(result.sharding.spec, case.line.output.names, "bf16", "C")


def one_sided(line: Einsum) -> list[str]:
    left, right = (layout_of(array) for array in line.operands)
    return [index for index in left if index in right and bool(left[index]) != bool(right[index])]


def resolved(line: Einsum) -> Iterator[Einsum]:
    """The line with its one-sided indices whole (if summed), or whole or split in both operands (if kept)."""
    indices = one_sided(line)
    left, right = (layout_of(array) for array in line.operands)
    ways = [[()] if index in line.contracted else [(), left[index] or right[index]] for index in indices]
    for chosen in itertools.product(*ways):
        split = dict(zip(indices, chosen, strict=True))
        operands = [
            array.with_layout(layout_of(array) | {i: axes for i, axes in split.items() if i in array.names})
            for array in line.operands
        ]
        yield replace(line, operands=tuple(operands))


def test_whole_outputs_agree() -> None:
    plain = [case for case in CASES if (found := natural_output(case.line)) is not None and not found.partial]
    assert len(plain) > 80
    for case in plain:
        assert typed(case) == natural_output(case.line), case


def test_partial_sums_are_ambiguous_until_asked_for() -> None:
    partial = [case for case in CASES if (found := natural_output(case.line)) is not None and found.partial]
    assert len(partial) > 40
    for case in partial:
        natural = natural_output(case.line)
        assert natural is not None
        assert typed(case) == "ShardingTypeError", case
        wanted = replace(natural, partial=tuple(sorted(natural.partial)))
        assert typed(case, wanted) == wanted, case


def test_contradictions_raise() -> None:
    contradicting = [case for case in CASES if natural_output(case.line) is None and not one_sided(case.line)]
    assert len(contradicting) > 40
    for case in contradicting:
        assert typed(case) == "ShardingTypeError", case


def test_one_sided_indices_are_resolved_as_the_algebra_allows() -> None:
    cases = [case for case in CASES if one_sided(case.line)]
    assert len(cases) > 80
    for case in cases:
        allowed = [natural_output(line) for line in resolved(case.line)]
        found = typed(case)
        if isinstance(found, Array):
            assert found in allowed, case
        else:
            assert any(output is None or output.partial for output in allowed), case
