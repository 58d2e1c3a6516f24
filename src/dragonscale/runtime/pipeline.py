"""Stacked layers run as a pipeline: each chip of the `pipe` axis holds some of them, microbatches pass through.

What is done when is a timeline of `training.pipeline_order`, the planner's own schedules; here it becomes a table that all
chips walk through together, one row a tick. At a tick a chip runs a chunk of layers forward or backward for one microbatch,
or waits, and then passes an activation to the next chip and a gradient to the one before. Only inputs of chunks are
kept; a backward piece computes its chunk again. They lie in as many slots as the schedule ever holds, which is why 1F1B
needs less memory than GPipe.

`pipelined_loss` computes loss and gradients in one walk, as all schedules but GPipe must (a backward piece runs before the
last forward one). To JAX it is an ordinary function with a derivative of its own, so embeddings before it and
optimizers after it are written as ever. `pipelined` is the forward pass alone.

Weights come dealt: [virtual, pipe, layers of a chunk, …], which `deal` makes from layers stacked in order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.runtime.pipeline_table import BACKWARD, COLUMNS, FORWARD, Table, table_of
from dragonscale.training.pipeline_order import check, timeline

Stage = Callable[[Any, jax.Array], jax.Array]
"""A chunk of layers: (its weights, stacked; activations) to activations of the same shape."""
Last = Callable[[Any, jax.Array, Any], jax.Array]
"""What follows the layers: (its own weights, activations, targets of a microbatch) to a loss, which is added up."""


@dataclass(frozen=True)
class Pipeline:
    """A schedule on a mesh axis. `axis` is manual; other axes of the mesh stay with the compiler."""

    mesh: Mesh
    schedule: str = "1f1b"
    virtual: int = 1
    axis: str = "pipe"

    @property
    def size(self) -> int:
        """Chips along the axis."""
        return self.mesh.shape[self.axis]

    def __post_init__(self) -> None:
        if self.axis not in self.mesh.shape:
            raise InputError(
                f"A pipeline over the axis {self.axis!r} needs a mesh that has it, not {dict(self.mesh.shape)}."
            )


def deal(weights: Any, pipe: int, virtual: int = 1) -> Any:
    """Stacked layers [layers, …] dealt as [virtual, pipe, layers of a chunk, …]."""
    layers = {leaf.shape[0] for leaf in jax.tree.leaves(weights)}
    if len(layers) != 1 or layers.pop() % (pipe * virtual):
        raise InputError(
            f"Layers are dealt evenly to pipe={pipe} times virtual={virtual} chunks; make their number a multiple of {pipe * virtual}."
        )
    return jax.tree.map(lambda leaf: leaf.reshape(virtual, pipe, -1, *leaf.shape[1:]), weights)


@dataclass
class _Walk:
    """One chip's side of a walk through a table, inside `jax.shard_map`."""

    pipeline: Pipeline
    stage: Stage
    weights: Any
    x: jax.Array

    def row(self, rows: jax.Array) -> dict[str, jax.Array]:
        return dict(zip(COLUMNS, rows[0], strict=True))

    def chunk(self, row: dict[str, jax.Array]) -> Any:
        return jax.tree.map(lambda leaf: leaf[row["chunk"]], self.weights)

    def shift(self, value: jax.Array, by: int) -> jax.Array:
        size = self.pipeline.size
        return jax.lax.ppermute(value, self.pipeline.axis, [(rank, (rank + by) % size) for rank in range(size)])

    def given(self, row: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
        return jnp.where(row["first"] == 1, self.x[row["microbatch"]], inputs[row["input"]])

    def room(self, slots: int) -> jax.Array:
        return jnp.zeros((slots + 1, *self.x.shape[1:]), self.x.dtype)


def pipelined(pipeline: Pipeline, stage: Stage) -> Callable[[Any, jax.Array], jax.Array]:
    """The forward pass: (dealt weights, microbatches [m, …]) to the layers' results [m, …]."""

    def run(weights: Any, x: jax.Array) -> jax.Array:
        count = x.shape[0]
        check(pipeline.schedule, pipeline.size, pipeline.virtual, count)
        ticks = timeline(pipeline.schedule, pipeline.size, pipeline.virtual, count, backward=False)
        table = table_of(ticks, pipeline.size, pipeline.virtual)

        def local(weights: Any, x: jax.Array, rows: jax.Array) -> jax.Array:
            walk = _Walk(pipeline, stage, _own(weights), x)

            def tick(carry: tuple[jax.Array, ...], numbers: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
                arrived, inputs, results = carry
                row = walk.row(numbers)
                inputs = inputs.at[row["put_input"]].set(arrived)
                given = walk.given(row, inputs)
                made = jax.lax.cond(
                    row["kind"] == FORWARD, lambda: stage(walk.chunk(row), given).astype(x.dtype), lambda: given
                )
                place = jnp.where((row["kind"] == FORWARD) & (row["final"] == 1), row["microbatch"], count)
                return (walk.shift(made, 1), inputs, results.at[place].set(made)), None

            start = (jnp.zeros_like(x[0]), walk.room(table.inputs), walk.room(count))
            (_, _, results), _ = jax.lax.scan(tick, start, rows)
            return results[None, :count]

        return _mapped(pipeline, local, 1, PartitionSpec(pipeline.axis))(weights, x, table.rows)[-1]

    return run


def _own(dealt: Any) -> Any:
    """A chip's chunks: [virtual, 1, …] as [virtual, …]."""
    return jax.tree.map(lambda leaf: leaf[:, 0], dealt)


def _mapped(pipeline: Pipeline, local: Callable[..., Any], shared: int, out: Any) -> Callable[..., Any]:
    """A function of dealt weights, `shared` whole arguments and a table, on every chip of the axis."""
    ranked = PartitionSpec(None, pipeline.axis)
    return jax.shard_map(
        local,
        mesh=pipeline.mesh,
        in_specs=(ranked, *[PartitionSpec()] * shared, ranked),
        out_specs=out,
        axis_names={pipeline.axis},
        check_vma=False,
    )


def pipelined_loss(pipeline: Pipeline, stage: Stage, last: Last) -> Callable[[Any, Any, jax.Array, Any], jax.Array]:
    """The loss of (dealt weights, weights of `last`, microbatches [m, …], targets [m, …]), added up over microbatches."""

    @jax.custom_vjp
    def total(weights: Any, head: Any, x: jax.Array, targets: Any) -> jax.Array:
        results = pipelined(pipeline, stage)(weights, x)
        return jax.lax.map(lambda pair: last(head, *pair), (results, targets)).sum()

    def forward(weights: Any, head: Any, x: jax.Array, targets: Any) -> tuple[jax.Array, Any]:
        value, gradients = loss_and_gradients(pipeline, stage, last, weights, head, x, targets)
        return value, (gradients, targets)

    def backward(saved: Any, slope: jax.Array) -> tuple[Any, ...]:
        gradients, targets = saved
        scaled = jax.tree.map(lambda leaf: (leaf * slope).astype(leaf.dtype), gradients)
        return (*scaled, jax.tree.map(_no_gradient, targets))

    total.defvjp(forward, backward)
    return total


def _no_gradient(target: jax.Array) -> Any:
    whole = jnp.issubdtype(target.dtype, jnp.integer)
    return numpy.zeros(target.shape, jax.dtypes.float0) if whole else jnp.zeros_like(target)


def loss_and_gradients(
    pipeline: Pipeline, stage: Stage, last: Last, weights: Any, head: Any, x: jax.Array, targets: Any
) -> tuple[jax.Array, tuple[Any, Any, jax.Array]]:
    """The loss, and its gradients for the weights, for those of `last` and for the microbatches, in one walk."""
    table = _table(pipeline, x.shape[0])

    def local(weights: Any, head: Any, x: jax.Array, targets: Any, rows: jax.Array) -> Any:
        value, to_weights, to_head, to_x = _walked(pipeline, stage, last, _own(weights), head, x, targets, rows, table)
        added = partial(jax.lax.psum, axis_name=pipeline.axis)  # all but one chip have zeros
        as_dealt = jax.tree.map(lambda made: made[:, None], to_weights)
        return added(value), as_dealt, jax.tree.map(added, to_head), added(to_x)

    whole = PartitionSpec()
    out = (whole, PartitionSpec(None, pipeline.axis), whole, whole)
    value, *gradients = _mapped(pipeline, local, 3, out)(weights, head, x, targets, table.rows)
    return value, (gradients[0], gradients[1], gradients[2])


def _table(pipeline: Pipeline, microbatches: int) -> Table:
    ticks = timeline(pipeline.schedule, pipeline.size, pipeline.virtual, microbatches)
    return table_of(ticks, pipeline.size, pipeline.virtual)


def local_loss(pipeline: Pipeline, stage: Stage, last: Last) -> Callable[[Any, Any, jax.Array, Any], jax.Array]:
    """As `pipelined_loss`, for one chip inside a `jax.shard_map` over all axes: weights are its own chunks [virtual, layers of
    a chunk, …]. The loss is that of the chip which computes it and zero elsewhere, and so are the gradients: their sums
    over the axis are the whole."""

    @jax.custom_vjp
    def total(weights: Any, head: Any, x: jax.Array, targets: Any) -> jax.Array:
        return forward(weights, head, x, targets)[0]

    def forward(weights: Any, head: Any, x: jax.Array, targets: Any) -> tuple[jax.Array, Any]:
        check(pipeline.schedule, pipeline.size, pipeline.virtual, x.shape[0])
        table = _table(pipeline, x.shape[0])
        rank = jax.lax.axis_index(pipeline.axis)
        rows = jax.lax.dynamic_slice_in_dim(jnp.asarray(table.rows), rank, 1, 1)
        value, *gradients = _walked(pipeline, stage, last, weights, head, x, targets, rows, table)
        return value, (tuple(gradients), targets)

    def backward(saved: Any, slope: jax.Array) -> tuple[Any, ...]:
        gradients, targets = saved
        scaled = jax.tree.map(lambda leaf: (leaf * slope).astype(leaf.dtype), gradients)
        return (*scaled, jax.tree.map(_no_gradient, targets))

    total.defvjp(forward, backward)
    return total


def _walked(
    pipeline: Pipeline, stage: Stage, last: Last, weights: Any, head: Any, x: jax.Array, targets: Any, rows: jax.Array,
    table: Table,
) -> tuple[jax.Array, Any, Any, jax.Array]:  # fmt: skip
    """One chip's walk: its loss, and its gradients for its chunks, for the weights of `last` and for the microbatches."""
    walk = _Walk(pipeline, stage, weights, x)
    pieces = _Pieces(walk, last, head)
    count = x.shape[0]

    def tick(carry: Any, numbers: jax.Array) -> tuple[Any, None]:
        arrived, gradient, inputs, gradients, to_x, sums = carry
        row = walk.row(numbers)
        inputs = inputs.at[row["put_input"]].set(arrived)
        gradients = gradients.at[row["put_gradient"]].set(gradient)
        given, slope = walk.given(row, inputs), gradients[row["gradient"]]
        target = jax.tree.map(lambda leaf: leaf[row["microbatch"]], targets)
        branches = (pieces.idle, pieces.forward, pieces.backward, pieces.last)
        made, back, sums = jax.lax.switch(row["kind"], branches, row, given, slope, target, sums)
        home = jnp.where((row["kind"] >= BACKWARD) & (row["first"] == 1), row["microbatch"], count)
        to_x = to_x.at[home].set(back)
        return (walk.shift(made, 1), walk.shift(back, -1), inputs, gradients, to_x, sums), None

    nothing = jnp.zeros_like(x[0])
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (jnp.zeros(()), weights, head))
    start = (nothing, nothing, walk.room(table.inputs), walk.room(table.gradients), walk.room(count), zeros)
    (_, _, _, _, to_x, (value, to_weights, to_head)), _ = jax.lax.scan(tick, start, rows)
    made = jax.tree.map(lambda made, leaf: made.astype(leaf.dtype), (to_weights, to_head), (weights, head))
    return value, *made, to_x[:count]


@dataclass
class _Pieces:
    """What a chip may do in a tick. Each returns what to pass on, what to pass back, and the sums: loss and gradients."""

    walk: _Walk
    after: Last
    head: Any

    def idle(self, row: Any, given: jax.Array, slope: jax.Array, target: Any, sums: Any) -> Any:
        del row, slope, target
        return jnp.zeros_like(given), jnp.zeros_like(given), sums

    def forward(self, row: Any, given: jax.Array, slope: jax.Array, target: Any, sums: Any) -> Any:
        del slope, target
        made = self.walk.stage(self.walk.chunk(row), given).astype(given.dtype)
        return made, jnp.zeros_like(given), sums

    def backward(self, row: Any, given: jax.Array, slope: jax.Array, target: Any, sums: Any) -> Any:
        del target
        made, pull = jax.vjp(self.walk.stage, self.walk.chunk(row), given)
        to_weights, back = pull(slope.astype(made.dtype))
        value, chunks, head = sums
        return jnp.zeros_like(given), back.astype(given.dtype), (value, _added(chunks, row, to_weights), head)

    def last(self, row: Any, given: jax.Array, slope: jax.Array, target: Any, sums: Any) -> Any:
        del slope

        def loss(weights: Any, head: Any, given: jax.Array) -> jax.Array:
            return self.after(head, self.walk.stage(weights, given).astype(given.dtype), target)

        found, (to_weights, to_head, back) = jax.value_and_grad(loss, (0, 1, 2))(self.walk.chunk(row), self.head, given)
        value, chunks, head = sums
        head = jax.tree.map(lambda so_far, more: so_far + more.astype(so_far.dtype), head, to_head)
        return jnp.zeros_like(given), back, (value + found, _added(chunks, row, to_weights), head)


def _added(chunks: Any, row: Any, more: Any) -> Any:
    return jax.tree.map(lambda so_far, one: so_far.at[row["chunk"]].add(one.astype(so_far.dtype)), chunks, more)
