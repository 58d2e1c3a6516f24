"""The lines of MoE: routing, tokens to their experts, matmuls with them, and back."""

import jax

from dragonscale.models.program import Op, Section
from dragonscale.physics.sharding.reshard_step import layout_of
from dragonscale.runtime import experts
from dragonscale.runtime.one_pass import Routed, SectionPass
from dragonscale.runtime.placed_experts import among_all, from_experts, narrowed, own_experts, to_experts, widened


def expert_matmul(op: Op, run: SectionPass) -> None:
    """Rows of tokens times their experts. Where experts are sliced, the rows of a slice's chips are gathered to widen
    and scattered to narrow; if all have the same rows, results are partial sums."""
    rows: experts.ExpertRows = run.tensors[op.inputs[0].name]
    weight = op.weights[0]
    summed, made = (dim.axes for dim in run.used(weight, op).dims if not dim.select)
    assert run.routed is not None
    alike = not set(made or summed) & set(run.place.token_axes)  # the chips of a slice have the same rows
    if made and not alike:
        run.routed.wide = run.routed.wide or widened(rows, made)
        rows = run.routed.wide
    last = _is_last(op, run.section)
    done = experts.multiply(rows.weighted() if last else rows, run.weight(weight, op, rows.values.dtype))
    if summed and not alike:
        done = narrowed(done, run.routed.rows, summed)
    elif summed and last:
        run.routed.partial = summed
    elif summed:
        done = done.having(jax.lax.psum(done.values, summed))
    run.put(op, done)


def _is_last(op: Op, section: Section) -> bool:
    """Whether the result of an expert matmul goes straight back to its tokens."""
    assert op.output is not None
    readers = [other for other in section.ops if op.output.name in (array.name for array in other.inputs)]
    return [other.function for other in readers] == ["combine"]


def route(op: Op, run: SectionPass) -> None:
    assert op.output is not None
    logits = run.operand(op.inputs[0], op)
    correction = next((run.weight(a, op) for a in op.weights if a.name == "w_score"), None)
    chosen = experts.choose(logits, run.section.dims["x"], run.numerics.routing, correction)
    run.put(op, chosen)
    run.layouts[op.output.name] = run.held(op.inputs[0])


def dispatch(op: Op, run: SectionPass) -> None:
    place = run.place
    x, chosen = run.operand(op.inputs[0], op), run.tensors[op.inputs[1].name]
    own = run.held(op.inputs[0]).dims[1].axes
    spread = place.token_axes[len(own) :]  # what experts' tokens are split by beyond their own
    x, chosen = jax.tree.map(lambda each: place.part(each, 1, spread), (x, chosen))
    if gathered := place.gathered_axes:
        x, chosen = jax.tree.map(lambda e: jax.lax.all_gather(e, gathered, axis=0, tiled=True), (x, chosen))
    rows, way = to_experts(x, chosen, run.section.dims["e"], place.expert_axes, run.setting.mixing)
    rows = own_experts(rows, place, place.picked_axes)
    run.routed = Routed(chosen, rows, way)
    run.put(op, rows)


def combine(op: Op, run: SectionPass) -> None:
    assert op.output is not None
    assert run.routed is not None
    place, routed = run.place, run.routed
    done = among_all(run.tensors[op.inputs[0].name], place, place.picked_axes)
    made = from_experts(done, routed.way, routed.chosen)
    rest = run.at_rest(op.output)
    layout = {dim.name: place.token_axes if dim.name == "t" else dim.axes for dim in rest.dims}
    if place.gathered_axes:
        layout["b"] = ()
    found = rest.with_layout(layout, (*place.picked_axes, *routed.partial))
    if place.gathered_axes:  # everybody has everybody's tokens: each keeps its own
        home = rest.with_layout(layout_of(rest), tuple(a for a in found.partial if a not in place.gathered_axes))
        made, found = place.bring(made, found, home), home
    run.put(op, made, found)
