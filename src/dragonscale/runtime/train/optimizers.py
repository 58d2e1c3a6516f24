"""The plan's optimizer, out of optax, and where each part of its state lies.

`adam` is AdamW with fp32 moments (8 bytes a parameter), `adam-bf16` keeps both moments in bf16 (4), `adam8` in 8 bits
(`train.adam8`: 2), `adafactor` sums of rows and columns, `muon` one momentum for the matrices of layers (AdamW for the
rest), `sgd` nothing: what the planner's memory counts. Norms and biases are never decayed. A state leaf that has its
weight's shape, or scales of it, lies as the plan puts that weight's state; everything else is small and copied.

Under Muon every matrix is made whole on one of the chips that hold its pieces, and orthogonalized there. The momentum
of a stack of layers (and experts) lies split as the plan splits its weights' state. The chips of a group share the
stack out: an AllToAll brings each of them whole matrices, in bf16, five Newton-Schulz iterations orthogonalize them,
and another AllToAll takes the pieces back. The planner counts the same (`dragonscale.training.cost.muon`). Left to the
compiler's partitioner, each product of the iteration would gather its matrices anew. What is no matrix of a layer
(embedding, head, vectors) is AdamW's.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from dragonscale.models.program import Program
from dragonscale.runtime.parameters import Shardings, Tree, weights_of
from dragonscale.runtime.train.adam8 import in_eight_bits
from dragonscale.runtime.train.settings import RunSettings
from dragonscale.training.cost.muon import ITERATIONS
from dragonscale.training.plan.optimizers import muon_weights

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan 2024): the slope at zero is as steep as can be."""
MOMENTUM = 0.95
RMS = 0.2
"""Updates have the root mean square that AdamW's have (Moonlight, Liu et al. 2025)."""


class MatrixStack(NamedTuple):
    """How a stack of matrices lies: the places of the dims that are rows and columns, the mesh axes of every dim, and
    the mesh."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    mesh: Mesh | AbstractMesh

    @property
    def group(self) -> tuple[str, ...]:
        """The axes that split the matrices themselves."""
        return tuple(axis for place in (*self.rows, *self.columns) for axis in self.axes[place])

    @property
    def lead(self) -> tuple[int, ...]:
        """Dims in front of the matrices: layers and experts."""
        return tuple(place for place in range(len(self.axes)) if place not in (*self.rows, *self.columns))


class Momentum(NamedTuple):
    """The optimizer's state of its matrices."""

    mu: Any


def muon(
    program: Program, states: Shardings, decay: float, decayed: Any, betas: tuple[float, float]
) -> optax.GradientTransformation:
    """Muon for the matrices of layers and AdamW for the rest, for a learning rate of one."""
    stacks = _stacks(program, states)
    kinds = {
        name: {own: "muon" if own in stacks[name] else "adam" for own in weights} for name, weights in states.items()
    }

    def init(params: Any) -> Momentum:
        return Momentum(jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Momentum]:
        del params
        mix = functools.partial(jax.tree.map, lambda old, new: MOMENTUM * old + (1 - MOMENTUM) * new)
        after = mix(state.mu, updates)

        def whole(path: tuple[Any, ...], slope: jax.Array) -> jax.Array:
            keys = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
            return orthogonalized(slope, stacks[keys[-2]][keys[-1]])

        return jax.tree_util.tree_map_with_path(whole, mix(after, updates)), Momentum(after)

    ours = optax.chain(
        optax.GradientTransformation(init, update), optax.add_decayed_weights(decay, decayed), optax.scale(-1.0)
    )
    return optax.partition({"muon": ours, "adam": optax.adamw(1.0, *betas, weight_decay=decay, mask=decayed)}, kinds)


def _stacks(program: Program, states: Shardings) -> dict[str, dict[str, MatrixStack]]:
    sections = {section.name: section for section in program.sections}
    found: dict[str, dict[str, MatrixStack]] = {}
    for name, weights in weights_of(program).items():
        found[name] = {}
        for weight in muon_weights(sections[name]):
            array, rows, columns = weight.array, weight.rows, weight.columns
            if array.name not in weights:
                continue
            places = {dim.name: place + 1 for place, dim in enumerate(array.dims)}
            sharding = states[name][array.name]
            spec = (*sharding.spec, *[None] * (len(array.dims) + 1 - len(sharding.spec)))
            axes = tuple(((part,) if isinstance(part, str) else tuple(part or ())) for part in spec)
            found[name][array.name] = MatrixStack(
                tuple(places[dim] for dim in rows), tuple(places[dim] for dim in columns), axes, sharding.mesh
            )
    return found


def orthogonalized(slope: jax.Array, stack: MatrixStack) -> jax.Array:
    """A stack of matrices, each with singular values near one, scaled to AdamW's root mean square;
    laid out as it came."""
    spec = PartitionSpec(*(part or None for part in stack.axes))
    local = jax.shard_map(
        lambda block: _on_chip(block, stack), mesh=stack.mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    high, wide = (math.prod(slope.shape[place] for place in places) for places in (stack.rows, stack.columns))
    return local(slope.astype(jnp.bfloat16)).astype(slope.dtype) * (RMS * max(high, wide) ** 0.5)


def _on_chip(block: jax.Array, stack: MatrixStack) -> jax.Array:
    """One chip's pieces of all matrices, as pieces of their orthogonalized forms."""
    order = (*stack.lead, *stack.rows, *stack.columns)
    laid = block.transpose(order)
    many = math.prod(laid.shape[: len(stack.lead)])
    pieces = laid.reshape(many, *laid.shape[len(stack.lead) :])
    own = _from_whole(newton_schulz(_to_whole(pieces, stack), len(stack.rows)), stack, many)
    return own.reshape(laid.shape).transpose(tuple(order.index(place) for place in range(len(order))))


def _ways(stack: MatrixStack) -> tuple[int, ...]:
    return tuple(stack.mesh.shape[axis] for axis in stack.group)


def _apart(stack: MatrixStack) -> list[int]:
    """The order that puts every axis of the group in front of the dim it splits; after it, dims of matrices are whole.
    Dims are the group's axes, the matrices, then their rows and columns."""
    count, order, axis = len(stack.group), [len(stack.group)], 0
    for number, place in enumerate((*stack.rows, *stack.columns)):
        split = len(stack.axes[place])
        order += [*range(axis, axis + split), count + 1 + number]
        axis += split
    return order


def _to_whole(pieces: jax.Array, stack: MatrixStack) -> jax.Array:
    """[matrices, piece…] to [own matrices, whole…]: padded so that every chip gets as many."""
    if not stack.group:
        return pieces
    ways = math.prod(_ways(stack))
    each = -(-pieces.shape[0] // ways)
    padded = jnp.pad(pieces, ((0, each * ways - pieces.shape[0]), *[(0, 0)] * (pieces.ndim - 1)))
    there = jax.lax.all_to_all(padded.reshape(ways, each, *pieces.shape[1:]), stack.group, 0, 0, tiled=True)
    spread = there.reshape(*_ways(stack), each, *pieces.shape[1:]).transpose(_apart(stack))
    sizes = [
        size * math.prod(stack.mesh.shape[axis] for axis in stack.axes[place])
        for size, place in zip(pieces.shape[1:], (*stack.rows, *stack.columns), strict=True)
    ]
    return spread.reshape(each, *sizes)


def _from_whole(whole: jax.Array, stack: MatrixStack, many: int) -> jax.Array:
    """The way back."""
    if not stack.group:
        return whole
    ways, order = math.prod(_ways(stack)), _apart(stack)
    split: list[int] = [whole.shape[0]]
    for size, place in zip(whole.shape[1:], (*stack.rows, *stack.columns), strict=True):
        parts = [stack.mesh.shape[axis] for axis in stack.axes[place]]
        split += [*parts, size // math.prod(parts)]
    spread = whole.reshape(split).transpose(tuple(order.index(place) for place in range(len(order))))
    piece = spread.shape[len(stack.group) + 1 :]
    back = jax.lax.all_to_all(spread.reshape(ways, whole.shape[0], *piece), stack.group, 0, 0, tiled=True)
    return back.reshape(ways * whole.shape[0], *piece)[:many]


def newton_schulz(whole: jax.Array, rows: int) -> jax.Array:
    """Matrices [number, rows…, columns…] with their singular values brought near one."""
    high = math.prod(whole.shape[1 : 1 + rows])
    x = whole.reshape(whole.shape[0], high, -1)
    tall = x.shape[1] > x.shape[2]
    x = x.swapaxes(1, 2) if tall else x
    norm = jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)), axis=(1, 2), keepdims=True))
    x = (x / (norm + 1e-7)).astype(whole.dtype)
    first, second, third = COEFFICIENTS
    for _ in range(ITERATIONS):
        square = jnp.einsum("zmn,zkn->zmk", x, x)
        x = first * x + jnp.einsum(
            "zmk,zkn->zmn", second * square + third * jnp.einsum("zmk,zkl->zml", square, square), x
        )
        x = x.astype(whole.dtype)
    return (x.swapaxes(1, 2) if tall else x).reshape(whole.shape)


BETAS = (0.9, 0.95)
"""As LLaMA and GPT-3 were trained. The second must not be much nearer to one for moments in bf16: a change of less than
1/256 is rounded away."""


def optimizer(kind: str, run: RunSettings, program: Program, states: Shardings) -> optax.GradientTransformation:
    """The transformation of gradients into updates for a learning rate of one; the step multiplies them by its own, so
    that a run with another schedule is the same compiled program. `states` says how each weight's state lies."""

    def decayed(params: Tree) -> Any:
        return {name: {own: own.startswith("W") for own in weights} for name, weights in params.items()}

    first, second = BETAS
    if kind == "adam":
        main = optax.adamw(1.0, first, second, weight_decay=run.weight_decay, mask=decayed)
    elif kind in ("adam-bf16", "adam8"):
        whole = optax.scale_by_adam(first, second)
        main = optax.chain(
            _narrow(whole) if kind == "adam-bf16" else in_eight_bits(whole, states),
            optax.add_decayed_weights(run.weight_decay, decayed),
            optax.scale(-1.0),
        )
    elif kind == "adafactor":
        main = optax.adafactor(
            1.0, multiply_by_parameter_scale=False, clipping_threshold=None, weight_decay_mask=decayed
        )
    elif kind == "muon":
        main = muon(program, states, run.weight_decay, decayed, BETAS)
    else:
        main = optax.sgd(1.0)
    return main


def clipping(run: RunSettings) -> optax.GradientTransformation:
    """What is done to gradients before."""
    return optax.clip_by_global_norm(run.clip) if run.clip else optax.identity()


def _narrow(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Moments kept in bf16 between steps, computed with in fp32."""

    def cast(state: Any, dtype: Any) -> Any:
        return state._replace(mu=optax.tree.cast(state.mu, dtype), nu=optax.tree.cast(state.nu, dtype))

    def init(params: Any) -> Any:
        return cast(inner.init(params), jnp.bfloat16)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        changed, after = inner.update(updates, cast(state, jnp.float32), params)
        return changed, cast(after, jnp.bfloat16)

    return optax.GradientTransformation(init, update)


def _is_scale(path: tuple[Any, ...]) -> bool:
    """Whether a leaf is the scales of a moment in 8 bits, whose blocks lie as the weight's numbers do."""
    return isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "scale"


def placed(state: Any, params: Tree, shardings: Shardings) -> Any:
    """A sharding for every leaf of an optimizer's (abstract) state."""
    whole = NamedSharding(jax.tree.leaves(shardings)[0].mesh, PartitionSpec())

    def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        keys = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        weight = params.get(keys[-2], {}).get(keys[-1]) if len(keys) > 1 else None
        if weight is None or (leaf.shape != weight.shape and not _is_scale(path)):
            return whole
        return shardings[keys[-2]][keys[-1]]

    return jax.tree_util.tree_map_with_path(of, state)
