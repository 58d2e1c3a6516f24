"""The lines of MoE: routing, tokens to their experts, matmuls with them, and back.

Experts are split over the axes that the place names. Where a model has fewer experts than chips, each expert's hidden
dim is sliced over `tensor` instead: the rows that arrived on the chips of a slice are gathered for the matmuls that
widen, and the results added up and scattered by the one that narrows.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Dim
from dragonscale.physics.sharding.reshard_step import layout_of
from dragonscale.runtime import experts
from dragonscale.runtime.expert_exchange import Mixing, Return, Sending, boxed, capacity_for, even_rows, send
from dragonscale.runtime.experts import ExpertChoice, ExpertRows
from dragonscale.runtime.one_pass import Routed, SectionPass
from dragonscale.runtime.place import Place


def expert_matmul(op: Op, run: SectionPass) -> None:
    """Rows of tokens times their experts. Where experts are sliced, the rows of a slice's chips are gathered to widen
    and scattered to narrow; if all have the same rows, results are partial sums."""
    rows: ExpertRows = run.tensors[op.inputs[0].name]
    weight = op.weights[0]
    summed, made = (dim.axes for dim in run.used(weight, op).dims if not dim.select)
    assert run.routed is not None
    alike = not set(made or summed) & set(run.place.token_axes)  # the chips of a slice have the same rows
    if made and not alike:
        run.routed.wide = run.routed.wide or widened(rows, made)
        rows = run.routed.wide
    last = is_last(op, run.section)
    if (key := run.joined(op)) is None:
        done = experts.multiply(rows, run.weight(weight, op, rows.values.dtype), last)
    else:
        done = _part_of_joined(op, run, key, rows)
    if summed and not alike:
        done = narrowed(done, run.routed.rows, summed)
    elif summed and last:
        run.routed.partial = summed
    elif summed:
        done = done.having(jax.lax.psum(done.values, summed))
    run.put(op, done)


def _part_of_joined(op: Op, run: SectionPass, key: str, rows: ExpertRows) -> ExpertRows:
    """A line's part of one matmul with several weights of an expert side by side, computed by the first of them."""
    if key not in run.products:
        run.products[key] = experts.multiply(rows, run.weights[key])
    made: ExpertRows = run.products[key]
    parts = jnp.split(made.values, len(key.split("+")), -1)
    return made.having(parts[key.split("+").index(op.weights[0].name)])


def is_last(op: Op, section: Section) -> bool:
    """Whether the result of an expert matmul goes straight back to its tokens."""
    assert op.output is not None
    readers = [other for other in section.ops if op.output.name in (array.name for array in other.inputs)]
    return [other.function for other in readers] == ["combine"]


def route(op: Op, run: SectionPass) -> None:
    assert op.output is not None
    logits = run.operand(op.inputs[0], op)
    correction = next((run.weight(a, op) for a in op.weights if a.name == "w_score"), None)
    served = run.setting.mixing.few > 0
    if run.setting.balance or run.setting.watched:
        logits = _balanced(op, run, logits, correction)
    parts = run.parts.get(op.inputs[0].name) if served else None
    chosen = experts.choose(logits, run.section.dims["x"], run.numerics.routing, correction, served, parts)
    run.put(op, chosen)
    run.layouts[op.output.name] = run.held(op.inputs[0])


def _balanced(op: Op, run: SectionPass, logits: jax.Array, correction: jax.Array | None) -> jax.Array:
    """A router's logits [b, t, e], to whose gradient that of a balancing loss is added; the load of each expert is
    noted. Counts are of whole sequences, also of those that are split over chips."""
    place, setting, (batch, tokens, _) = run.place, run.setting, run.wanted(op.inputs[0], op).dims
    routing, count, each = run.numerics.routing, run.section.dims["e"], run.section.dims["x"]
    drawn = experts.choose(jax.lax.stop_gradient(logits), each, routing, correction).experts
    counts = (drawn[..., None] == jnp.arange(count)).sum((1, 2)).astype(jnp.float32)
    counts = jax.lax.psum(counts, tokens.axes) if tokens.axes else counts
    copies = place.ways(tuple(axis for axis in place.sizes if axis not in (*batch.axes, *tokens.axes, "pipe")))
    ways = place.ways(tokens.axes)
    run.load = counts.sum(0) / (copies * ways) if setting.watched else None
    if not setting.balance:
        return logits
    length = logits.shape[1] * ways
    return experts.balanced(logits, counts * (setting.balance * count / (each * length * copies)), routing.score)


def dispatch(op: Op, run: SectionPass) -> None:
    place = run.place
    x, chosen = run.operand(op.inputs[0], op), run.tensors[op.inputs[1].name]
    own = run.held(op.inputs[0]).dims[1].axes
    spread = place.token_axes[len(own) :]  # what experts' tokens are split by beyond their own
    x, chosen = jax.tree.map(lambda each: place.part(each, 1, spread), (x, chosen))
    if gathered := place.gathered_axes:
        x, chosen = jax.tree.map(lambda e: jax.lax.all_gather(e, gathered, axis=0, tiled=True), (x, chosen))
    if _by_slots(run, chosen):
        count = run.section.dims["e"] // place.ways(place.picked_axes)
        first = place.index(place.picked_axes) * count
        rows = experts.slotted(x, chosen, count, first, whole=not place.picked_axes)
        run.routed = Routed(chosen, rows, None)
        return run.put(op, rows)
    height, stay = _tile_height(run, chosen.experts.size), not (place.expert_axes or place.picked_axes)
    rows, way = to_experts(
        x, chosen, run.section.dims["e"], place.expert_axes, run.setting.mixing, height if stay else 0
    )
    rows = own_experts(rows, place, place.picked_axes)
    run.routed = Routed(chosen, rows, way)
    return run.put(op, rows if stay or not height else experts.into_tiles(rows, height))


def _by_slots(run: SectionPass, chosen: ExpertChoice) -> bool:
    """Whether tokens are so few that every chosen expert multiplies all of them, and stay on this chip."""
    place, few = run.place, run.setting.mixing.few
    away = place.expert_axes or place.token_axes or place.gathered_axes
    return not away and chosen.weights[..., 0].size <= few and _whole(run, 64)


def _tile_height(run: SectionPass, rows: int) -> int:
    """Rows of the tiles that experts' rows lie in, of so many on a chip as a rule; 0 where no kernel takes tiles, or
    the chips of a slice of experts have rows of their own."""
    place, count = run.place, run.section.dims["e"]
    if not experts.has_kernel() or run.setting.dtype != jnp.bfloat16 or run.setting.mixing.capacity is not None:
        return 0
    sliced = any(dim.axes for dim in _matrix_dims(run))
    if not _whole(run, experts.WHOLE_BLOCKS) or (sliced and place.token_axes):
        return 0
    here = count // place.ways((*place.expert_axes, *place.picked_axes))
    return experts.tile_height(rows // place.ways(place.picked_axes), here)


def _matrix_dims(run: SectionPass) -> list[Dim]:
    """The dims of experts' matrices as they are used."""
    matmuls = [op for op in run.section.ops if any(dim.select for array in op.weights for dim in array.dims)]
    return [dim for op in matmuls for dim in run.used(op.weights[0], op).dims[1:]]


def _whole(run: SectionPass, block: int) -> bool:
    """Whether both dims of experts' matrices are multiples of a block."""
    return all(run.local_size(dim.name, dim.axes) % block == 0 for dim in _matrix_dims(run))


def combine(op: Op, run: SectionPass) -> None:
    assert op.output is not None
    assert run.routed is not None
    place, routed = run.place, run.routed
    done = run.tensors[op.inputs[0].name]
    if done.tiles is not None and routed.rows.tiles is None:
        done = experts.out_of_tiles(done, routed.rows)
    done = done if done.slots is not None else among_all(done, place, place.picked_axes)
    made = from_experts(done, routed.way, routed.chosen)
    made = made if run.setting.dtype is None else made.astype(run.setting.dtype)
    rest = run.at_rest(op.output)
    layout = {dim.name: place.token_axes if dim.name == "t" else dim.axes for dim in rest.dims}
    if place.gathered_axes:
        layout["b"] = ()
    found = rest.with_layout(layout, (*place.picked_axes, *routed.partial))
    if place.gathered_axes:  # everybody has everybody's tokens: each keeps its own
        home = rest.with_layout(layout_of(rest), tuple(a for a in found.partial if a not in place.gathered_axes))
        made, found = place.bring(made, found, home), home
    run.put(op, made, found)
    if done.slots is not None and not found.partial:
        run.parts[op.output.name] = done.weighted().values


def to_experts(
    x: jax.Array, chosen: ExpertChoice, count: int, axes: tuple[str, ...], how: Mixing, height: int = 0
) -> tuple[ExpertRows, Return | None]:
    """[b, t, d] of this chip's tokens as rows at the chips of their experts, and the way home; in tiles of `height`
    rows where they stay on this chip."""
    rows = experts.dispatch(x, chosen, count, height)
    room = None if how.capacity is None else capacity_for(rows.values.shape[0], count, how.capacity)
    if axes:
        return send(rows, count, axes, Sending(room, native=how.native))
    return (rows, None) if room is None else boxed(rows, count, room)


def from_experts(done: ExpertRows, way: Return | None, chosen: ExpertChoice) -> jax.Array:
    """Their results, weighted and added up at the tokens: [b, t, d]."""
    return experts.combine(done if way is None else way(done), chosen)


def _in_boxes(rows: ExpertRows, count: int, change: Callable[[jax.Array], jax.Array]) -> ExpertRows:
    """Even rows, and their weights, changed as [expert, row, …] into those of `count` experts."""

    def changed(x: jax.Array) -> jax.Array:
        return change(x.reshape(rows.sizes.size, -1, *x.shape[1:])).reshape(-1, *x.shape[1:])

    return even_rows(changed(rows.values), count, None if rows.scale is None else changed(rows.scale))


def own_experts(rows: ExpertRows, place: Place, axes: tuple[str, ...]) -> ExpertRows:
    """The rows of this chip's experts along `axes`: of rows with the same room for every expert those alone, of others
    all of them with this chip's own in front, which are the only ones that belong to an expert."""
    if not axes:
        return rows
    count = rows.sizes.size // place.ways(axes)
    if rows.even:
        return _in_boxes(rows, count, lambda boxes: place.part(boxes, 0, axes))
    first = place.index(axes) * count
    shift = jnp.where(jnp.arange(rows.sizes.size) < first, rows.sizes, 0).sum()
    parts = (rows.values, rows.experts - first, rows.order, rows.scale)
    values, numbers, order, scale = jax.tree.map(lambda each: jnp.roll(each, -shift, 0), parts)
    own = jnp.clip(numbers, 0, count - 1)  # of rows that are not this chip's, any: what they give is left out
    return ExpertRows(values, place.part(rows.sizes, 0, axes), own, order, scale, shift)


def among_all(done: ExpertRows, place: Place, axes: tuple[str, ...]) -> ExpertRows:
    """Results of this chip's experts in their place among all, with zeros for the others'."""
    if not axes:
        return done
    if not done.even:
        assert done.shift is not None
        done, shift = done.weighted(), done.shift
        mine = (jnp.arange(done.values.shape[0]) < done.sizes.sum())[:, None]
        back = partial(jnp.roll, shift=shift, axis=0)
        return replace(done, values=back(jnp.where(mine, done.values, 0)), order=back(done.order))
    count = done.sizes.size * place.ways(axes)

    def put(boxes: jax.Array) -> jax.Array:
        empty = jnp.zeros((count, *boxes.shape[1:]), boxes.dtype)
        return jax.lax.dynamic_update_slice_in_dim(empty, boxes, place.index(axes) * done.sizes.size, 0)

    return _in_boxes(done.weighted(), count, put)


def widened(rows: ExpertRows, axes: tuple[str, ...]) -> ExpertRows:
    """The rows of all chips along `axes`, sorted by expert."""
    if not axes:
        return rows
    if rows.even:
        return _in_boxes(rows, rows.sizes.size, lambda boxes: jax.lax.all_gather(boxes, axes, axis=1, tiled=True))
    parts = (rows.values, rows.experts, rows.scale)
    values, numbers, scale = jax.tree.map(lambda each: jax.lax.all_gather(each, axes, axis=0, tiled=True), parts)
    order = jnp.argsort(numbers, stable=True)
    sizes = jax.lax.psum(rows.sizes, axes)
    return ExpertRows(values[order], sizes, numbers[order], order, None if scale is None else scale[order])


def narrowed(done: ExpertRows, before: ExpertRows, axes: tuple[str, ...]) -> ExpertRows:
    """Partial results of widened rows, added up at the chips that the rows came from."""
    if not axes:
        return done
    width = done.values.shape[-1]
    if done.even:
        boxes = done.values.reshape(done.sizes.size, -1, width)
        values = jax.lax.psum_scatter(boxes, axes, scatter_dimension=1, tiled=True).reshape(-1, width)
    else:
        unsorted = jnp.zeros_like(done.values).at[done.order].set(done.values)
        values = jax.lax.psum_scatter(unsorted, axes, scatter_dimension=0, tiled=True)
    return replace(before, values=values, scale=None if done.scale is None else before.scale)
