"""A training plan on devices: its mesh, and how weights, their optimizer state and activations lie on it.

Layouts are the planner's own (`dragonscale.training.rules`), written as JAX shardings. An axis of one device and a dim that
does not divide split nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.notation import Array
from dragonscale.runtime.parameters import fitted, shardings
from dragonscale.sharding.partition_spec import to_partition_spec
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.rules import Rules


def rules_of(plan: Plan) -> Rules:
    """The plan's layouts. Experts are dealt over their own axis and sliced over `tensor`."""
    return Rules(sequence=plan.sequence, zero=plan.zero, folded=False, ring=plan.ring)


def mesh_of(plan: Plan, devices: Sequence[Any] | None = None) -> Mesh:
    """The plan's mesh over the devices there are, slowest axis first."""
    found = list(jax.devices() if devices is None else devices)
    if plan.chips > len(found):
        raise InputError(
            f"The plan {plan} needs {plan.chips} devices and there are {len(found)}; make its axes smaller, or on a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={plan.chips}."
        )
    sizes = [getattr(plan, axis) for axis in AXES]
    return Mesh(numpy.array(found[: plan.chips]).reshape(sizes), AXES)


def pinned(mesh: Mesh, rules: Rules) -> Callable[[jax.Array, Array], jax.Array]:
    """A function that holds each tensor of a program where the rules want it."""

    def pin(value: jax.Array, array: Array) -> jax.Array:
        if "b" not in array.names or value.ndim != len(array.dims):
            return value
        spec = fitted(to_partition_spec(rules.activation(array)), mesh, value.shape)
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, spec))

    return pin


def weight_shardings(program: Program, mesh: Mesh, rules: Rules) -> dict[str, dict[str, NamedSharding]]:
    """Weights between their uses."""
    return shardings(program, mesh, rules.weight)


def state_shardings(program: Program, mesh: Mesh, rules: Rules) -> dict[str, dict[str, NamedSharding]]:
    """Each weight's share of the optimizer's state."""
    return shardings(program, mesh, rules.state)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Tokens [b, t]: sequences over everything that splits the batch, tokens over `context`."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp", "expert"), "context"))
