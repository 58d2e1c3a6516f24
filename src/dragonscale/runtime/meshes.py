"""A plan on devices: its mesh, and how weights, their optimizer state and tokens lie on it.

Layouts are the planner's own (`dragonscale.plan.rules`), written as JAX shardings. An axis of one device and a dim that
does not divide split nothing.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.plan.rules import SERVING, Rules, serving_rules, training_rules
from dragonscale.runtime.parameters import shardings
from dragonscale.runtime.place import Place
from dragonscale.serving.plan import ServingPlan, mesh_axes
from dragonscale.training.plan import AXES, Plan


def rules_of(plan: Plan, program: Program) -> Rules:
    """The plan's layouts. Experts are dealt over `expert` and `tensor`, or sliced over `tensor` where they are too few
    or the plan asks for it, as the planner does it."""
    experts = max((section.dims.get("e", 0) for section in program.sections), default=0)
    folded = plan.expert * plan.tensor <= experts and not plan.etp
    return training_rules(plan.sequence, plan.zero, folded, plan.context_by)


def place_of(plan: Plan, program: Program) -> Place:
    """Where a plan's tensors lie while it runs."""
    sizes = {axis: getattr(plan, axis) for axis in AXES if getattr(plan, axis) > 1}
    return Place(sizes, rules_of(plan, program))


def mesh_of(plan: Plan, devices: Sequence[Any] | None = None) -> Mesh:
    """The plan's mesh over the devices there are, slowest axis first."""
    found = list(jax.devices() if devices is None else devices)
    if plan.chips > len(found):
        raise InputError(
            f"The plan {plan} needs {plan.chips} devices and there are {len(found)}; make its axes smaller, or on "
            "a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={plan.chips}."
        )
    sizes = [getattr(plan, axis) for axis in AXES]
    return Mesh(numpy.array(found[: plan.chips]).reshape(sizes), AXES)


def state_shardings(program: Program, mesh: Mesh, rules: Rules) -> dict[str, dict[str, NamedSharding]]:
    """Each weight's share of the optimizer's state, and its master copy."""
    return shardings(program, mesh, rules.optimizer_state)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Tokens [b, t]: sequences over everything that splits the batch, tokens over `context`."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp", "expert"), "context"))


def serving_sizes(plan: ServingPlan, program: Program) -> dict[str, int]:
    """The mesh axes of a serving plan, all of them, slowest first."""
    heads = min((section.dims["k"] for section in program.sections if "k" in section.dims), default=1)
    found: dict[str, Any] = mesh_axes(plan, heads)
    return {axis: int(found[axis]) for axis in SERVING}


def serving_place(plan: ServingPlan, program: Program, prompt: bool, exchange: bool) -> Place:
    """Where a serving plan's tensors lie while it computes prompts or single tokens."""
    sizes = {axis: size for axis, size in serving_sizes(plan, program).items() if size > 1}
    return Place(sizes, serving_rules(plan.spread, prompt, exchange))


def exchanges(plan: ServingPlan, program: Program) -> bool:
    """Whether tokens travel to experts by AllToAll: where experts are dealt over `data` places, as the
    planner has it."""
    experts = any("e" in section.dims for section in program.sections)
    return experts and plan.data > 1 and plan.expert >= plan.data
