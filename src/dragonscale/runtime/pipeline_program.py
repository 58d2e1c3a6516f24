"""A model program as a pipeline: its layers over the `pipe` axis, what comes before and after them around it.

All chips of a pipeline run one program, so every chunk must be of the same kind: the longest run of equal layers (or of a
repeated pattern of layers) is dealt over the chips, as many repeats as divide evenly. Layers before it, such as the
first dense ones of a model with experts, and repeats left over run with the embedding; layers after it run with the
head. Those are computed on every chip of the axis.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.notation import Array
from dragonscale.runtime.forward import (
    Pass,
    Pin,
    Stretch,
    Tensors,
    as_is,
    embed,
    head,
    layer_weights,
    run_section,
    stretches,
)
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import Tree, fitted
from dragonscale.runtime.pipeline import Pipeline, deal, pipelined_loss
from dragonscale.sharding.partition_spec import to_partition_spec
from dragonscale.training.rules import Rules


@dataclass(frozen=True)
class Dealt:
    """A program's layers: before the pipeline, in it, and after it."""

    before: tuple[Stretch, ...]
    inside: Stretch
    after: tuple[Stretch, ...]


def dealt(program: Program, chunks: int) -> Dealt:
    """The longest stretch of a program cut so that it divides into `chunks`."""
    found = stretches(program.order)
    longest = max(range(len(found)), key=lambda place: found[place].times * len(found[place].pattern))
    whole = found[longest]
    left = whole.times % chunks
    if whole.times < chunks:
        raise InputError(
            f"The model's longest run of equal layers has {whole.times} repeats of {len(whole.pattern)}, too few for pipe times virtual = {chunks} chunks."
        )
    starts = tuple(
        start + left * whole.pattern.count(name) for start, name in zip(whole.starts, whole.pattern, strict=True)
    )
    cut = (replace(whole, times=left),) if left else ()
    inside = Stretch(whole.pattern, whole.times - left, starts)
    return Dealt((*found[:longest], *cut), inside, tuple(found[longest + 1 :]))


def pinned_inside(mesh: Mesh, rules: Rules) -> Pin:
    """As `meshes.pinned`, for use inside the pipeline, where one axis of the mesh is manual: only the others are named."""

    def pin(value: jax.Array, array: Array) -> jax.Array:
        if "b" not in array.names or value.ndim != len(array.dims):
            return value
        return jax.lax.with_sharding_constraint(
            value, fitted(to_partition_spec(rules.activation(array)), mesh, value.shape)
        )

    return pin


def layered(
    shardings: dict[str, dict[str, NamedSharding]], program: Program, pipeline: Pipeline
) -> dict[str, dict[str, NamedSharding]]:
    """Shardings of a parameter tree (`meshes.weight_shardings`) with the layers of the pipeline also dealt over its axis.
    Stacks that do not divide stay whole. With virtual chunks a chip's layers are not neighbours and are sent to it each step.
    """
    inside = set(dealt(program, pipeline.size * pipeline.virtual).inside.pattern)
    repeats = {section.name: section.repeat for section in program.sections}

    def over(name: str, own: NamedSharding) -> NamedSharding:
        if name not in inside or repeats[name] % pipeline.size:
            return own
        return NamedSharding(own.mesh, PartitionSpec(pipeline.axis, *own.spec[1:]))

    return {name: {weight: over(name, own) for weight, own in each.items()} for name, each in shardings.items()}


def pipelined_program_loss(
    pipeline: Pipeline, program: Program, numerics: Numerics, microbatches: int, pin: Pin = as_is,
    inner_pin: Pin = as_is, remat: Callable[[Any], Any] | None = None, dtype: Any = None,
) -> Callable[[Tree, jax.Array, jax.Array], jax.Array]:  # fmt: skip
    """The mean loss of (parameters, tokens [b, t], targets [b, t]), as `loss(forward(…), …)` and with the same gradients.

    `pin` holds tensors in place outside the pipeline (`meshes.pinned`), `inner_pin` inside it (`pinned_inside`).
    """
    parts = dealt(program, pipeline.size * pipeline.virtual)
    sections = {section.name: section for section in program.sections}

    def scanned(stretch: Stretch, weights: list[Tensors], residual: jax.Array, pin: Pin) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(residual.shape[1]), residual.shape[:2])

        def layer(carry: jax.Array, own: list[Tensors]) -> tuple[jax.Array, None]:
            for name, each in zip(stretch.pattern, own, strict=True):
                carry = run_section(Pass(sections[name], numerics, positions, each, pin=pin, tensors={"R": carry}))["R"]
            return carry, None

        return jax.lax.scan(layer if remat is None else remat(layer), residual, weights)[0]

    def stage(weights: list[Tensors], residual: jax.Array) -> jax.Array:
        return scanned(parts.inside, weights, residual, inner_pin)

    def last(params: Any, residual: jax.Array, targets: jax.Array) -> jax.Array:
        for stretch, weights in zip(parts.after, params["after"], strict=True):
            residual = scanned(stretch, weights, residual, inner_pin)
        return _cross_entropy(head(params, program, residual, numerics, inner_pin), targets) / microbatches

    run = pipelined_loss(pipeline, stage, last)

    def total(params: Tree, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        residual = embed(params, program, tokens, positions, numerics, pin)
        residual = residual if dtype is None else residual.astype(dtype)
        for stretch in parts.before:
            residual = scanned(stretch, layer_weights(params, stretch), residual, pin)
        weights = deal(layer_weights(params, parts.inside), pipeline.size, pipeline.virtual)
        ending = {**_head_weights(params, program), "after": [layer_weights(params, each) for each in parts.after]}
        return run(weights, ending, _cut(residual, microbatches), _cut(targets, microbatches))

    return total


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """As `forward.loss`, without a gather: of one along a split vocabulary inside a manual axis XLA's partitioner (of JAX
    0.10.2) stops with a failed check of its own."""
    chosen = jnp.where(jnp.arange(logits.shape[-1]) == targets[..., None], logits, 0.0).sum(-1)
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def _head_weights(params: Tree, program: Program) -> Tree:
    """What the head uses: its own weights, and those of the embedding only where they are tied."""
    names = {array.name for op in program.sections[-1].ops for array in op.weights}
    return {part: {name: leaf for name, leaf in params[part].items() if name in names} for part in ("embed", "head")}


def _cut(x: jax.Array, microbatches: int) -> jax.Array:
    """[b, …] as [m, b/m, …], so that every chip's own sequences are dealt over the microbatches."""
    if x.shape[0] % microbatches:
        raise InputError(f"A batch of {x.shape[0]} sequences cannot be cut into {microbatches} equal microbatches.")
    return x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)
