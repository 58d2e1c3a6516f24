"""One step of training, compiled for a plan's mesh.

Weights and optimizer state are kept split as the plan splits them. `train.gradients` computes the loss and the
gradients, every chip its own part; the update is the same for every element, wherever it lies.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.models.program import Program
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import Tree, abstract, initialise, shardings
from dragonscale.runtime.place import BATCH, rules_of
from dragonscale.runtime.train.gradients import step_gradients
from dragonscale.runtime.train.optimizers import optimizer, placed
from dragonscale.runtime.train.settings import Order

State = dict[str, Any]
"""`step` (how many were done), `params` (fp32) and `optimizer`."""


@dataclass(frozen=True)
class Trainer:
    """A plan's compiled parts: `start` makes a state from a seed, `start_from` from weights in the host's memory;
    `step` takes a state, tokens and targets [passes, b, t], a learning rate and a stop flag of every device, and gives
    the next state and its metrics; `evaluate` gives the loss of (params, tokens, targets) alone; `shape` is the state
    without values, with the sharding of every leaf."""

    mesh: Mesh
    start: Callable[[int], State]
    start_from: Callable[[Tree], State]
    step: Callable[..., tuple[State, dict[str, jax.Array]]]
    evaluate: Callable[..., jax.Array]
    shape: State
    batch: NamedSharding
    flags: NamedSharding


def make_trainer(
    order: Order, program: Program, numerics: Numerics, mesh: Mesh, mixing: Mixing | None = None, masked: bool = False
) -> Trainer:
    """Everything that the steps of an order need. `mixing` says how tokens reach experts (the order's capacity by
    default); where data is `masked`, targets that are negative are not learnt."""
    states = _states(order, program, mesh)
    transform = optimizer(order.plan.optimizer, order.run, program, states)

    def start(seed: jax.Array) -> State:
        return first(initialise(program, jax.random.key(seed)))

    def first(params: Tree) -> State:
        return {"step": jnp.zeros((), jnp.int32), "params": params, "optimizer": transform.init(params)}

    blank = jax.eval_shape(start, jax.ShapeDtypeStruct((), jnp.uint32))
    whole = NamedSharding(mesh, PartitionSpec())
    where = {"step": whole, "params": states, "optimizer": placed(blank["optimizer"], abstract(program), states)}
    shape = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), blank, where)
    batch = NamedSharding(mesh, BATCH)
    flags = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    gradients = step_gradients(order, program, numerics, mesh, mixing)
    learnt = _over_learnt(gradients)
    step = jax.jit(
        _step(learnt if masked else gradients, transform),
        in_shardings=(where, batch, batch, whole, flags),
        out_shardings=(where, whole),
        donate_argnums=0,
        compiler_options=EXPERT_OPTIONS if _experts_on_gpu(program, mesh) else None,
    )
    make = jax.jit(start, out_shardings=where, compiler_options=_quick(mesh))
    take = jax.jit(first, out_shardings=where, donate_argnums=0)
    return Trainer(
        mesh,
        lambda seed: make(jnp.uint32(seed % 2**32)),
        lambda params: take(jax.device_put(params, states)),
        step,
        jax.jit(  # its gradients are never computed: nothing reads them
            lambda *given: learnt(*given)[0], in_shardings=(states, batch, batch), out_shardings=whole
        ),
        shape,
        batch,
        flags,
    )


EXPERT_OPTIONS = {"xla_gpu_enable_dynamic_slice_fusion": False}
"""XLA fuses a kernel with the write of its result into a stack of layers, and runs it once more for other readers: of
three grouped matmuls in a forward pass two ran twice (Mixtral's step 10% slower on an H200)."""


def _experts_on_gpu(program: Program, mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform in ("gpu", "cuda") and any("e" in one.dims for one in program.sections)


def _quick(mesh: Mesh) -> dict[str, Any] | None:
    """The first weights are made once: on a CPU, compiling that well takes longer than running it."""
    return {"xla_backend_optimization_level": 0} if mesh.devices.flat[0].platform == "cpu" else None


def _over_learnt(gradients: Callable[..., tuple[jax.Array, Any]]) -> Callable[..., tuple[jax.Array, Any]]:
    """Of a mean over all tokens, whose losses are 0 where they are not learnt, that over those that are."""

    def scaled(params: Tree, tokens: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
        share = targets.size / jnp.maximum((targets >= 0).sum(), 1)
        return jax.tree.map(lambda one: one * share, gradients(params, tokens, targets))

    return scaled


def _step(
    gradients: Callable[..., tuple[jax.Array, Any]], transform: optax.GradientTransformation
) -> Callable[..., tuple[State, dict[str, jax.Array]]]:
    def step(
        state: State, tokens: jax.Array, targets: jax.Array, rate: jax.Array, stop: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        params = state["params"]
        found, slopes = gradients(params, tokens, targets)
        with jax.named_scope("optimizer"):
            updates, after = transform.update(slopes, state["optimizer"], params)
            updates = jax.tree.map(lambda one: rate * one, updates)
            metrics = {"loss": found, "grad_norm": optax.tree.norm(slopes), "stop": stop.max()}
            new = {"step": state["step"] + 1, "params": optax.apply_updates(params, updates), "optimizer": after}
        return new, metrics

    return step


def _states(order: Order, program: Program, mesh: Mesh) -> Any:
    """How each weight's master copy and state lie; a pipeline's layers also over its axis, by layers where the stack
    divides and by another dim where it does not."""
    found = shardings(program, mesh, rules_of(order.plan, program).optimizer_state)
    if order.plan.pipe == 1:
        return found
    layers, shapes = {name: found[name] for name in dict.fromkeys(program.order)}, abstract(program)

    def piped(own: NamedSharding, leaf: Any) -> NamedSharding:
        for place, size in enumerate(leaf.shape):
            parts = list(own.spec) + [None] * (len(leaf.shape) - len(own.spec))
            axes = parts[place] or ()
            parts[place] = (*((axes,) if isinstance(axes, str) else axes), "pipe")
            if size % math.prod(mesh.shape[axis] for axis in parts[place]) == 0:
                return NamedSharding(mesh, PartitionSpec(*parts))
        return own

    return found | jax.tree.map(piped, layers, {name: shapes[name] for name in layers})
