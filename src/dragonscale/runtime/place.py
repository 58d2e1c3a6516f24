"""Where tensors lie while a program runs on many chips, and how they get from one layout to another.

Inside `jax.shard_map` every chip runs the same program on its own blocks. A `Place` knows the mesh and the layouts that
a plan asks for; it brings a block from one layout to another with the very steps that the planner derives and charges
(`sharding.reshard`), so that what is compiled is what was planned. Gradients need nothing of their own: JAX turns each
gather into a scatter and back.

The convention for losses and gradients: what is minimised is the *sum over all chips* of what each computes. A loss
that several chips compute alike is divided by their number, and the gradient of a weight of which several chips hold
the same block is the sum over them.

Layouts are the planner's own (`dragonscale.plan.rules`). An axis of one device and a dim that does not divide split
nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.program import Op, Program, is_weight
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding import mesh as planned
from dragonscale.physics.sharding.reshard import reshard
from dragonscale.physics.sharding.reshard_step import Layout, Step, layout_of
from dragonscale.physics.sharding.torus_rows import ScatterPhase, Torus, scatter_phases, torus_rows
from dragonscale.plan.rules import SERVING, Axes, Rules, serving_rules, training_rules
from dragonscale.serving.engine.plan import ServingPlan, mesh_axes
from dragonscale.training.plan.plan import AXES, Plan

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


@lru_cache(maxsize=4096)
def steps(before: Array, after: Array, axes: Axes) -> tuple[Step, ...]:
    """The moves between two layouts over some mesh axes, whatever their sizes (an exchange that only works between axes
    of equal size is never chosen)."""
    return reshard(before, after, planned.Mesh(dict(zip(axes, _PRIMES, strict=False))))


Gather = Callable[[int, Axes, jax.Array], jax.Array]


def _gather_matrix(dim: int, axes: Axes, value: jax.Array) -> jax.Array:
    """Blocks gathered in front and put in order along a dim."""
    blocks = jax.lax.all_gather(value, axes, axis=0, tiled=False)
    return jnp.moveaxis(blocks, 0, dim).reshape(*value.shape[:dim], -1, *value.shape[dim + 1 :])


def _gather_major(dim: int, axes: Axes, value: jax.Array) -> jax.Array:
    """Blocks gathered along a dim, of a major one written over a dim of its own."""
    shape = value.shape
    if math.prod(shape[:dim]) > 1:
        return jax.lax.all_gather(value, axes, axis=dim, tiled=True)
    whole = jax.lax.all_gather(value.reshape(*shape[:dim], 1, *shape[dim:]), axes, axis=dim, tiled=True)
    return whole.reshape(*shape[:dim], -1, *shape[dim + 1 :])


def _scatter_major(dim: int, phases: tuple[ScatterPhase, ...], value: jax.Array) -> jax.Array:
    """Sums scattered along a dim, one phase after the other; along a major dim, or in several phases, written over a
    dim of its own with an entry for each chip: of a plain one XLA's TPU compiler (libtpu 0.0.42) makes an AllReduce and
    a slice, which sends twice as much."""
    for phase in phases:
        shape, axes, ways = value.shape, phase.axes, phase.ways
        settings: dict[str, Any] = {"scatter_dimension": dim, "axis_index_groups": phase.groups, "tiled": True}
        if math.prod(shape[:dim]) > 1 and len(phases) == 1:
            value = jax.lax.psum_scatter(value, axes, **settings)
        else:
            blocks = value.reshape(*shape[:dim], ways, shape[dim] // ways, *shape[dim + 1 :])
            mine = jax.lax.psum_scatter(blocks, axes, **settings)
            value = mine.reshape(*shape[:dim], shape[dim] // ways, *shape[dim + 1 :])
    return value


def _gather_scattering(
    gather: Gather, dim: int, axes: Axes, phases: tuple[ScatterPhase, ...], value: jax.Array
) -> jax.Array:
    """A gather whose gradient is scattered along that dim itself. Of what has more than two dims XLA's TPU compiler
    (libtpu 0.0.42) would add up the gradient whole if it were turned round as the gather is; of matrices it is the
    other way about."""
    gathered = jax.custom_vjp(partial(gather, dim, axes))
    gathered.defvjp(
        lambda value: (gather(dim, axes, value), None), lambda _, slope: (_scatter_major(dim, phases, slope),)
    )
    return gathered(value)


@dataclass(frozen=True)
class Place:
    """The mesh axes of more than one chip with their sizes, and the rules by which things lie on them (`plan.rules`).
    With no axes everything is whole. Where the rules are lazy (serving), a partial sum stays one until a line needs it
    whole, and an operand is used as it lies."""

    sizes: dict[str, int] = field(default_factory=dict)
    rules: Rules = field(default_factory=training_rules)
    torus: Torus = field(default_factory=dict)

    def at_rest(self, array: Array) -> Array:
        """A weight or an activation between the lines that use it."""
        return self.rules.at_rest(array)

    def for_line(self, array: Array, held: Array, op: Op, dims: dict[str, int]) -> Array:
        """How a line wants an operand that lies as `held` says."""
        if is_weight(array):
            return self.fit(self.rules.used(array), dims)
        if self.rules.lazy:
            if op.function == "attend" and "s" not in array.names:
                return self.fit(self.rules.attending(array), dims)
            return self.fit(self.rules.activation(array), dims) if held.partial else held
        if op.function == "einsum":
            return self.fit(held.with_layout(self.computing(op, dims)), dims)
        if op.function == "attend" and "s" in array.names and not self.rules.ring:
            return held.with_layout({dim.name: () if dim.name == "s" else dim.axes for dim in held.dims})
        if op.function == "join" and op.output is not None:
            return self.fit(array.with_layout(layout_of(self.rules.activation(op.output))), dims)
        return held

    def of_line(self, op: Op, operands: tuple[Array, ...], dims: dict[str, int]) -> Array:
        """How an einsum's result lies, partial sums and all, given its operands."""
        assert op.output is not None
        if self.rules.lazy:
            axes = {dim.name: dim.axes for array in operands for dim in array.dims if dim.axes}
            rest = self.rules.activation(op.output)
            split = {dim.name: dim.axes if dim.name in axes else () for dim in rest.dims}
        else:
            axes = split = self.computing(op, dims)
        kept = {name for array in operands for name in array.names}
        partial = tuple(axis for name in op.einsum.contracted if name in kept for axis in axes.get(name, ()))
        return self.fit(op.output.with_layout(split, partial), dims)

    def computing(self, op: Op, dims: dict[str, int]) -> Layout:
        """The axis given to each index. A dim that does not divide is whole, for every array of the line."""
        found = self.rules.computing(op).items()
        return {name: axes for name, axes in found if dims.get(name) is None or dims[name] % self.ways(axes) == 0}

    def after_line(self, made: Array, dims: dict[str, int]) -> Array:
        """Where a result is brought at once."""
        return made if self.rules.lazy else self.fit(self.rules.activation(made.with_layout({})), dims)

    def looked_up(self, array: Array, split: Axes) -> Array:
        """How rows of a table lie that is split along the vocabulary over `split`."""
        return self.fit(replace(self.rules.looked_up(array), partial=split), {})

    def copied(self, name: str, dims: dict[str, int]) -> Axes:
        """The axes along which chips share entries of a dim that has fewer of them than chips: each works on one."""
        axes = self._there(self.rules.heads)
        return axes if name == "k" and shared_heads(dims, self.ways(axes)) else ()

    def _there(self, axes: Axes) -> Axes:
        return tuple(axis for axis in axes if axis in self.sizes)

    @property
    def expert_axes(self) -> Axes:
        """The axes over which tokens are sent to experts."""
        return self._there(self.rules.exchange)

    @property
    def gathered_axes(self) -> Axes:
        """The axes over which all tokens are gathered for the experts there."""
        return self._there(self.rules.gathered)

    @property
    def picked_axes(self) -> Axes:
        """The axes along which chips have the same tokens at this point, and each works on those of its own experts."""
        return self._there(tuple(axis for axis in self.rules.dealt if axis not in self.rules.exchange))

    @property
    def token_axes(self) -> Axes:
        """The axes over which tokens on their way to experts are split along the sequence."""
        return self._there((*self.rules.tokens, *self.rules.routed_spread))

    def fit(self, array: Array, dims: dict[str, int]) -> Array:
        """A layout without axes of one chip, and without those by which a dim does not divide."""
        layout: Layout = {}
        for dim in array.dims:
            axes, size = self._there(dim.axes), dims.get(dim.name)
            while size is not None and size % self.ways(axes):
                axes = axes[:-1]
            layout[dim.name] = axes
        return array.with_layout(layout, self._there(array.partial))

    def vocabulary(self, program: Program) -> Axes:
        """The axes that split the vocabulary of a program's logits."""
        head = program.sections[-1]
        logits = head.ops[-1].output
        assert logits is not None
        return self.fit(self.at_rest(logits), head.dims).dim("v").axes

    def ways(self, axes: Axes) -> int:
        """Chips along some axes."""
        return math.prod(self.sizes.get(axis, 1) for axis in axes)

    def index(self, axes: Axes) -> jax.Array | int:
        """Which block of a dim split over `axes` this chip holds."""
        there = self._there(axes)
        return jax.lax.axis_index(there) if there else 0

    def bring(self, value: jax.Array, before: Array, after: Array) -> jax.Array:
        """A block in another layout."""
        if before.dims == after.dims and before.partial == after.partial:
            return value
        for step in steps(before, after, tuple(self.sizes)):
            value = self._go(value, step)
        return value

    def _go(self, value: jax.Array, step: Step) -> jax.Array:
        before, after = layout_of(step.before), layout_of(step.after)
        if step.kind == "all_reduce":
            return jax.lax.psum(value, step.axes)
        lost = {dim: axes[len(after[dim]) :] for dim, axes in before.items() if len(axes) > len(after[dim])}
        gained = {dim: axes[len(before[dim]) :] for dim, axes in after.items() if len(axes) > len(before[dim])}
        at = list(before).index
        if step.kind == "all_to_all":
            for (giver, axes), taker in zip(lost.items(), gained, strict=True):
                value = jax.lax.all_to_all(value, axes, at(taker), at(giver), tiled=True)
            return value
        gather = partial(self._gather, weight=is_weight(step.before))
        moves: dict[str, Any] = {"all_gather": gather, "reduce_scatter": self._scatter, "slice": self.part}
        if step.kind not in moves:
            raise InputError(f"There is no JAX for the move {step}.")
        for dim, axes in (lost if step.kind == "all_gather" else gained).items():
            value = moves[step.kind](value, at(dim), axes)
        return value

    def _gather(self, value: jax.Array, dim: int, axes: Axes, weight: bool) -> jax.Array:
        """An all-gather, written as the mirror image of `_scatter`: its gradient is one. A weight is gathered along a
        dim of its own in front and put in order afterwards: GPUs gather along major dims only, and of a whole stack of
        weights that is gathered along another, XLA would keep a transposed copy."""
        inner, phases = weight and math.prod(value.shape[:dim]) > 1, self._phases(axes)
        gather = _gather_matrix if inner else _gather_major
        if len(phases) > 1 or (inner and value.ndim > 2):
            return _gather_scattering(gather, dim, axes, phases, value)
        return gather(dim, axes, value)

    def _scatter(self, value: jax.Array, dim: int, axes: Axes) -> jax.Array:
        return _scatter_major(dim, self._phases(axes), value)

    def _phases(self, axes: Axes) -> tuple[ScatterPhase, ...]:
        """How sums are scattered over some axes: at once, or where they take in a whole torus one phase after the
        other."""
        whole = self.ways(axes) == math.prod(self.sizes.values())
        found = scatter_phases(self.torus, self._there(axes)) if whole else ()
        return found or (ScatterPhase(axes, self.ways(axes)),)

    def part(self, value: jax.Array, dim: int, axes: Axes) -> jax.Array:
        """This chip's block of a dim that every chip along `axes` has whole."""
        there = self._there(axes)
        if not there or value.shape[dim] == 1:
            return value
        size = value.shape[dim] // self.ways(there)
        return jax.lax.dynamic_slice_in_dim(value, self.index(there) * size, size, dim)


def shared_heads(dims: dict[str, int], ways: int) -> bool:
    """Whether so many chips, each with its own query heads, share KV heads evenly."""
    return dims["k"] < ways and ways % dims["k"] == 0 and dims["n"] % ways == 0


WHOLE = Place()
"""One chip, or one that has everything."""


def rules_of(plan: Plan, program: Program) -> Rules:
    """The plan's layouts. Experts are dealt over `expert` and `tensor`, or sliced over `tensor` where they are too few
    or the plan asks for it, as the planner does it."""
    experts = max((section.dims.get("e", 0) for section in program.sections), default=0)
    folded = plan.expert * plan.tensor <= experts and not plan.etp
    return training_rules(plan.sequence, plan.zero, folded, plan.context_by)


def place_of(plan: Plan, program: Program, mesh: Mesh | None = None) -> Place:
    """Where a plan's tensors lie while it runs, on the devices of a mesh."""
    sizes = {axis: getattr(plan, axis) for axis in AXES if getattr(plan, axis) > 1}
    return Place(sizes, rules_of(plan, program), torus_of(mesh) if mesh else {})


def torus_of(mesh: Mesh) -> Torus:
    """The rows of a TPU's torus along each axis of a mesh, where sums are scattered along one after the other."""
    if not hasattr(mesh.devices.flat[0], "coords"):
        return {}
    places = numpy.array([on_torus(device) for device in mesh.devices.flat])
    return torus_rows(dict(mesh.shape), places)


def on_torus(device: Any) -> tuple[int, ...]:
    """Where a TPU device is: its slice, the coordinates of its chip, the fastest last, and its core."""
    return getattr(device, "slice_index", 0) or 0, *device.coords[::-1], getattr(device, "core_on_chip", 0)


def mesh_of(plan: Plan, devices: Sequence[Any] | None = None) -> Mesh:
    """The plan's mesh over the devices there are, slowest axis first; TPUs row by row of their torus, as plans have
    them (JAX lists them host by host)."""
    found = list(jax.devices() if devices is None else devices)
    if all(hasattr(device, "coords") for device in found):
        found.sort(key=on_torus)
    if plan.chips > len(found):
        raise InputError(
            f"The plan {plan} needs {plan.chips} devices and there are {len(found)}; make its axes smaller, or on a "
            f"CPU set XLA_FLAGS=--xla_force_host_platform_device_count={plan.chips}."
        )
    sizes = [getattr(plan, axis) for axis in AXES]
    return Mesh(numpy.array(found[: plan.chips]).reshape(sizes), AXES)


BATCH = PartitionSpec(None, ("data", "fsdp", "expert"), "context")
"""Tokens [passes, b, t] of training: sequences over everything that splits the batch, tokens over `context`."""


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
