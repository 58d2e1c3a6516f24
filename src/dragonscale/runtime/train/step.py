"""One step of training, compiled for a plan's mesh.

Weights are kept in fp32, split as the plan splits optimizer state, and cast to the compute type once a step; that copy
lies as the plan's weights lie (split further under ZeRO-3, so that each layer's is gathered where it is used). The
microbatches of a step run one after the other; their gradients are added up in fp32, in the layout that the ZeRO stage
gives gradients. A pipeline takes all microbatches in one pass, and its layers' weights are also dealt over `pipe`. XLA
derives every other collective from these layouts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.models.program import Program
from dragonscale.runtime import meshes
from dragonscale.runtime.forward import forward, loss
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import abstract, initialise
from dragonscale.runtime.pipeline import Pipeline
from dragonscale.runtime.pipeline_program import layered, pinned_inside, pipelined_program_loss
from dragonscale.runtime.train.optimizers import optimizer, placed
from dragonscale.runtime.train.remat import named, remat_of
from dragonscale.runtime.train.settings import Order

State = dict[str, Any]
"""`step` (how many were done), `params` (fp32) and `optimizer`."""
_DTYPES = {"bf16": jnp.bfloat16, "fp32": jnp.float32}


@dataclass(frozen=True)
class Trainer:
    """A plan's compiled parts: `start` makes a state from a seed, `step` takes a state, tokens and targets
    [passes, b, t], a learning rate and a stop flag of every device, and gives the next state and its metrics;
    `shape` is the state without values, with the sharding of every leaf."""

    mesh: Mesh
    start: Callable[[int], State]
    step: Callable[..., tuple[State, dict[str, jax.Array]]]
    shape: State
    batch: NamedSharding
    flags: NamedSharding


def make_trainer(order: Order, program: Program, numerics: Numerics, mesh: Mesh) -> Trainer:
    """Everything that the steps of an order need."""
    states = _layouts(order, program, mesh)[1]
    transform = optimizer(order.plan.optimizer, order.run, program)

    def start(seed: jax.Array) -> State:
        params = initialise(program, jax.random.key(seed))
        return {"step": jnp.zeros((), jnp.int32), "params": params, "optimizer": transform.init(params)}

    blank = jax.eval_shape(start, jax.ShapeDtypeStruct((), jnp.uint32))
    whole = NamedSharding(mesh, PartitionSpec())
    where = {"step": whole, "params": states, "optimizer": placed(blank["optimizer"], abstract(program), states)}
    shape = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), blank, where)
    batch = NamedSharding(mesh, PartitionSpec(None, *meshes.batch_sharding(mesh).spec))
    flags = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    step = jax.jit(
        _step(order, program, numerics, mesh, transform),
        in_shardings=(where, batch, batch, whole, flags),
        out_shardings=(where, whole),
        donate_argnums=0,
    )
    make = jax.jit(start, out_shardings=where, compiler_options=_quick(mesh))
    return Trainer(mesh, lambda seed: make(jnp.uint32(seed % 2**32)), step, shape, batch, flags)


def _quick(mesh: Mesh) -> dict[str, Any] | None:
    """The first weights are made once: on a CPU, compiling that well takes longer than running it."""
    return {"xla_backend_optimization_level": 0} if mesh.devices.flat[0].platform == "cpu" else None


def _step(
    order: Order, program: Program, numerics: Numerics, mesh: Mesh, transform: optax.GradientTransformation
) -> Callable[..., tuple[State, dict[str, jax.Array]]]:
    weight_layout, state_layout = _layouts(order, program, mesh)
    gradient_layout = state_layout if order.plan.zero >= 2 else weight_layout
    dtype = _DTYPES[order.run.dtype]
    cost = _cost(order, program, numerics, mesh, dtype)

    def gradients(weights: Any, tokens: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
        found, slopes = jax.value_and_grad(cost)(weights, tokens, targets)
        return found, _laid(jax.tree.map(lambda one: one.astype(jnp.float32), slopes), gradient_layout)

    def summed(weights: Any, tokens: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
        """The mean over microbatches."""
        if len(tokens) == 1:
            return gradients(weights, tokens[0], targets[0])

        def more(total: Any, pair: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradients(weights, *pair)), None

        zeros = jax.tree.map(lambda one: jnp.zeros(one.shape, jnp.float32), weights)
        total, _ = jax.lax.scan(more, (jnp.zeros(()), _laid(zeros, gradient_layout)), (tokens, targets))
        return jax.tree.map(lambda one: one / len(tokens), total)

    def step(
        state: State, tokens: jax.Array, targets: jax.Array, rate: jax.Array, stop: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        params = state["params"]
        weights = _laid(jax.tree.map(lambda one: one.astype(dtype), params), weight_layout)
        found, slopes = summed(weights, tokens, targets)
        slopes = _laid(slopes, state_layout)
        updates, after = transform.update(slopes, state["optimizer"], params)
        updates = jax.tree.map(lambda one: rate * one, updates)
        metrics = {
            "loss": found,
            "grad_norm": optax.tree.norm(slopes),
            "stop": stop.max(),
        }
        new = {"step": state["step"] + 1, "params": optax.apply_updates(params, updates), "optimizer": after}
        return new, metrics

    return step


def _pipeline(order: Order, mesh: Mesh) -> Pipeline | None:
    return Pipeline(mesh, order.plan.schedule, order.plan.virtual) if order.plan.pipe > 1 else None


def _layouts(order: Order, program: Program, mesh: Mesh) -> tuple[Any, Any]:
    """How weights lie between their uses, and how their state does."""
    rules, pipeline = meshes.rules_of(order.plan), _pipeline(order, mesh)
    found = (meshes.weight_shardings(program, mesh, rules), meshes.state_shardings(program, mesh, rules))
    return found if pipeline is None else tuple(layered(one, program, pipeline) for one in found)  # pyright: ignore[reportReturnType]


def _cost(order: Order, program: Program, numerics: Numerics, mesh: Mesh, dtype: Any) -> Callable[..., jax.Array]:
    """The loss of (weights, tokens [b, t], targets [b, t])."""
    rules, pipeline = meshes.rules_of(order.plan), _pipeline(order, mesh)
    pin, remat = named(meshes.pinned(mesh, rules)), remat_of(program, order.plan.remat)
    if pipeline is not None:
        inner = named(pinned_inside(mesh, rules))
        return pipelined_program_loss(pipeline, program, numerics, order.microbatches, pin, inner, remat, dtype)

    def cost(weights: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        return loss(forward(weights, program, tokens, numerics, pin, remat, dtype), targets)

    return cost


def _laid(tree: Any, layout: Any) -> Any:
    return jax.tree.map(jax.lax.with_sharding_constraint, tree, layout)
