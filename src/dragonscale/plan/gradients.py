"""The backward pass of a reading, derived line by line.

Every einsum C = A·B gives dA = dC·B and dB = A·dC, laid out like A and B. Partial gradients of one tensor are added
before they are reduced; a weight's gradient is a partial sum over every axis that splits the tokens and not the weight,
and is reduced to where the optimizer keeps its state. A frozen weight has no gradient, but hands on that of its input.
"""

import functools
from dataclasses import replace

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.reader import MOST_READ, Lines, Reading, Walk, forward_lines
from dragonscale.plan.rules import TRAINING, Rules


def read_training(section: Section, rules: Rules) -> Reading:
    """All kernels and moves of a forward and a backward pass through a section; each section is read once."""
    last = _LAST.get((id(section), id(rules)))
    if last is not None and last.section is section and last.rules is rules:
        return last
    if len(_LAST) > MOST_READ:
        _LAST.clear()
    _LAST[id(section), id(rules)] = reading = Reading(section, *_both(section.ops, rules), rules)
    return reading


@functools.lru_cache(maxsize=MOST_READ)
def _both(ops: tuple[Op, ...], rules: Rules) -> Lines:
    (kernels, moves), walk = forward_lines(ops, rules), Walk(rules, "backward")
    for walk.line, op in enumerate(ops):
        _READERS.get(op.function, _back_elementwise)(op, walk)
        if op.output is not None:
            walk.written[op.output.name] = walk.written.get(op.output.name, 0) + 1
    for walk.line, op in enumerate(ops):
        for weight in op.weights if not op.frozen else ():
            _reduce(op, weight, walk)
    # A section whose embedding is looked up, or that remembers, has kernels that training does not run.
    run = (kernel for kernel in kernels if kernel.function not in ("lookup", "cache"))
    moves = tuple(replace(move, place=place) for place, move in enumerate((*moves, *walk.moves)))
    return (*run, *walk.kernels), moves


_LAST: dict[tuple[int, int], Reading] = {}
"""Readings by the very objects they are of: finding them by what these contain takes longer than costing a section."""


def _slope(array: Array) -> Array:
    return replace(array, name=f"d{array.name}")


def _back_einsum(op: Op, walk: Walk) -> None:
    assert op.output is not None
    rules, split = walk.rules, walk.rules.computing(op)
    upstream = _slope(op.output)
    here = rules.fit(upstream.with_layout(split))
    walk.bring(rules.activation(upstream), here, op)
    local = {array.name: rules.for_line(array, rules.at_rest(array), op) for array in (*op.inputs, *op.weights)}
    for array in op.weights:
        walk.bring(rules.weight(array), local[array.name], op, "weight")
    for array in op.inputs:
        others = tuple(other for name, other in local.items() if name != array.name)
        missing = [name for name in split if name not in array.names and name in op.einsum.indices]
        summed = tuple(axis for name in missing for axis in split[name])
        raw = rules.fit(_slope(array).with_layout(split, summed))
        walk.bring(raw, rules.activation(_slope(array)), op)
        walk.run(op, "matmul", (here, *others, raw), "dgrad")
        if op.weights and not op.frozen:
            walk.bring(rules.activation(array), local[array.name], op)
    for array in op.weights if not op.frozen else ():
        others = tuple(other for name, other in local.items() if name != array.name)
        walk.run(op, "matmul", (*others, here, local[array.name]), "wgrad")


def _back_attention(op: Op, walk: Walk) -> None:
    """Keys and values are needed whole once more, and their gradients are scattered back. Where heads were traded for
    the sequence, what attention read is kept as it was read; the result's gradient comes to it, and all others go home.
    """
    rules = walk.rules
    if rules.trades and op.output is not None:
        walk.bring(rules.activation(_slope(op.output)), rules.attending(_slope(op.output)), op)
    for array in op.inputs:
        if rules.trades:
            there, home = rules.attending(array), rules.activation(array)
            spare = tuple(axis for axis in home.axes if axis not in there.axes)
            walk.bring(replace(_slope(there), partial=spare), _slope(home), op)
        elif "s" in array.names:
            held, whole = rules.activation(array), rules.attending(array)
            walk.bring(held, whole, op, ring=rules.ring)
            missing = tuple(axis for axis in held.axes if axis not in whole.axes)
            walk.bring(replace(_slope(whole), partial=missing), _slope(held), op, ring=rules.ring)
    arrays = tuple(rules.attending(array) for array in (*op.inputs, op.output) if array is not None)
    walk.run(op, op.function, arrays, "dgrad")


def _back_routing(op: Op, walk: Walk) -> None:
    routed = op.output if op.function == "dispatch" else op.inputs[0]
    assert routed is not None
    there = walk.rules.activation(routed)
    before, after = (walk.rules.home(there), there) if op.function == "dispatch" else (there, walk.rules.home(there))
    walk.move(op.part, "expert", Step("all_to_all", walk.rules.exchange, _slope(before), _slope(after)))
    walk.run(op, op.function, (there, there), "dgrad")


def _back_lookup(op: Op, walk: Walk) -> None:
    if op.frozen or op.output is None:
        return
    made = _slope(walk.rules.looked_up(op.output))
    walk.bring(walk.rules.activation(_slope(op.output)), replace(made, partial=()), op)


def _back_join(op: Op, walk: Walk) -> None:
    assert op.output is not None
    rules, out = walk.rules, walk.rules.activation(op.output)
    for array in op.inputs:
        held, there = rules.activation(array), rules.for_line(array, array, op)
        spare = tuple(axis for axis in out.axes if axis not in there.axes)
        walk.bring(replace(_slope(there), partial=spare), _slope(held), op)
    _back_elementwise(op, walk)


def _back_elementwise(op: Op, walk: Walk) -> None:
    if op.output is None or op.function == "cache":
        return
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
    """A weight's gradient to where its state lies; updated weights back to where they are used, unless these are
    gathered anyway."""
    rules = walk.rules
    if len(weight.dims) == 1 and not rules.sums_everywhere:
        return  # vectors ride along in the same messages
    here, stored = rules.used(weight), rules.optimizer_state(weight)
    walk.phase = "gradient"
    if rules.sums_everywhere:
        _reduce_everywhere(op, here, stored, walk)
    else:
        split = rules.computing(op) if op.function == "einsum" else {"b": rules.batch, "t": rules.tokens}
        partial = tuple(axis for name in ("b", "t", "x") for axis in split.get(name, ()) if axis not in here.axes)
        walk.bring(replace(_slope(here), partial=partial), _slope(stored), op, "gradient")
    if 1 <= rules.zero < 3:
        walk.phase = "update"
        walk.bring(stored, here, op, "weight")
    walk.phase = "backward"


def _reduce_everywhere(op: Op, here: Array, stored: Array, walk: Walk) -> None:
    """ZeRO-3 scatters what it gathered; whatever axes are left are summed over."""
    if walk.rules.zero == 3:
        shards = tuple(axis for axis in stored.axes if axis not in here.axes)
        walk.bring(replace(_slope(here), partial=shards), _slope(stored), op, "gradient")
        here = stored
    partial = tuple(axis for axis in TRAINING[1:] if axis not in here.axes)
    walk.bring(replace(_slope(here), partial=partial), _slope(stored), op, "gradient")
