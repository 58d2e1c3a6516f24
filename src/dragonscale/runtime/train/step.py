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
from dragonscale.runtime.packed import BLOCK, TYPES, packed
from dragonscale.runtime.parameters import Shardings, Tree, abstract, initialise, merged, parted, shardings, weights_of
from dragonscale.runtime.place import BATCH, rules_of
from dragonscale.runtime.train.gradients import DTYPES, Statistics, step_gradients
from dragonscale.runtime.train.offload import fetched, on_host, streamed
from dragonscale.runtime.train.optimizers import clipping, optimizer, placed
from dragonscale.runtime.train.rewarded import goals
from dragonscale.runtime.train.settings import Order

State = dict[str, Any]
"""`step` (how many were done), `params` (those that are trained, in fp32) and `optimizer`; beside adapters the `frozen`
weights, which no step changes and no checkpoint holds."""


@dataclass(frozen=True)
class Trainer:
    """A plan's compiled parts: `start` makes a state from a seed, `start_from` from weights in the host's memory (and
    adapters from a seed);
    `step` takes a state, tokens and targets [passes, b, t], a learning rate and a stop flag of every device, and gives
    the next state and its metrics; `evaluate` gives the loss of (state, tokens, targets) alone; `shape` is the state
    without values, with the sharding of every leaf."""

    mesh: Mesh
    start: Callable[[int], State]
    start_from: Callable[[Tree, int], State]
    step: Callable[..., tuple[State, dict[str, jax.Array]]]
    evaluate: Callable[..., jax.Array]
    shape: State
    batch: NamedSharding
    flags: NamedSharding


def make_trainer(
    order: Order,
    program: Program,
    numerics: Numerics,
    mesh: Mesh,
    mixing: Mixing | None = None,
    masked: bool = False,
    watched: bool = False,
) -> Trainer:
    """Everything that the steps of an order need. `mixing` says how tokens reach experts (the order's capacity by
    default); where data is `masked`, targets that are negative are not learnt; of experts that are `watched` the
    metrics tell the load."""
    states, frozen = _states(order, program, mesh)
    every = merged(frozen, states)
    transform, clip = optimizer(order.plan.optimizer, order.run, program, states), clipping(order.run)

    def start(seed: jax.Array, given: Tree) -> State:
        own, rest = parted(merged(initialise(program, jax.random.key(seed)), given), program)
        state = {"step": jnp.zeros((), jnp.int32), "params": own, "optimizer": (clip.init(own), transform.init(own))}
        return state | ({"frozen": _packed(rest, program, frozen, order.tuning.frozen)} if order.tuning.rank else {})

    blank = jax.eval_shape(start, jax.ShapeDtypeStruct((), jnp.uint32), {})
    whole = NamedSharding(mesh, PartitionSpec())
    own = parted(abstract(program), program)[0]
    where = {"step": whole, "params": states, "optimizer": placed(blank["optimizer"], own, states)}
    where |= {"frozen": _alike(frozen, blank["frozen"])} if order.tuning.rank else {}
    away = order.plan.offload == "optimizer"
    where |= {name: on_host(where[name], blank[name]) for name in ("params", "optimizer") if away}
    shape = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), blank, where)
    batch = NamedSharding(mesh, BATCH)
    flags = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    gradients = step_gradients(order, program, numerics, mesh, mixing, watched)
    learnt, narrow = _over_learnt(gradients), DTYPES[order.run.dtype]

    def weights(state: State) -> Tree:
        return _weights(state | ({"params": fetched(program, state["params"], narrow)} if away else {}))

    step = jax.jit(
        _step(learnt if masked else gradients, weights, _update(transform, clip, program if away else None)),
        in_shardings=(where, batch, batch, whole, flags),
        out_shardings=(where, whole),
        donate_argnums=0,
        compiler_options=EXPERT_OPTIONS if _experts_on_gpu(program, mesh) else None,
    )
    make = jax.jit(start, out_shardings=where, compiler_options=_quick(mesh), donate_argnums=1)
    return Trainer(
        mesh,
        lambda seed: make(jnp.uint32(seed % 2**32), {}),
        lambda params, seed: make(jnp.uint32(seed % 2**32), jax.device_put(params, _alike(every, params))),
        step,
        jax.jit(  # its gradients are never computed: nothing reads them
            lambda state, *given: learnt(weights(state), *given)[0]["loss"],
            in_shardings=(where, batch, batch),
            out_shardings=whole,
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


def _over_learnt(gradients: Callable[..., tuple[Statistics, Any]]) -> Callable[..., tuple[Statistics, Any]]:
    """Of a mean over all tokens, whose losses are 0 where they are not learnt, that over those that are."""

    def scaled(params: Tree, tokens: jax.Array, targets: jax.Array) -> tuple[Statistics, Any]:
        learnt = goals(targets) >= 0
        share = learnt.size / jnp.maximum(learnt.sum(), 1)
        found, slopes = gradients(params, tokens, targets)
        return found | {"loss": found["loss"] * share}, jax.tree.map(lambda one: one * share, slopes)

    return scaled


def _step(
    gradients: Callable[..., tuple[Statistics, Any]], weights: Callable[[State], Tree], update: Callable[..., Any]
) -> Callable[..., tuple[State, dict[str, jax.Array]]]:
    def step(
        state: State, tokens: jax.Array, targets: jax.Array, rate: jax.Array, stop: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        found, slopes = gradients(weights(state), tokens, targets)
        with jax.named_scope("optimizer"):
            params, after = update(rate, slopes, state["optimizer"], state["params"])
            metrics = {**found, "grad_norm": optax.tree.norm(slopes), "stop": stop.max()}
        return state | {"step": state["step"] + 1, "params": params, "optimizer": after}, metrics

    return step


def _update(
    transform: optax.GradientTransformation, clip: optax.GradientTransformation, away: Program | None
) -> Callable[..., tuple[Tree, Any]]:
    """The next (weights, state) of (learning rate, gradients, state, weights); of a program whose state is `away`, in
    the host's memory."""

    def update(rate: jax.Array, slopes: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
        def alone(slopes: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
            updates, after = transform.update(slopes, state, params)
            return optax.apply_updates(params, jax.tree.map(lambda one: rate * one, updates)), after

        slopes, whole = clip.update(slopes, state[0], params)
        changed, after = (streamed(away, alone) if away else alone)(slopes, state[1], params)
        return changed, (whole, after)

    return update


def _weights(state: State) -> Tree:
    """All weights, trained and frozen."""
    return merged(state["params"], state["frozen"]) if "frozen" in state else state["params"]


def _packed(tree: Tree, program: Program, where: Shardings, kind: str) -> Tree:
    """Frozen weights in their format: those of matmuls in few bits, a layer at a time, where blocks lie whole on each
    chip."""
    if kind not in TYPES:
        return tree
    known = weights_of(program)

    def one(name: str, own: str, value: jax.Array) -> Any:
        last = where[name][own].shard_shape(value.shape)[-1]
        if not known[name][own].multiplied or last % BLOCK:
            return value
        return jax.lax.map(lambda layer: packed(layer, kind), value)

    return {name: {own: one(name, own, value) for own, value in weights.items()} for name, weights in tree.items()}


def _alike(where: Shardings, tree: Tree) -> Any:
    """The shardings of a tree's weights, both parts of a packed one alike."""
    return {
        name: {own: jax.tree.map(lambda _, at=where[name][own]: at, value) for own, value in weights.items()}
        for name, weights in tree.items()
    }


def _states(order: Order, program: Program, mesh: Mesh) -> tuple[Shardings, Shardings]:
    """How each trained weight's master copy and state lie, and the frozen weights; a pipeline's layers also over its
    axis, by layers where the stack divides and by another dim where it does not."""
    rules = rules_of(order.plan, program)
    found = parted(shardings(program, mesh, rules.optimizer_state), program)[0]
    frozen = parted(shardings(program, mesh, rules.weight), program)[1]
    if order.plan.pipe == 1:
        return found, frozen
    layers, shapes = {name: found[name] for name in dict.fromkeys(program.order)}, abstract(program)

    def piped(own: NamedSharding, leaf: Any) -> NamedSharding:
        for place, size in enumerate(leaf.shape):
            parts = list(own.spec) + [None] * (len(leaf.shape) - len(own.spec))
            axes = parts[place] or ()
            parts[place] = (*((axes,) if isinstance(axes, str) else axes), "pipe")
            if size % math.prod(mesh.shape[axis] for axis in parts[place]) == 0:
                return NamedSharding(mesh, PartitionSpec(*parts))
        return own

    return found | jax.tree.map(piped, layers, {name: shapes[name] for name in layers}), frozen
