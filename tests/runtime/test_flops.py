"""The FLOPs that the JAX program does are those the planner counts: read off its traced form, nothing compiled or
computed."""

import math
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.extend.core import jaxprs_in_params  # noqa: E402

from dragonscale.models import load_model  # noqa: E402
from dragonscale.models.catalogue import model_names  # noqa: E402
from dragonscale.models.flops import Workload, forward_flops  # noqa: E402
from dragonscale.runtime.forward import forward  # noqa: E402
from dragonscale.runtime.lines import COMPUTED, PassSetting  # noqa: E402
from dragonscale.runtime.numerics import numerics_of  # noqa: E402
from dragonscale.runtime.parameters import abstract  # noqa: E402

TOKENS = 64


def traced_flops(jaxpr: Any) -> float:
    """Multiply-adds of every product, twice; a scan's body as often as it runs."""
    total = 0.0
    for equation in jaxpr.eqns:
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        if equation.primitive.name == "dot_general":
            (left, right), _ = equation.params["dimension_numbers"]
            first = equation.invars[0].aval
            summed = math.prod(first.shape[axis] for axis in left)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
            del right
        elif equation.primitive.name.startswith("ragged_dot"):
            rows, weight = (value.aval.shape for value in equation.invars[:2])
            total += 2 * rows[0] * weight[-2] * weight[-1]
        for inner in jaxprs_in_params(equation.params):
            total += traced_flops(inner) * times
    return total


def computable(name: str) -> bool:
    """Whether every line of a model has a JAX form; recurrences and indexers have none yet."""
    return all(op.function in COMPUTED for section in load_model(name).program().sections for op in section.ops)


NAMES = [name for name in model_names() if computable(name)]


def test_most_presets_can_be_computed() -> None:
    assert len(NAMES) > 0.8 * len(model_names())


@pytest.mark.parametrize("name", NAMES)
def test_traced_flops_are_the_planners(name: str) -> None:
    model = load_model(name)
    program, numerics = model.program(), numerics_of(name)
    tokens = jax.ShapeDtypeStruct((1, TOKENS), jnp.int32)
    traced = jax.make_jaxpr(lambda p, t: forward(p, program, t, PassSetting(numerics)))(
        abstract(program, jnp.bfloat16), tokens
    )
    full = Workload(1, TOKENS, TOKENS, causal=False)  # scores are computed as a square and masked
    wanted = sum(forward_flops(program.sections, full).values())
    assert traced_flops(traced.jaxpr) == pytest.approx(wanted, rel=0.005)
