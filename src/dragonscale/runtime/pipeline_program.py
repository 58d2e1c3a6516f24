"""A model program as a pipeline: its layers over the `pipe` axis, what comes before and after them around it.

All chips of a pipeline run one program, so every chunk must be of the same kind: the longest run of equal layers (or of
a repeated pattern of layers) is split over the chips, as many repeats as divide evenly. Layers before it, such as the
first dense ones of a model with experts, and repeats left over run with the embedding; layers after it run with the
head. Those are computed on every chip of the axis.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.runtime.forward import Stretch, embed, head, layer_weights, losses, stretches, through
from dragonscale.runtime.lines import PassSetting, Tensors
from dragonscale.runtime.parameters import Tree
from dragonscale.runtime.pipeline import Pipeline, into_chunks, pipelined_loss


@dataclass(frozen=True)
class PipelinedLayers:
    """A program's layers: before the pipeline, in it, and after it."""

    before: tuple[Stretch, ...]
    inside: Stretch
    after: tuple[Stretch, ...]


def pipelined_layers(program: Program, chunks: int) -> PipelinedLayers:
    """The longest stretch of a program cut so that it divides into `chunks`."""
    found = stretches(program.order)
    longest = max(range(len(found)), key=lambda place: found[place].times * len(found[place].pattern))
    whole = found[longest]
    left = whole.times % chunks
    if whole.times < chunks:
        raise InputError(
            f"The model's longest run of equal layers has {whole.times} repeats of {len(whole.pattern)}, too few "
            f"for pipe times virtual = {chunks} chunks."
        )
    pairs = zip(whole.starts, whole.pattern, strict=True)
    starts = tuple(start + left * whole.pattern.count(name) for start, name in pairs)
    cut = (replace(whole, times=left),) if left else ()
    inside = Stretch(whole.pattern, whole.times - left, starts)
    return PipelinedLayers((*found[:longest], *cut), inside, tuple(found[longest + 1 :]))


def arranged(params: Tree, program: Program, pipeline: Pipeline) -> dict[str, Any]:
    """A parameter tree as a pipeline takes it: layers before, inside [virtual, pipe, layers of a chunk, …] and after.

    With virtual chunks a chip's layers are not neighbours in the stack and are sent to it each step."""
    parts = pipelined_layers(program, pipeline.size * pipeline.virtual)
    return {
        "embed": params["embed"],
        "before": [layer_weights(params, each) for each in parts.before],
        "inside": into_chunks(layer_weights(params, parts.inside), pipeline.size, pipeline.virtual),
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
    parts = pipelined_layers(program, pipeline.size * pipeline.virtual)
    positions = jnp.arange(length)[None]

    def scanned(stretch: Stretch, weights: list[Tensors], residual: jax.Array) -> jax.Array:
        return jax.lax.scan(through(program, stretch, setting, positions, remat), residual, weights)[0]

    def last(params: Any, residual: jax.Array, targets: jax.Array) -> jax.Array:
        for stretch, weights in zip(parts.after, params["after"], strict=True):
            residual = scanned(stretch, weights, residual)
        found = losses(head(params, program, residual, setting), targets, setting.place, split)
        with jax.named_scope("loss"):
            return found.sum()

    run = pipelined_loss(pipeline, partial(scanned, parts.inside), last)

    def total(tree: dict[str, Any], tokens: jax.Array, targets: jax.Array) -> jax.Array:
        residual = embed(tree, program, tokens, positions, setting)
        for stretch, weights in zip(parts.before, tree["before"], strict=True):
            residual = scanned(stretch, weights, residual)
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
