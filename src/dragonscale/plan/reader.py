"""A section of a model read under layout rules: the kernels of each chip and the moves between chips, without sizes.

A section is read once from its first op to its last. Every tensor has a layout at each point; an op's operands are
brought to the layout that it computes in, and its result to the layout at rest, by the collectives of `reshard`. A
tensor that several ops need in the same layout is moved once. Prefill, decode and the forward pass of training are this
reading under different rules; the backward pass is derived from it (`dragonscale.plan.gradients`). Sizes (numbers,
arrays or symbols) are put in by `training` and `serving`.

>>> from dragonscale.models import load_model
>>> from dragonscale.plan.rules import training_rules
>>> block = load_model("llama3-8b").program().sections[1]
>>> [
...     f"{move.step.kind} {move.step.before.name} over {'+'.join(move.step.axes)}"
...     for move in read_forward(block, training_rules(zero=1)).moves
... ]
['all_gather X over tensor', 'all_gather K over context', 'all_gather V over context', 'reduce_scatter A over tensor',
'all_gather X over tensor', 'reduce_scatter M over tensor']
"""

import functools
import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.matmul_dims import MatmulDims, matmul_dims
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from dragonscale.physics.sharding.reshard_step import Step, layout_of
from dragonscale.plan.rules import SERVING, TRAINING, Rules

AXES = tuple(dict.fromkeys((*TRAINING, *SERVING)))
# Sizes without a common factor, so that no exchange of axes of equal size is mistaken for the general case.
COPRIME_MESH = Mesh(dict(zip(AXES, (2, 3, 5, 7, 11, 13, 17, 19), strict=True)))

# Readings that are cached, so that a process that runs for weeks does not grow with every model.
MAX_READINGS = 4096


@dataclass(frozen=True)
class Kernel:
    """The work of one op on one chip, by the layouts of the arrays that it reads and writes. `phase` is forward, dgrad
    (the gradient of an input) or wgrad (of a weight); `line` is the index of the op in its section."""

    part: str
    phase: str
    function: str
    arrays: tuple[Array, ...]
    op: Op
    line: int = 0

    @cached_property
    def matmul(self) -> MatmulDims:
        """The indices of its m, n and k, where it is a matmul."""
        return matmul_dims(self.arrays)

    @cached_property
    def layout(self) -> tuple[str, tuple[str, ...]]:
        """Everything but sizes that its cost depends on, as text, which is compared quickly; and its dims."""
        dims = dict.fromkeys(itertools.chain.from_iterable(array.names for array in self.arrays))
        return repr((self.part, self.function, self.arrays, self.op.output)), (*dims,)


@dataclass(frozen=True)
class Move:
    """A collective. `what` is weight, gradient, activation, or expert for tokens on their way to experts and back:
    weights and gradients can travel any time, activations are waited for. With `ring` it goes around hop by hop,
    overlapped with attention to the keys that have arrived. `index` is its position among the moves of its reading."""

    part: str
    phase: str
    what: str
    step: Step
    line: int = 0
    ring: bool = False
    index: int = 0


Lines = tuple[tuple[Kernel, ...], tuple[Move, ...]]


@dataclass(frozen=True)
class Reading:
    """One section under the rules."""

    section: Section
    kernels: tuple[Kernel, ...]
    moves: tuple[Move, ...]
    rules: Rules

    @cached_property
    def rerun(self) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
        """A cache: by remat policy, the indices of the ops and of the moves that run again."""
        return {}


@dataclass
class Walk:
    """A reading in progress: the layout of every tensor (`now`), the kernels and moves so far, the keys of those moves
    (`moved`), and how often each name was `written`."""

    rules: Rules
    phase: str = "forward"
    now: dict[str, Array] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    moved: set[tuple[object, ...]] = field(default_factory=set)
    written: dict[str, int] = field(default_factory=dict)
    line: int = 0

    def layout(self, array: Array) -> Array:
        """The array in its present layout. One from another section, or with other dims here, lies at rest."""
        present = self.now.get(array.name)
        if present is not None and present.names == array.names:
            return present
        return self.rules.at_rest(array)

    def move(self, part: str, what: str, step: Step, ring: bool = False) -> None:
        """Record a move, unless the same value was moved in the same way before; a name that is written again is
        another value."""
        if step.free:
            return
        name = step.before.name
        key = (self.phase, what, step.kind, step.axes, name, self.written.get(name.removeprefix("d"), 0))
        if key not in self.moved:
            self.moved.add(key)
            self.moves.append(Move(part, self.phase, what, step, self.line, ring))

    def bring(self, before: Array, after: Array, op: Op, what: str = "activation", ring: bool = False) -> None:
        """Record the moves from one layout to another."""
        for step in _moves(before, after):
            self.move(op.part, what, step, ring)

    def whole(self, array: Array, op: Op) -> Array:
        """The array without partial sums; they are reduced under the dims that the array was written with."""
        present = self.now.get(array.name)
        if present is not None and present.partial:
            rest = self.rules.activation(present.with_layout({}))
            self.bring(present, rest, op)
            self.now[array.name] = rest
        return self.layout(array)

    def put(self, result: Array, op: Op) -> None:
        """An op's result: brought to its layout at rest, or left a partial sum where the rules are lazy."""
        name = result.name
        if not self.rules.lazy:
            rest = self.rules.activation(result.with_layout({}))
            self.bring(result, rest, op)
            result = rest
        self.now[name] = result
        self.written[name] = self.written.get(name, 0) + 1

    def run(self, op: Op, function: str, arrays: tuple[Array, ...], phase: str = "forward") -> None:
        """Record a kernel of the op."""
        self.kernels.append(Kernel(op.part, phase, function, arrays, op, self.line))


@functools.lru_cache(maxsize=2**14)
def _moves(before: Array, after: Array) -> tuple[Step, ...]:
    return reshard(before, after, COPRIME_MESH)


def read_forward(section: Section, rules: Rules) -> Reading:
    """All kernels and moves of one forward pass through a section; each section is read once."""
    return Reading(section, *forward_lines(section.ops, rules), rules)


@functools.lru_cache(maxsize=MAX_READINGS)
def forward_lines(ops: tuple[Op, ...], rules: Rules) -> Lines:
    """The kernels and moves of a forward pass through some ops, whatever their sizes."""
    walk = Walk(rules)
    for walk.line, op in enumerate(ops):
        _READERS.get(op.function, _read_elementwise)(op, walk)
    if ops and ops[-1].output is not None:
        walk.whole(ops[-1].output, ops[-1])  # no partial sums leave the section
    return tuple(walk.kernels), tuple(walk.moves)


def _read_einsum(op: Op, walk: Walk) -> None:
    rules = walk.rules
    operands: list[Array] = []
    for array in op.inputs:
        present = walk.whole(array, op)
        operands.append(rules.for_line(array, present, op))
        walk.bring(present, operands[-1], op)
    for array in op.weights:
        operands.append(rules.used(array))
        walk.bring(rules.weight(array), operands[-1], op, "weight")
    partial = rules.of_line(op)
    walk.run(op, "matmul", (*operands, partial))
    walk.put(partial, op)


def _read_attention(op: Op, walk: Walk) -> None:
    """Queries are brought to their keys; keys and values are gathered along the sequence, or the part of it that a chip
    attends to; results are reduced and brought back to their heads (or, with Ulysses, to their tokens)."""
    assert op.output is not None
    rules = walk.rules
    query, *keys = op.inputs
    walk.bring(walk.whole(query, op), rules.attending(query), op)
    for array in keys:
        walk.whole(array, op)
        if "s" in array.names or "m" in array.names:
            # with Ulysses keys lie like any activation, elsewhere as they lie in the cache
            present = rules.activation(array) if rules.trades else rules.cached(array)
            walk.bring(present, rules.attending(array), op, ring=rules.ring)
    result = rules.attending(op.output)
    walk.run(op, op.function, (*map(rules.attending, op.inputs), result))
    if any("s" in array.names or "m" in array.names for array in keys):
        # each chip of `attend_keys` has attended to its part of the keys
        result = replace(result, partial=rules.attend_keys)
    if op.function == "attend":
        walk.bring(result, rules.activation(op.output), op)
        result = rules.activation(op.output)
    walk.put(result, op)


def _read_dispatch(op: Op, walk: Walk) -> None:
    """Tokens to the chips of their experts: by AllToAll, or by gathering all tokens on every chip; none move where all
    chips have them already."""
    assert op.output is not None
    rules = walk.rules
    tokens, *_ = [walk.whole(array, op) for array in op.inputs]
    routed = rules.activation(op.output)
    if rules.exchange:
        step = Step("all_to_all", rules.exchange, rules.home(routed), routed)
    else:
        step = Step("all_gather", rules.gathered, tokens, _without_batch_axes(tokens))
    walk.move(op.part, "expert", step)
    walk.run(op, "dispatch", (routed, routed))
    walk.put(routed, op)


def _without_batch_axes(array: Array, partial: tuple[str, ...] = ()) -> Array:
    """The array with its batch on every chip, and perhaps partial sums."""
    return array.with_layout(layout_of(array) | {"b": ()}, partial)


def _read_combine(op: Op, walk: Walk) -> None:
    """Experts' results back to their tokens: still partial sums over the axes that split experts or their hidden dims
    and over which tokens are not sent."""
    assert op.output is not None
    rules = walk.rules
    result, rest = walk.layout(op.inputs[0]), rules.activation(op.output)
    routed = replace(result, partial=())
    if rules.exchange:
        step = Step("all_to_all", rules.exchange, routed, rules.home(routed))
    else:
        step = Step("reduce_scatter", rules.gathered, _without_batch_axes(rest, rules.gathered), rest)
    walk.move(op.part, "expert", step)
    walk.run(op, "combine", (routed, routed))
    walk.put(replace(rest, partial=(*rules.beyond, *result.partial)), op)


def _read_lookup(op: Op, walk: Walk) -> None:
    """Rows of a table that may be split over the vocabulary: each chip finds the rows of some tokens, and the sum over
    chips is the result."""
    assert op.output is not None
    table = walk.rules.used(op.weights[0])
    walk.bring(walk.rules.weight(op.weights[0]), table, op, "weight")
    walk.run(op, "lookup", (walk.rules.activation(op.output),))
    rows = walk.rules.looked_up(op.output)
    walk.put(replace(rows, partial=tuple(axis for axis in rows.partial if axis in table.axes)), op)


def _read_linear(op: Op, walk: Walk) -> None:
    """A linear op on partial sums gives a partial sum if all its terms are partial over the same axes; a bias, or a
    gate of one number per token, does not matter."""
    assert op.output is not None
    present = [walk.layout(array) for array in op.inputs]
    is_gate = len(op.inputs) == 2 and len(op.inputs[1].names) == 2  # (b, t)
    partials: set[tuple[str, ...]] = set()
    if op.function in ("add", "bias") or is_gate:
        # the gate itself does not count
        partials = {array.partial for array in present if "d" in array.names or op.function != "act"}
    result = walk.rules.activation(op.output)
    arrays = (*(replace(array, partial=()) for array in present), result)
    if len(partials) == 1:
        result = replace(result, partial=partials.pop())
    else:
        for array in op.inputs:
            walk.whole(array, op)
    walk.run(op, op.function, arrays)
    walk.put(result, op)


def _read_join(op: Op, walk: Walk) -> None:
    """Arrays that are concatenated need the same layout: one without heads is gathered to where the heads are."""
    for array in op.inputs:
        present = walk.whole(array, op)
        walk.bring(present, walk.rules.for_line(array, present, op), op)
    _read_elementwise(op, walk)


def _read_elementwise(op: Op, walk: Walk) -> None:
    arrays = tuple(walk.whole(array, op) for array in op.inputs)
    if op.output is None:
        # an op without a result writes the KV cache
        walk.run(op, op.function, tuple(map(walk.rules.cached, op.inputs)))
        return
    result = walk.rules.activation(op.output)
    walk.run(op, op.function, (*arrays, result))
    walk.put(result, op)


_READERS = {
    "einsum": _read_einsum,
    "dispatch": _read_dispatch,
    "combine": _read_combine,
    "join": _read_join,
    "lookup": _read_lookup,
    "attend": _read_attention,
    "score": _read_attention,
    "add": _read_linear,
    "bias": _read_linear,
    "act": _read_linear,
}
