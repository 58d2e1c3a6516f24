"""The loss and gradients of a plan's step, as every chip computes its part of them inside one `jax.shard_map`.

Weights come as their master copies in fp32, split as the plan splits optimizer state, and the gradients go back the
same way. Under ZeRO-3 each layer casts and gathers its weights where it uses them; else the compute copy is made once a
step. Gradients are added up over microbatches in fp32. ZeRO-3 scatters them in the compute type as they are found (the
gathers' own transposes); the rest of their sum, over replicas, is made once a step in fp32, and so is all of it below
ZeRO-2.

What is differentiated is the sum over all chips (`runtime.place`), so a gradient is whole once it is added up over
every axis along which chips hold the same block of its weight.

The plan's remat policy as JAX's: which named tensors of a layer are kept for the backward pass.

Every tensor of a program has a name, and the planner says which of them a policy keeps (`models.activations`). The same
names mark the values in JAX where they rest, so that what is kept is what was counted (a name that two lines make, such
as a query before and after its norm, is kept twice). `none` too keeps just the tensors that some gradient reads: what
lies between two of them is elementwise and cheap to compute again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable, checkpoint_name
from jax.sharding import Mesh, PartitionSpec

from dragonscale.models.activations import saved_tensors
from dragonscale.models.program import Program
from dragonscale.physics.notation import Array
from dragonscale.physics.notation.array import Dim
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.forward import Remats, forward_and_loads, losses
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.packed import Packed
from dragonscale.runtime.parameters import Weight, merged, parted, weights_of
from dragonscale.runtime.pipeline import Pipeline, arranged, pipelined_layers, pipelined_sum
from dragonscale.runtime.place import BATCH, Place, place_of
from dragonscale.runtime.scopes import weight_scope
from dragonscale.runtime.train.rewarded import Rewarded, goals
from dragonscale.runtime.train.settings import Order
from dragonscale.training.plan.plan import Plan, layer_policies, layers_of

_KEPT = ("dot_product_attention_fwd", "dot_product_attention_fwd_wrapper")
"""What has no name of its own: the sums that a flash kernel hands to its gradient."""
_ENTRY = "entry"
"""The name of a layer's input where it is sent."""


def remat_of(program: Program, policy: str, sent: bool = False) -> Callable[[Any], Any]:
    """What to wrap a layer in. Weights and activations gathered for a line are never kept: they are gathered again.
    What is `sent` lies in the host's memory until the backward pass, the layer's input too."""
    layers = [section for section in program.sections if section.name in program.order and policy != "block"]
    names = {array.name for section in layers for array in saved_tensors(section, policy)} | {_ENTRY}
    there = Offloadable("device", "pinned_host") if sent else True

    def keep(prim: Any, *_: Any, **settings: Any) -> Any:
        kept = settings["name"] in names if prim.name == "name" else policy != "block" and prim.name in _KEPT
        return there if kept else False

    def wrapped(layer: Any) -> Any:
        own = (lambda entry, *rest: layer(checkpoint_name(entry, _ENTRY), *rest)) if sent else layer
        return jax.checkpoint(own, policy=keep, prevent_cse=False)

    return wrapped


def remats_of(program: Program, plan: Plan) -> Remats:
    """The same for a whole model: of `remat=block:5`, the first five layers of it are recomputed whole; under
    `remat=offload` all are, from inputs in the host's memory; of `offload=activations:5` the first five send there
    what they keep."""
    first, every = (layer_policies(plan.remat)[::-1] * 2)[:2]
    if plan.remat == "offload":
        return ((1.0, remat_of(program, "block", sent=True)),)
    some = min(max(layers_of(plan.remat), layers_of(plan.offload)), len(program.order)) / len(program.order)
    begin = ((some, remat_of(program, first, sent=layers_of(plan.offload) > 0)),) if some else ()
    return (*begin, (1.0, remat_of(program, every)))


Statistics = dict[str, jax.Array]
DTYPES = {"bf16": jnp.bfloat16, "fp32": jnp.float32, "fp8": jnp.bfloat16}
"""What is computed in; of fp8, all but the matmuls of layers."""


@dataclass(frozen=True)
class Leaf:
    """A weight's layouts on one chip: its `state`, as it lies between uses (`rest`), and its gradient before it is
    reduced (a frozen one has none, and its state is as it rests). Stacks of layers have leading dims; a pipeline's are
    split over its axis. `scope` is where profiles have the work on it."""

    state: Array
    rest: Array
    raw: Array
    scope: str


def step_gradients(
    order: Order, program: Program, numerics: Numerics, mesh: Mesh, mixing: Mixing | None = None, watched: bool = False
) -> Callable[..., tuple[Statistics, Any]]:
    """The mean `loss` and its gradients: of (params, tokens [passes, b, t], targets). Tokens [passes, b, t, 2] have
    beside each the position where its document begins, before which it sees nothing. Of experts that are `watched`,
    what `expert_statistics` says stands beside the loss."""
    place = place_of(order.plan, program, mesh)
    plan = order.plan
    pipeline = Pipeline(mesh, plan.schedule, plan.virtual, plan.layout) if plan.pipe > 1 else None
    leaves, specs = layouts(program, place, pipeline)
    share = mixing or Mixing(order.run.capacity or None)
    one = place.ways(("tensor",)) if pipeline else 1 / (order.run.batch // order.passes * order.run.seq)
    setting = PassSetting(
        numerics,
        DTYPES[order.run.dtype],
        place,
        share,
        checkpoint_name,
        adapters=order.adapter_scale,
        balance=order.run.balance * one,
        watched=watched and pipeline is None,
        fp8=order.run.dtype == "fp8",
    )
    cost = _cost(order, program, setting, pipeline)
    part = (lambda tree: (tree, {})) if pipeline else partial(parted, program=program)
    summed = _summed(order, place, leaves, cost, part)
    takes, gives = (specs, BATCH, BATCH), (PartitionSpec(), part(specs)[0])
    local = jax.shard_map(summed, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)
    if pipeline is None:
        return local

    def piped(params: Any, tokens: jax.Array, targets: jax.Array) -> tuple[Statistics, Any]:
        tree, pull = jax.vjp(lambda params: arranged(params, program, pipeline), params)
        found, slopes = local(tree, tokens, targets)
        return found, pull(slopes)[0]

    return piped


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Leaf)


def layouts(program: Program, place: Place, pipeline: Pipeline | None) -> tuple[Any, Any]:
    """The layouts of every weight, and how its state is split over the mesh."""
    leaves = _leaves(program, place, pipeline)
    return leaves, jax.tree.map(lambda leaf: to_partition_spec(leaf.state), leaves, is_leaf=_is_leaf)


def at_rest(order: Order, place: Place, leaves: Any, tree: Any) -> Any:
    """Weights as they lie between uses: under ZeRO-3 as the state does, else in the compute type, brought together."""

    def ready(leaf: Leaf, value: Any) -> Any:
        with jax.named_scope(leaf.scope):
            if order.plan.zero == 3 or isinstance(value, Packed):
                return value
            return place.bring(value.astype(DTYPES[order.run.dtype]), leaf.state, leaf.rest)

    return jax.tree.map(ready, leaves, tree, is_leaf=_is_leaf)


def _leaves(program: Program, place: Place, pipeline: Pipeline | None) -> Any:
    """The layouts of every weight, in the shape of the tree that the chips take."""
    sections = {section.name: section for section in program.sections}

    def leaf(name: str, weight: Weight, lead: tuple[tuple[str, ...], ...]) -> Leaf:
        array, dims, rules = weight.array, sections[name].dims, place.rules
        front = tuple(Dim(f"l{place}", None, axes) for place, axes in enumerate(lead))
        kept = rules.optimizer_state(array) if weight.trained else rules.weight(array)
        laid = (place.fit(each, dims) for each in (kept, rules.weight(array)))
        state, rest = (replace(each, dims=(*front, *each.dims)) for each in laid)
        partial = tuple(axis for axis in place.sizes if axis not in rest.axes)
        return Leaf(state, rest, replace(rest, partial=partial), weight_scope(sections[name], array.name))

    found = weights_of(program)

    def all_of(name: str, lead: tuple[tuple[str, ...], ...] | None = None) -> dict[str, Leaf]:
        weights = found[name].items()
        return {own: leaf(name, each, ((),) * each.stacked if lead is None else lead) for own, each in weights}

    if pipeline is None:
        return {name: all_of(name) for name in found}
    parts = pipelined_layers(program, pipeline)
    inside = ((), (pipeline.axis,), ())
    return {
        "embed": all_of("embed"),
        "before": [[all_of(name) for name in each.pattern] for each in parts.before],
        "inside": [all_of(name, inside) for name in parts.inside.pattern],
        "after": [[all_of(name) for name in each.pattern] for each in parts.after],
        "head": all_of("head"),
    }


def expert_statistics(loads: list[jax.Array]) -> Statistics:
    """Of how many tokens chose each expert, [layers, e]: the busiest expert of any layer over an even share, and the
    part of all experts that none chose."""
    if not loads:
        return {}
    busiest = [(each.max(-1) / each.mean(-1)).max() for each in loads]
    idle = [(each == 0).mean() for each in loads]
    return {"busiest_expert": jnp.stack(busiest).max(), "idle_experts": jnp.stack(idle).mean()}


def _cost(order: Order, program: Program, setting: PassSetting, pipeline: Pipeline | None) -> Callable[..., Any]:
    """One chip's share of the mean loss of a pass: of (weights, tokens [b, t], targets), such that the sum over all
    chips is the mean; and the loads of experts."""
    place, run = setting.place, order.run
    split = place.vocabulary(program)
    share = run.batch // order.passes * run.seq * place.ways(("tensor",))
    if pipeline is not None:
        remat = remat_of(program, order.plan.remat)
        total = pipelined_sum(pipeline, program, setting, order.microbatches, run.seq, split, remat)

        def piped(weights: Any, tokens: jax.Array, targets: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
            own = {**weights, "inside": jax.tree.map(lambda leaf: leaf[:, 0], weights["inside"])}
            found = total(own, tokens, targets)
            with jax.named_scope("loss"):
                return found / share, []

        return piped

    remats = remats_of(program, order.plan)

    def cost(weights: Any, tokens: jax.Array, targets: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        apart = replace(setting, begins=tokens[..., 1]) if tokens.ndim > 2 else setting
        own = tokens[..., 0] if tokens.ndim > 2 else tokens
        logits, loads = forward_and_loads(weights, program, own, apart, run.seq, remats)
        found = losses(logits, goals(targets), place, split)
        with jax.named_scope("loss"):
            return (targets.objective(found) if isinstance(targets, Rewarded) else found).sum() / share, loads

    return cost


def _summed(
    order: Order, place: Place, leaves: Any, cost: Callable[..., Any], part: Callable[[Any], tuple[Any, Any]]
) -> Callable[..., tuple[Statistics, Any]]:
    """The mean over passes, of (params, tokens, targets), with gradients of the trained ones (the first `part` of a
    tree) in the layout of the state."""
    sharded, early = order.plan.zero == 3, order.plan.zero >= 2

    trained = part(leaves)[0]

    def reduced(leaf: Leaf, slope: jax.Array) -> jax.Array:
        with jax.named_scope(f"{leaf.scope}/gradient"):
            return place.bring(slope.astype(jnp.float32), leaf.raw, leaf.state)

    def wide(leaf: Leaf, slope: jax.Array) -> jax.Array:
        with jax.named_scope(f"{leaf.scope}/gradient"):
            return slope.astype(jnp.float32)

    def added(leaf: Leaf, total: jax.Array, more: jax.Array) -> jax.Array:
        with jax.named_scope(f"{leaf.scope}/gradient"):
            return jnp.add(total, more)

    def over(function: Any, *trees: Any) -> Any:
        return jax.tree.map(function, trained, *trees, is_leaf=_is_leaf)

    def gradients(weights: Any, tokens: jax.Array, targets: jax.Array) -> tuple[Any, Any]:
        own, rest = part(weights)
        costs = jax.value_and_grad(lambda own: cost(merged(own, rest) if rest else own, tokens, targets), has_aux=True)
        found, slopes = costs(own)
        slopes = over(wide, slopes)
        return found, over(reduced, slopes) if early and not sharded else slopes

    def summed(tree: Any, tokens: jax.Array, targets: jax.Array) -> tuple[Statistics, Any]:
        weights = at_rest(order, place, leaves, tree)

        def more(total: Any, pair: Any) -> tuple[Any, None]:
            found, slopes = gradients(weights, *pair)
            return (jax.tree.map(jnp.add, total[0], found), over(added, total[1], slopes)), None

        first = jax.tree.map(lambda one: one[0], (tokens, targets))
        if len(tokens) == 1:
            found, slopes = gradients(weights, *first)
        else:
            shapes = jax.eval_shape(gradients, weights, *first)
            zeros = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
            total, _ = jax.lax.scan(more, zeros, (tokens, targets))
            with jax.named_scope("optimizer/gradient"):
                found, slopes = jax.tree.map(lambda one: one / len(tokens), total)
        slopes = slopes if early and not sharded else over(reduced, slopes)
        axes = tuple(place.sizes)
        found, loads = jax.lax.psum(found, axes) if axes else found
        return {"loss": found, **expert_statistics(loads)}, slopes

    return summed
