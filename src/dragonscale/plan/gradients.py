"""The backward pass of a reading, derived line by line.

Every einsum C = A·B gives dA = dC·B and dB = A·dC, laid out like A and B. Partial gradients of one tensor are added
before they are reduced. A weight's gradient is a partial sum over every axis that splits the tokens and not the weight;
it is reduced to the layout of the optimizer's state. A frozen weight has no gradient, but its input has.
"""

import functools
from dataclasses import replace

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.notation.array import without
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.reader import MAX_READINGS, Lines, Reading, Walk, forward_lines
from dragonscale.plan.rules import TRAINING, Rules


def read_training(section: Section, rules: Rules) -> Reading:
    """All kernels and moves of a forward and a backward pass through a section; each section is read once."""
    cached = _READINGS.get((id(section), id(rules)))
    if cached is not None and cached.section is section and cached.rules is rules:
        return cached
    if len(_READINGS) > MAX_READINGS:
        _READINGS.clear()
    _READINGS[id(section), id(rules)] = reading = Reading(section, *_both_passes(section.ops, rules), rules)
    return reading


@functools.lru_cache(maxsize=MAX_READINGS)
def _both_passes(ops: tuple[Op, ...], rules: Rules) -> Lines:
    (kernels, moves), walk = forward_lines(ops, rules), Walk(rules, "backward")
    for walk.line, op in enumerate(ops):
        _READERS.get(op.function, _back_elementwise)(op, walk)
        if op.output is not None:
            walk.written[op.output.name] = walk.written.get(op.output.name, 0) + 1
    # gradients are reduced last: those of a weight that several ops use are added first
    for walk.line, op in enumerate(ops):
        for weight in _trained(op):
            _reduce(op, weight, walk)
    # looking up rows of an embedding and writing a KV cache are no kernels of training
    forward = [kernel for kernel in kernels if kernel.function not in ("lookup", "cache")]
    moves = tuple(replace(move, index=index) for index, move in enumerate((*moves, *walk.moves)))
    return (*forward, *walk.kernels), moves


# By the identity of section and rules: to hash and compare their contents takes longer than costing a section.
_READINGS: dict[tuple[int, int], Reading] = {}


def _gradient(array: Array) -> Array:
    return replace(array, name=f"d{array.name}")


def _trained(op: Op) -> tuple[Array, ...]:
    """The weights of an op that have gradients."""
    if op.frozen:
        return ()
    return op.weights


def _back_einsum(op: Op, walk: Walk) -> None:
    """C = A·B: dA = dC·B for every input (dgrad), then dB = A·dC for every weight that is trained (wgrad)."""
    assert op.output is not None
    rules, split = walk.rules, walk.rules.computing(op)
    output_gradient = rules.fit(_gradient(op.output).with_layout(split))
    walk.bring(rules.activation(_gradient(op.output)), output_gradient, op)
    local = {array.name: rules.for_line(array, rules.at_rest(array), op) for array in (*op.inputs, *op.weights)}
    for array in op.weights:
        walk.bring(rules.weight(array), local[array.name], op, "weight")
    for array in op.inputs:
        others = tuple(other for name, other in local.items() if name != array.name)
        # dA sums over the indices that A lacks: a partial sum over the axes that split them
        contracted = set(op.einsum.indices) - set(array.names)
        summed = tuple(axis for name, axes in split.items() if name in contracted for axis in axes)
        partial = rules.fit(_gradient(array).with_layout(split, summed))
        walk.bring(partial, rules.activation(_gradient(array)), op)
        walk.run(op, "matmul", (output_gradient, *others, partial), "dgrad")
        if _trained(op):  # whose gradients need the input as the forward pass used it
            walk.bring(rules.activation(array), local[array.name], op)
    for array in _trained(op):
        others = tuple(other for name, other in local.items() if name != array.name)
        walk.run(op, "matmul", (*others, output_gradient, local[array.name]), "wgrad")


def _back_attention(op: Op, walk: Walk) -> None:
    """Keys and values are gathered once more, and their gradients are scattered back. With Ulysses, the inputs are
    saved in the layout of attention; the result's gradient is brought to it, and the inputs' gradients back from it."""
    rules = walk.rules
    if rules.trades and op.output is not None:
        walk.bring(rules.activation(_gradient(op.output)), rules.attending(_gradient(op.output)), op)
    for array in op.inputs:
        rest, attending = rules.activation(array), rules.attending(array)
        # an axis that gathered the keys leaves each chip with the gradient from its own queries
        summed = without(rest.axes, attending.axes)
        partial = replace(_gradient(attending), partial=summed)
        if rules.trades:
            walk.bring(partial, _gradient(rest), op)
        elif "s" in array.names:
            walk.bring(rest, attending, op, ring=rules.ring)
            walk.bring(partial, _gradient(rest), op, ring=rules.ring)
    arrays = tuple(rules.attending(array) for array in (*op.inputs, op.output) if array is not None)
    walk.run(op, op.function, arrays, "dgrad")


def _back_routing(op: Op, walk: Walk) -> None:
    """Gradients travel like the tensors that they are of: to the experts for a dispatch, back for a combine."""
    is_dispatch = op.function == "dispatch"
    array = op.output if is_dispatch else op.inputs[0]
    assert array is not None
    routed = walk.rules.activation(array)
    home = walk.rules.home(routed)
    before, after = (home, routed) if is_dispatch else (routed, home)
    walk.move(op.part, "expert", Step("all_to_all", walk.rules.exchange, _gradient(before), _gradient(after)))
    walk.run(op, op.function, (routed, routed), "dgrad")


def _back_lookup(op: Op, walk: Walk) -> None:
    if op.frozen or op.output is None:
        return
    rows = _gradient(walk.rules.looked_up(op.output))
    walk.bring(walk.rules.activation(_gradient(op.output)), replace(rows, partial=()), op)


def _back_join(op: Op, walk: Walk) -> None:
    assert op.output is not None
    rules, out = walk.rules, walk.rules.activation(op.output)
    for array in op.inputs:
        joined = rules.for_line(array, array, op)
        summed = without(out.axes, joined.axes)  # an input without heads was copied to all chips that split them
        walk.bring(replace(_gradient(joined), partial=summed), _gradient(rules.activation(array)), op)
    _back_elementwise(op, walk)


def _back_elementwise(op: Op, walk: Walk) -> None:
    if op.output is None or op.function == "cache":
        return
    # an array without a batch is too small to count
    arrays = tuple(walk.rules.activation(array) for array in (*op.inputs, op.output) if "b" in array.names)
    walk.run(op, op.function, arrays, "dgrad")


_READERS = {
    "einsum": _back_einsum,
    "lookup": _back_lookup,
    "join": _back_join,
    "attend": _back_attention,
    "score": _back_attention,
    "dispatch": _back_routing,
    "combine": _back_routing,
}


def _reduce(op: Op, weight: Array, walk: Walk) -> None:
    """A weight's gradient to the layout of its optimizer state, and with ZeRO 1 and 2 the updated weight back to the
    layout that it is used in (ZeRO 3 gathers it anyway)."""
    rules = walk.rules
    if len(weight.dims) == 1 and not rules.sums_everywhere:
        return  # gradients of vectors travel in the same messages
    here, stored = rules.used(weight), rules.optimizer_state(weight)
    walk.phase = "gradient"
    if rules.sums_everywhere:
        _reduce_everywhere(op, here, stored, walk)
    else:
        split = {"b": rules.batch, "t": rules.tokens}
        if op.function == "einsum":
            split = rules.computing(op)
        # each chip has summed over its own tokens (b, t) and choices of experts (x)
        tokens = (*split.get("b", ()), *split.get("t", ()), *split.get("x", ()))
        walk.bring(replace(_gradient(here), partial=without(tokens, here.axes)), _gradient(stored), op, "gradient")
    if 1 <= rules.zero < 3:
        walk.phase = "update"
        walk.bring(stored, here, op, "weight")
    walk.phase = "backward"


def _reduce_everywhere(op: Op, here: Array, stored: Array, walk: Walk) -> None:
    """The gradient of a weight reduced over all axes; with ZeRO 3 it is first scattered over those that the weight was
    gathered over."""
    if walk.rules.zero == 3:
        shards = without(stored.axes, here.axes)
        walk.bring(replace(_gradient(here), partial=shards), _gradient(stored), op, "gradient")
        here = stored
    partial = without(TRAINING[1:], here.axes)  # stages of `pipe` have other weights
    walk.bring(replace(_gradient(here), partial=partial), _gradient(stored), op, "gradient")
