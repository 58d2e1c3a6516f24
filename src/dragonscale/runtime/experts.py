"""Tokens to their experts and back, without padding and without dropping: sorted by expert, multiplied in groups.

A router's choice is a `ExpertChoice`: for every token the experts and their weights. `dispatch` sorts the rows of all
tokens by expert; matmuls with expert weights are `grouped_matmul`; `combine` puts the results back and adds them up.
The router's weights travel with the rows and are multiplied in before an expert's last matmul: a gradient then needs
what that matmul read, and not its result.

Of few tokens on a GPU every chosen expert multiplies all (`slotted`): reading its matrix is all that takes time.

Where a GPU has a kernel for it (`gpu_experts`), every expert's rows begin at a tile of its own, and moves to the tiles
and back are gathers, forward and backward.
"""

from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.program import Program
from dragonscale.runtime.numerics import Routing
from dragonscale.runtime.quantized import Quantized


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ExpertChoice:
    """[b, t, x] experts of each token, and their weights."""

    experts: jax.Array
    weights: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ExpertRows:
    """Rows sorted by expert: values [r, d], rows of each expert, the expert, the original place and the router's weight
    of each row (None once it is multiplied in). `shift` is how far uneven rows were rolled to have a chip's own experts
    first. Where every expert has the same number of rows whatever was chosen, they are `even`, and matmuls with them
    are plain ones. Rows in `tiles` have zeros between the experts, whose order is one beyond the last. With `slots` the
    values are all tokens [r, d], from the first matmul on [slot, r, f] and from the last on parts of their sum."""

    values: jax.Array
    sizes: jax.Array
    experts: jax.Array
    order: jax.Array
    scale: jax.Array | None = None
    shift: jax.Array | None = None
    tiles: "Tiles | None" = None
    slots: "Slots | None" = None
    even: bool = field(default=False, metadata={"static": True})

    def having(self, values: jax.Array) -> "ExpertRows":
        return replace(self, values=values)

    def weighted(self) -> "ExpertRows":
        """With the router's weights multiplied in."""
        if self.scale is None:
            return self
        return replace(self, values=self.values * self.scale[..., None].astype(self.values.dtype), scale=None)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """Where rows lie: each expert's first row and how many it has with the zeros behind them, the expert of each tile
    (-1: none), and the place of each row."""

    begins: jax.Array
    heights: jax.Array
    owner: jax.Array
    places: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slots:
    """The experts that few tokens chose: the expert of each slot, and how many slots have one ([1])."""

    owner: jax.Array
    count: jax.Array


NOBODY = -(2**30)
"""The owner of a slot that no expert has."""


def slotted(
    x: jax.Array, chosen: ExpertChoice, experts: int, first: jax.Array | int = 0, whole: bool = False
) -> ExpertRows:
    """All tokens for every expert that one of them chose, of `experts` from the `first` on (`whole`: these are all
    that there are): the router's weights are zero for the others. Nothing is sorted, no row is moved."""
    if whole and chosen.weights.size == chosen.weights.shape[-1]:  # a single token: its own experts have the slots
        owner, scale = chosen.experts.reshape(-1), chosen.weights.reshape(-1, 1)
        there = Slots(owner, jnp.full(1, owner.size, jnp.int32))
        return ExpertRows(x.reshape(1, -1), there.count, owner[:, None], owner, scale, slots=there)
    if jax.default_backend() == "gpu":
        from dragonscale.runtime.serve.gpu_routing import slots_of_few

        owner, count, scale = slots_of_few(chosen.experts, chosen.weights, experts, first)
        tokens = x.reshape(-1, x.shape[-1])
        return ExpertRows(tokens, count, owner[:, None], owner, scale, slots=Slots(owner, count))
    own = chosen.experts.reshape(-1, chosen.experts.shape[-1]) - first
    number = jnp.arange(experts, dtype=jnp.int32)
    present = (own[..., None] == number).any((0, 1))
    before = jnp.where(number[None] < number[:, None], present[None], 0).sum(1)
    slot = jnp.arange(min(experts, own.size), dtype=jnp.int32)[:, None]
    owner = jnp.where(present & (before == slot), number, NOBODY).max(1)
    weights = chosen.weights.reshape(own.shape)
    scale = jnp.where(own == owner[:, None, None], weights, 0).sum(2)
    slots = Slots(jnp.maximum(owner, 0), present.sum(dtype=jnp.int32)[None])
    return ExpertRows(x.reshape(-1, x.shape[-1]), present, owner[:, None], owner, scale, slots=slots)


def tiled(sizes: jax.Array, own: jax.Array, height: int) -> Tiles:
    """Tiles of `height` rows for rows sorted by expert, whose experts are `own`; those of none go beyond the last."""
    experts, count = sizes.size, own.size
    most = -(-(count + min(experts, count) * (height - 1)) // height)
    heights = -(-sizes // height) * height
    ends = jnp.cumsum(heights)
    begins = ends - heights
    number = jnp.arange(most, dtype=jnp.int32)
    owner = (ends[None] // height <= number[:, None]).sum(1, dtype=jnp.int32)
    shift = (begins - (jnp.cumsum(sizes) - sizes)).at[own].get(mode="fill", fill_value=most * height)
    places = (jnp.arange(count, dtype=jnp.int32) + shift).astype(jnp.int32)
    return Tiles(begins, heights, jnp.where(owner < experts, owner, -1), places)


def into_tiles(rows: ExpertRows, height: int) -> ExpertRows:
    """Rows sorted by expert, those of none behind them, in tiles."""
    count = rows.values.shape[0]
    number = jnp.arange(count, dtype=jnp.int32)
    own = (jnp.cumsum(rows.sizes)[None] <= number[:, None]).sum(1, dtype=jnp.int32)
    tiles = tiled(rows.sizes, own, height)
    room = tiles.owner.size * height
    source = jnp.full(room, count, jnp.int32).at[tiles.places].set(number, mode="drop")
    values: Any = moved(rows.values, source, tiles.places)
    scale: Any = None if rows.scale is None else moved(rows.scale[:, None], source, tiles.places)
    numbers = jnp.repeat(tiles.owner, height, total_repeat_length=room)
    return ExpertRows(values, rows.sizes, numbers, source, None if scale is None else scale[:, 0], tiles=tiles)


def out_of_tiles(done: ExpertRows, before: ExpertRows) -> ExpertRows:
    """Results as the rows lay before they were put in tiles, weighted; zeros where no expert has the row."""
    assert done.tiles is not None
    values: Any = moved(done.weighted().values, done.tiles.places, done.order)
    return replace(before, values=values, scale=None)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def moved(x: jax.Array, source: jax.Array, target: jax.Array, copies: int = 1) -> jax.Array:  # noqa: ARG001 (gradient's)
    """Rows of x [n / copies, …], each `copies` times, put where `source` [r] has their number of n (n: zeros there);
    `target` [n] has the place of each. Both ways are gathers: the gradient of one is the other."""
    return x.at[source // copies].get(mode="fill", fill_value=0)


def _moved_forward(x: jax.Array, source: jax.Array, target: jax.Array, copies: int) -> tuple[jax.Array, jax.Array]:
    return moved(x, source, target, copies), target


def _moved_backward(copies: int, target: jax.Array, slope: jax.Array) -> tuple[jax.Array, None, None]:
    back = slope.at[target].get(mode="fill", fill_value=0)
    if copies > 1:
        added = back.reshape(-1, copies, *back.shape[1:]).astype(jnp.float32).sum(1)
        back = added.astype(slope.dtype)
    return back, None, None


moved.defvjp(_moved_forward, _moved_backward)


@cache
def has_kernel() -> bool:
    """Whether this machine's GPUs are those that `gpu_experts` is for."""
    return jax.default_backend() == "gpu" and jax.devices()[0].compute_capability == "9.0"


WHOLE_BLOCKS = 128
"""Both dims of matrices that a kernel of `gpu_experts` takes are multiples of it."""


def expands(program: Program) -> bool:
    """Whether XLA spreads rows over all experts of a model here: it has no grouped matmul on GPUs."""
    dealt = [
        section.dims[dim.name]
        for section in program.sections
        for op in section.ops
        for array in op.weights
        if len(array.dims) > 2 and array.dims[0].select
        for dim in array.dims[1:]
    ]
    whole = has_kernel() and all(size % WHOLE_BLOCKS == 0 for size in dealt)
    return bool(dealt) and jax.default_backend() == "gpu" and not whole


def tile_height(rows: int, experts: int) -> int:
    """Rows of a tile: as few as a tensor core takes where experts have few rows each. With 64 rows for each of
    Qwen3-30B-A3B's experts a prompt takes 20.4 ms in tiles of 64 on an H200, 21.3 in tiles of 128, half of them zeros.
    """
    return 128 if rows >= 96 * experts else 64


def choose(
    logits: jax.Array,
    count: int,
    routing: Routing,
    correction: jax.Array | None = None,
    served: bool = False,
    parts: jax.Array | None = None,
) -> ExpertChoice:
    """The best `count` experts of each token by its router's logits [b, t, e]; `correction` is added for the choice
    only. For what is `served` a GPU has a kernel, without gradients; it takes logits as `parts` too."""
    if served and routing.groups == 1 and jax.default_backend() == "gpu":
        from dragonscale.runtime.serve.gpu_routing import choose_few

        return ExpertChoice(*choose_few(logits, count, routing, correction, parts))
    logits = logits.astype(jnp.float32)
    scores = jax.nn.sigmoid(logits) if routing.score == "sigmoid" else jax.nn.softmax(logits, -1)
    ranked = logits if routing.score == "after" else scores
    ranked = ranked if correction is None else ranked + correction
    if routing.groups > 1:
        ranked = _best_groups(ranked, routing)
    _, experts = jax.lax.top_k(ranked, count)
    if routing.score == "after":
        weights = jax.nn.softmax(jnp.take_along_axis(logits, experts, -1), -1)
    else:
        weights = jnp.take_along_axis(scores, experts, -1)
    if routing.normalise:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return ExpertChoice(experts, weights * routing.scale)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def balanced(logits: jax.Array, weights: jax.Array, score: str) -> jax.Array:  # noqa: ARG001 (gradient's)
    """A router's logits [b, t, e] as they are. Their gradient has that of a balancing loss added: of each token's
    probabilities, times the weights [b, e] of its sequence (how often each expert was chosen there), the sum."""
    return logits


def _balanced_backward(score: str, saved: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    logits, weights = saved

    def weighed(logits: jax.Array) -> jax.Array:
        wide = logits.astype(jnp.float32)
        shares = jax.nn.sigmoid(wide) if score == "sigmoid" else jax.nn.softmax(wide, -1)
        shares = shares / shares.sum(-1, keepdims=True)
        return (shares * weights[:, None]).sum()

    return (slope + jax.grad(weighed)(logits)).astype(slope.dtype), jnp.zeros_like(weights)


balanced.defvjp(lambda logits, weights, _: (logits, (logits, weights)), _balanced_backward)


def _best_groups(ranked: jax.Array, routing: Routing) -> jax.Array:
    """Only experts of the groups whose two best have the highest sum."""
    shape = ranked.shape
    grouped = ranked.reshape(*shape[:-1], routing.groups, -1)
    two, _ = jax.lax.top_k(grouped, 2)
    _, kept = jax.lax.top_k(two.sum(-1), routing.best_groups)
    allowed = jax.nn.one_hot(kept, routing.groups, dtype=bool).any(-2)
    return jnp.where(allowed[..., None], grouped, -jnp.inf).reshape(shape)


def dispatch(x: jax.Array, chosen: ExpertChoice, experts: int, height: int = 0) -> ExpertRows:
    """Every token's row once for each of its experts, sorted by expert; in tiles of `height` where that is given."""
    count = chosen.experts.shape[-1]
    flat = chosen.experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    sizes = jnp.bincount(flat, length=experts).astype(jnp.int32)
    tokens, weights = x.reshape(-1, x.shape[-1]), chosen.weights.reshape(-1)
    if not height:
        return ExpertRows(tokens[order // count], sizes, flat[order], order, weights[order])
    tiles = tiled(sizes, flat[order], height)
    room = tiles.owner.size * height
    source = jnp.full(room, flat.size, jnp.int32).at[tiles.places].set(order.astype(jnp.int32))
    target = jnp.zeros_like(source, shape=flat.shape).at[order].set(tiles.places)
    rows: Any = moved(tokens, source, target, count)
    scale: Any = moved(weights[:, None], source, target)
    own = jnp.repeat(tiles.owner, height, total_repeat_length=room)
    return ExpertRows(rows, sizes, own, source, scale[:, 0], tiles=replace(tiles, places=target))


def multiply(rows: ExpertRows, weight: jax.Array | Quantized, last: bool = False) -> ExpertRows:
    """Each expert's rows times its matrix: weight [e, d, f]. What goes straight back to tokens (`last`) has the
    router's weights multiplied in, and slots added up."""
    rows = rows.weighted() if last else rows
    if rows.slots is not None:
        return rows.having(slot_matmul(rows.values, weight, rows.slots, last))
    if isinstance(weight, Quantized):
        done = multiply(rows, _widened(weight.values, rows.values.dtype))
        return done.having((done.values * weight.scale[rows.experts]).astype(rows.values.dtype))
    weight = weight.astype(rows.values.dtype)
    if rows.tiles is not None:
        return rows.having(tile_matmul(rows.values, weight, rows.tiles))
    if not rows.even:
        most = EXPANDED if jax.default_backend() == "gpu" else None
        return rows.having(grouped_matmul(rows.values, weight, rows.sizes, most))
    boxes = rows.values.reshape(weight.shape[0], -1, weight.shape[1])
    return rows.having(jnp.einsum("erd,edf->erf", boxes, weight).reshape(-1, weight.shape[2]))


def _widened(values: jax.Array, dtype: Any) -> jax.Array:
    """All experts' integers for many tokens, as numbers where the kernels that come next have none for integers."""
    if not has_kernel():
        return values
    from dragonscale.runtime.serve.gpu_matmul import widened_ahead

    return widened_ahead(values, dtype)


def slot_matmul(x: jax.Array, weight: jax.Array | Quantized, slots: Slots, summed: bool) -> jax.Array:
    """[s, r, f] of tokens [r, d], or of each slot [s, r, d], times the matrices of the slots' experts; of what is to be
    `summed` over the slots maybe fewer parts than these, in fp32."""
    if jax.default_backend() == "gpu":
        from dragonscale.runtime.serve.gpu_slots import experts_of_few

        return experts_of_few(x, weight, slots.owner, slots.count, summed)
    there = (jnp.arange(slots.owner.size) < slots.count)[:, None, None]
    whole = weight.values * weight.scale[:, None] if isinstance(weight, Quantized) else weight
    own = jnp.where(there, whole[slots.owner], 0).astype(x.dtype)
    return jnp.einsum(f"{'s' * (x.ndim - 2)}rd,sdf->srf", x, own)


def tile_matmul(rows: jax.Array, weight: jax.Array, tiles: Tiles) -> jax.Array:
    """Rows in tiles times the matrix of each tile's expert."""
    if has_kernel():
        from dragonscale.runtime.gpu_experts import tiled_matmul

        return tiled_matmul(rows, weight, tiles.owner, tiles.begins, tiles.heights)
    blocks = rows.reshape(tiles.owner.size, -1, rows.shape[-1])
    return jnp.einsum("trd,tdf->trf", blocks, weight[tiles.owner]).reshape(rows.shape[0], -1)


EXPANDED = 2**31
"""Bytes of rows spread over all experts at a time. Qwen3-30B-A3B's first token after a prompt of 1,024 on an H200: 0.83
s with these, 1.28 s with 2**29, whose matmuls have too few rows to fill it, 0.74 s with all rows at once, which left no
room to compile in."""


def grouped_matmul(rows: jax.Array, weight: jax.Array, sizes: jax.Array, most: int | None = None) -> jax.Array:
    """Rows [r, d] sorted by expert, `sizes` of each, times the matrix of their expert: weight [e, d, f].

    XLA has no grouped kernel on GPUs: it writes every row once for each expert, zeros but for its own, and multiplies
    that by all matrices. Whole, those rows fill the memory (64 experts, 262,144 rows of 2,048: 69 GB), so they are made
    in parts of at most `most` bytes. (None: the backend multiplies rows by their own expert alone.)
    """
    count, spread = rows.shape[0], weight.shape[0] * max(weight.shape[1:]) * rows.dtype.itemsize
    parts = 1 if most is None else -(-count * spread // most)
    if parts <= 1:
        return jax.lax.ragged_dot(rows, weight, sizes)
    each = -(-count // parts)
    padded = jnp.pad(rows, ((0, each * parts - count), (0, 0))).reshape(parts, each, -1)
    ends = jnp.cumsum(sizes)

    def part(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        values, start = given
        inside = jnp.clip(ends - start, 0, each)  # where each expert's rows end, counted in this part
        return jax.lax.ragged_dot(values, weight, jnp.diff(inside, prepend=0))

    done = jax.lax.map(part, (padded, each * jnp.arange(parts, dtype=sizes.dtype)))
    return done.reshape(parts * each, -1)[:count]


def combine(rows: ExpertRows, chosen: ExpertChoice) -> jax.Array:
    """Results back at their tokens, weighted and added: [b, t, d]."""
    rows = rows.weighted()
    if rows.slots is not None:
        return rows.values.sum(0).reshape(*chosen.experts.shape[:-1], -1)
    if rows.tiles is not None:
        back: Any = moved(rows.values, rows.tiles.places, rows.order)
        return back.reshape(*chosen.experts.shape, -1).sum(2)
    back = jnp.zeros_like(rows.values).at[rows.order].set(rows.values)
    return back.reshape(*chosen.experts.shape, -1).sum(2)
