"""Stacked layers run as a pipeline: each chip of the `pipe` axis holds some of them, microbatches pass through.

What is done when is a timeline of `training.pipeline_order`, the planner's own schedules; here it becomes a table
(`runtime.tick_table`) that all chips walk through together, one row a tick. At a tick a chip runs a chunk of layers
forward or backward for one microbatch, or waits, and then passes an activation to the next chip and a gradient to the
one before. What a forward tick keeps for its backward tick is what the layers' remat policy keeps; it lies in as many
slots as the schedule ever holds, which is why 1F1B needs less memory than GPipe. Weights are not kept again: a backward
tick reads them where they are. Under ZB-H1 a backward tick makes the gradient of its input alone and a tick of its own
later those of weights (`runtime.pullback`): chips wait for their neighbours after every tick, and ticks of a third of a
microbatch each are about equally long.

`pipelined_loss` computes loss and gradients in one walk, as all schedules but GPipe must (a backward tick comes before
the last forward one). To JAX it is an ordinary function with a derivative of its own, so embeddings before it and
optimizers after it are written as ever.

Weights come as [virtual, pipe, layers of a chunk, …], which `into_chunks` makes from layers stacked in order.

`pipelined_sum` is a model program as a pipeline: its layers over the `pipe` axis, what comes before and after them
around it. All chips of a pipeline run one program, so every chunk must be of the same kind: the longest run of equal
layers (or of a repeated pattern of layers) is split over the chips, and chunks with fewer of them than others are
filled up with layers that change nothing. Layers before it, such as the first dense ones of a model with experts, run
with the embedding; layers after it run with the head. Those are computed on every chip of the axis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh

from dragonscale.errors import InputError
from dragonscale.models.program import Program, Stretch, longest_run, stretches
from dragonscale.runtime.forward import embed, head, layer_weights, losses, through
from dragonscale.runtime.lines import PassSetting, Tensors
from dragonscale.runtime.parameters import Tree
from dragonscale.runtime.pullback import Halves, Layer, Pullback, halves_of
from dragonscale.runtime.rings import shift
from dragonscale.runtime.tick_table import BACKWARD, COLUMNS, FORWARD, LAST, SCOPES, WEIGHTS, Table, table_of
from dragonscale.training.plan.pipeline_order import check, timeline
from dragonscale.training.plan.stages import SPLIT_BACKWARD, chunk_sizes

Last = Callable[[Any, jax.Array, Any], jax.Array]
"""What follows the layers: (its own weights, activations, targets of a microbatch) to a loss, which is added up."""


@dataclass(frozen=True)
class Pipeline:
    """A schedule on a mesh axis. `axis` is manual; other axes of the mesh stay with the compiler."""

    mesh: Mesh
    schedule: str = "1f1b"
    virtual: int = 1
    layout: str = "even"
    axis: str = "pipe"

    @property
    def splits(self) -> bool:
        """Whether gradients of weights are put off."""
        return self.schedule in SPLIT_BACKWARD

    @property
    def size(self) -> int:
        """Chips along the axis."""
        return self.mesh.shape[self.axis]

    @property
    def chunks(self) -> int:
        """Chunks of layers, of all chips."""
        return self.size * self.virtual

    def __post_init__(self) -> None:
        there = dict(self.mesh.shape)
        if self.axis not in there:
            raise InputError(f"A pipeline over the axis {self.axis!r} needs a mesh that has it, not {there}.")


def into_chunks(weights: Any, pipe: int, virtual: int = 1, sizes: Sequence[int] = ()) -> Any:
    """Stacked layers [layers, …] as [virtual, pipe, layers of a chunk, …]. Chunks of different `sizes` are filled up
    with layers whose weights are zeros, which add nothing to the residual stream."""
    (layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(weights)}
    chunks = pipe * virtual
    if len(set(sizes)) > 1:
        ends = numpy.cumsum(sizes)
        places = numpy.arange(max(sizes)) + (ends - sizes)[:, None]
        places = numpy.where(places < ends[:, None], places, layers).reshape(virtual, pipe, -1)
        return jax.tree.map(lambda leaf: jnp.take(leaf, places, axis=0, mode="fill", fill_value=0), weights)
    if layers % chunks:
        raise InputError(
            f"Layers divide evenly into pipe={pipe} times virtual={virtual} chunks; make their number a multiple of "
            f"{chunks}."
        )
    return jax.tree.map(lambda leaf: leaf.reshape(virtual, pipe, -1, *leaf.shape[1:]), weights)


def pipelined_loss(pipeline: Pipeline, layer: Layer, last: Last) -> Callable[[Any, Any, jax.Array, Any], jax.Array]:
    """The loss of (weights, weights of `last`, microbatches [m, …], targets [m, …]), added up over microbatches, for
    one chip inside a `jax.shard_map` over all axes: weights are its own chunks [virtual, layers of a chunk, …]. The
    loss is that of the chip which computes it and zero elsewhere, and so are the gradients: their sums over the axis
    are the whole."""

    @jax.custom_vjp
    def total(weights: Any, head: Any, x: jax.Array, targets: Any) -> jax.Array:
        return forward(weights, head, x, targets)[0]

    def forward(weights: Any, head: Any, x: jax.Array, targets: Any) -> tuple[jax.Array, Any]:
        check(pipeline.schedule, pipeline.size, pipeline.virtual, x.shape[0])
        ticks = timeline(pipeline.schedule, pipeline.size, pipeline.virtual, x.shape[0])
        table = table_of(ticks, pipeline.size, pipeline.virtual)
        value, *gradients = _walked(_Chip(pipeline, layer, last, weights, head, x), targets, table)
        return value, gradients

    def backward(gradients: Any, slope: jax.Array) -> tuple[Any, ...]:
        return (*jax.tree.map(lambda leaf: (leaf * slope).astype(leaf.dtype), gradients), None)

    total.defvjp(forward, backward)
    return total


def _walked(chip: "_Chip", targets: Any, table: Table) -> tuple[jax.Array, Any, Any, jax.Array]:
    """One chip's walk: its loss, and its gradients for its chunks, for the weights of `last` and for
    the microbatches."""
    x, count = chip.x, chip.x.shape[0]
    axis = chip.pipeline.axis
    rows = jax.lax.dynamic_index_in_dim(jnp.asarray(table.rows), jax.lax.axis_index(axis), 1, keepdims=False)

    nothing = jnp.zeros_like(x[0])

    def tick(carry: Any, numbers: jax.Array) -> tuple[Any, None]:
        arrived, gradient, inputs, gradients, kept, late, to_x, sums = carry
        row = dict(zip(COLUMNS, numbers, strict=True))
        inputs = inputs.at[row["put_input"]].set(arrived)
        gradients = gradients.at[row["put_gradient"]].set(gradient)
        given = jnp.where(row["first"] == 1, x[row["microbatch"]], inputs[row["input"]])
        target = jax.tree.map(lambda leaf: leaf[row["microbatch"]], targets)
        state = (nothing, nothing, gradients, kept, late, sums)
        for kind, run in chip.turns.items():
            # A loop of one turn or none: what it carries is changed in place, where a branch would be handed a copy.
            with jax.named_scope(SCOPES[kind]):
                turns = (row["kind"] == kind).astype(jnp.int32)
                state = jax.lax.fori_loop(0, turns, lambda _, so_far, run=run: run(row, given, target, so_far), state)
        made, back, gradients, kept, late, sums = state
        home = jnp.where((row["kind"] >= BACKWARD) & (row["first"] == 1), row["microbatch"], count)
        to_x = to_x.at[home].set(back)
        return (shift(made, axis, 1), shift(back, axis, -1), inputs, gradients, kept, late, to_x, sums), None

    layers = jax.tree.leaves(chip.weights)[0].shape[1]

    def room(leaf: Any, *slots: int) -> jax.Array:
        return jnp.zeros((*slots, *leaf.shape), leaf.dtype)

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (jnp.zeros(()), chip.weights, chip.head))
    places = [room(nothing, slots + 1) for slots in (table.inputs, table.gradients)]
    kept, late = (
        [room(leaf, slots, layers) for leaf in leaves]
        for slots, leaves in ((table.kept, chip.pullback.kept), (table.late, chip.late))
    )
    start = (nothing, nothing, *places, kept, late, room(nothing, count + 1), zeros)
    (*_, to_x, (value, to_weights, to_head)), _ = jax.lax.scan(tick, start, rows)
    made = jax.tree.map(lambda made, leaf: made.astype(leaf.dtype), (to_weights, to_head), (chip.weights, chip.head))
    return value, *made, to_x[:count]


@dataclass
class _Chip:
    """What a chip has, and what it may do in a tick. Each returns what to pass on, what to pass back, the slots of
    gradients, of what is kept and of what is put off, and the sums: loss and gradients."""

    pipeline: Pipeline
    layer: Layer
    after: Last
    weights: Any
    head: Any
    x: jax.Array

    @cached_property
    def pullback(self) -> Pullback:
        return Pullback.of(self.layer, self.one, self.x[0])

    @cached_property
    def halves(self) -> Halves:
        return halves_of(self.pullback, self.one, self.x[0])

    @property
    def one(self) -> Any:
        """The shapes of a layer's weights."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.weights)

    @property
    def late(self) -> tuple[Any, ...]:
        """What a layer puts off."""
        return self.halves.late if self.pipeline.splits else ()

    def chunk(self, row: dict[str, jax.Array]) -> Any:
        return jax.tree.map(lambda leaf: leaf[row["chunk"]], self.weights)

    @property
    def turns(self) -> dict[int, Callable[..., Any]]:
        # Reading slots comes after writing them, or XLA would copy them all.
        late = {WEIGHTS: self.put_off} if self.pipeline.splits else {}
        return {FORWARD: self.forward, BACKWARD: self.backward, LAST: self.last} | late

    def forward(self, row: Any, given: jax.Array, _target: Any, state: Any) -> Any:
        _, back, gradients, kept, late, sums = state

        def layer(x: jax.Array, weights: Any) -> tuple[jax.Array, list[jax.Array]]:
            made, pull = jax.vjp(self.layer, weights, x)
            return made.astype(x.dtype), self.pullback.own(pull)

        made, own = jax.lax.scan(layer, given, self.chunk(row))
        return made, back, gradients.at[row["gradient"]].set(made), _written(kept, row["kept"], own), late, sums

    def backward(self, row: Any, _given: jax.Array, _target: Any, state: Any) -> Any:
        on, _, gradients, kept, late, sums = state
        back, late, sums = self._pulled(row, gradients[row["gradient"]], kept, late, sums)
        return on, back, gradients, kept, late, sums

    def last(self, row: Any, _given: jax.Array, target: Any, state: Any) -> Any:
        on, _, gradients, kept, late, (value, chunks, head) = state
        made = gradients[row["gradient"]]
        found, (to_head, slope) = jax.value_and_grad(self.after, (0, 1))(self.head, made, target)
        head = jax.tree.map(lambda so_far, more: so_far + more.astype(so_far.dtype), head, to_head)
        back, late, sums = self._pulled(row, slope, kept, late, (value + found, chunks, head))
        return on, back, gradients, kept, late, sums

    def put_off(self, row: Any, _given: jax.Array, _target: Any, state: Any) -> Any:
        """The gradients of weights that a split backward pass has left."""
        *rest, kept, late, sums = state

        taken = _read(kept, row["kept"]), self.chunk(row), _read(late, row["late"])
        _, to_weights = jax.lax.scan(lambda none, each: (none, self.halves.later(*each)), None, taken)
        return *rest, kept, late, _added(sums, row, to_weights)

    def _pulled(self, row: Any, slope: jax.Array, kept: Any, late: Any, sums: Any) -> tuple[jax.Array, Any, Any]:
        """What to pass back, what is put off and the sums, of the gradient of what a chunk made."""

        def layer(slope: jax.Array, each: Any) -> tuple[jax.Array, Any]:
            own, weights = each
            if self.pipeline.splits:
                back, made = self.halves.now(own, weights, slope)
            else:
                made, back = self.pullback(own, weights, slope)
            return back.astype(slope.dtype), made

        taken = [slots[row["kept"]] for slots in kept], self.chunk(row)
        back, made = jax.lax.scan(layer, slope.astype(self.x.dtype), taken, reverse=True)
        if self.pipeline.splits:
            return back, _written(late, row["late"], made), sums
        return back, late, _added(sums, row, made)


def _read(room: list[jax.Array], place: jax.Array) -> list[jax.Array]:
    """What lies in a slot, laid out as it lies: XLA would else turn round all slots each tick, for the one."""
    found = [slots[place] for slots in room]
    return [with_layout_constraint(value, Layout(tuple(range(value.ndim)))) for value in found]


def _written(room: list[jax.Array], place: jax.Array, values: Sequence[jax.Array]) -> list[jax.Array]:
    return [slots.at[place].set(value) for slots, value in zip(room, values, strict=True)]


def _added(sums: Any, row: Any, more: Any) -> Any:
    value, chunks, head = sums
    chunks = jax.tree.map(lambda so_far, one: so_far.at[row["chunk"]].add(one.astype(so_far.dtype)), chunks, more)
    return value, chunks, head


@dataclass(frozen=True)
class PipelinedLayers:
    """A program's layers: before the pipeline, in it (with the repeats of each chunk), and after it."""

    before: tuple[Stretch, ...]
    inside: Stretch
    sizes: tuple[int, ...]
    after: tuple[Stretch, ...]


def pipelined_layers(program: Program, pipeline: Pipeline) -> PipelinedLayers:
    """The longest stretch of a program dealt to the chunks of a pipeline."""
    found, (longest, whole), chunks = stretches(program.order), longest_run(program.order), pipeline.chunks
    if whole.times < chunks and pipeline.layout == "even":
        raise InputError(
            f"The model's longest run of equal layers has {whole.times} repeats of {len(whole.pattern)}, too few "
            f"for pipe times virtual = {chunks} chunks."
        )
    sizes = tuple(chunk_sizes(whole.times, chunks, pipeline.layout))
    return PipelinedLayers(tuple(found[:longest]), whole, sizes, tuple(found[longest + 1 :]))


def arranged(params: Tree, program: Program, pipeline: Pipeline) -> dict[str, Any]:
    """A parameter tree as a pipeline takes it: layers before, inside [virtual, pipe, layers of a chunk, …] and after.

    With virtual chunks a chip's layers are not neighbours in the stack and are sent to it each step."""
    parts = pipelined_layers(program, pipeline)
    own = layer_weights(params, parts.inside)
    return {
        "embed": params["embed"],
        "before": [layer_weights(params, each) for each in parts.before],
        "inside": into_chunks(own, pipeline.size, pipeline.virtual, parts.sizes),
        "after": [layer_weights(params, each) for each in parts.after],
        "head": params["head"],
    }


def pipelined_sum(
    pipeline: Pipeline,
    program: Program,
    setting: PassSetting,
    microbatches: int,
    length: int,
    split: tuple[str, ...],
    remat: Callable[[Any], Any] | None = None,
) -> Callable[[dict[str, Any], jax.Array, jax.Array], jax.Array]:
    """The sum of the losses of one chip's tokens [b, t], inside a `jax.shard_map` over all axes: of (an arranged tree
    of which the chip has its own chunks, tokens, targets). `split` are the axes of the vocabulary of the logits."""
    parts = pipelined_layers(program, pipeline)
    positions = jnp.arange(length)[None]

    def scanned(
        stretch: Stretch, weights: list[Tensors], residual: jax.Array, setting: PassSetting = setting
    ) -> jax.Array:
        return jax.lax.scan(through(program, stretch, setting, positions, remat), residual, weights)[0]

    def last(params: Any, residual: jax.Array, targets: jax.Array) -> jax.Array:
        for stretch, weights in zip(parts.after, params["after"], strict=True):
            residual = scanned(stretch, weights, residual)
        found = losses(head(params, program, residual, setting), targets, setting.place, split)
        with jax.named_scope("loss"):
            return found.sum()

    inside = through(program, parts.inside, setting, positions, remat)
    run = pipelined_loss(pipeline, lambda weights, residual: inside(residual, weights)[0], last)

    def total(tree: dict[str, Any], tokens: jax.Array, targets: jax.Array) -> jax.Array:
        residual = embed(tree, program, tokens, positions, setting)
        for stretch, weights in zip(parts.before, tree["before"], strict=True):  # on all chips of the axis
            residual = scanned(stretch, weights, residual, replace(setting, balance=setting.balance / pipeline.size))
        ending = {**_head_weights(tree, program), "after": tree["after"]}
        return run(tree["inside"], ending, _cut(residual, microbatches), _cut(targets, microbatches))

    return total


def _head_weights(params: dict[str, Any], program: Program) -> Tree:
    """What the head uses: its own weights, and those of the embedding only where they are tied."""
    names = {array.name for op in program.sections[-1].ops for array in op.weights}
    return {part: {name: leaf for name, leaf in params[part].items() if name in names} for part in ("embed", "head")}


def _cut(x: jax.Array, microbatches: int) -> jax.Array:
    """[b, …] as [m, b/m, …]."""
    if x.shape[0] % microbatches:
        raise InputError(f"A batch of {x.shape[0]} sequences cannot be cut into {microbatches} equal microbatches.")
    return x.reshape(microbatches, -1, *x.shape[1:])
