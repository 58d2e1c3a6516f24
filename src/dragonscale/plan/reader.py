"""A section of a model read under rules: the kernels each chip runs and the moves between chips, without sizes.

A section is read once on its way down. Every tensor is followed with the layout it has at that point; a line's operands
are brought to the layout the line computes in, and its result to where it rests; `reshard` says with which collectives.
A tensor that several lines need in the same form is moved once. Prefill, decode and the forward pass of training are
this reading under different rules; the backward pass is derived from it (`dragonscale.plan.gradients`). Putting in
numbers, arrays or symbols is others' work.

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
from dataclasses import dataclass, field, replace
from functools import cached_property

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.matmul_dims import MatmulDims, matmul_dims
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.rules import SERVING, TRAINING, Rules

AXES = tuple(dict.fromkeys((*TRAINING, *SERVING)))
OPEN = Mesh(dict(zip(AXES, (2, 3, 5, 7, 11, 13, 17, 19), strict=True)))
"""Sizes without a common factor, so that no exchange of equal axes is mistaken for the general case."""

MOST_READ = 4096
"""Readings that are kept, so that a process that runs for weeks does not grow with every model it is asked about."""


@dataclass(frozen=True)
class Kernel:
    """What one line computes on one chip, by the layouts of what it reads and writes. `phase` is forward, dgrad (the
    gradient of an input) or wgrad (of a weight); `line` is the place of its op in the section."""

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
        """All that its cost depends on but sizes, as text, which is compared quickly; and its dims."""
        dims = dict.fromkeys(dim.name for array in self.arrays for dim in array.dims)
        return repr((self.part, self.function, self.arrays, self.op.output)), (*dims,)


@dataclass(frozen=True)
class Move:
    """A collective. `what` is weight, gradient, activation, or expert for tokens on their way to experts and back:
    weights and gradients can travel any time, activations are waited for. `ring`: it goes round hop by hop, under the
    attention to what is there. `place` is where it stands among the moves of its reading."""

    part: str
    phase: str
    what: str
    step: Step
    line: int = 0
    ring: bool = False
    place: int = 0


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
        """By remat policy the places of its lines and moves that run again, as far as they were asked for."""
        return {}


@dataclass
class Walk:
    """Where every tensor lies at the moment, which forms of it there are, and what was found so far."""

    rules: Rules
    phase: str = "forward"
    now: dict[str, Array] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    made: set[tuple[object, ...]] = field(default_factory=set)
    written: dict[str, int] = field(default_factory=dict)
    line: int = 0

    def held(self, array: Array) -> Array:
        """The array as it lies now; what comes from another section, or goes by other dims here, lies at rest."""
        known = self.now.get(array.name)
        return known if known is not None and known.names == array.names else self.rules.at_rest(array)

    def move(self, part: str, what: str, step: Step, ring: bool = False) -> None:
        """Each value is moved once in each form; a name that is written anew is another value."""
        if step.free:
            return
        name = step.before.name
        key = (self.phase, what, step.kind, step.axes, name, self.written.get(name.removeprefix("d"), 0))
        if key not in self.made:
            self.made.add(key)
            self.moves.append(Move(part, self.phase, what, step, self.line, ring))

    def bring(self, before: Array, after: Array, op: Op, what: str = "activation", ring: bool = False) -> None:
        """The moves from one layout to another."""
        for step in _moves(before, after):
            self.move(op.part, what, step, ring)

    def whole(self, array: Array, op: Op) -> Array:
        """The array with nothing left to add up; that is done under the dims it was written with."""
        known = self.now.get(array.name)
        if known is not None and known.partial:
            rest = self.rules.activation(known.with_layout({}))
            self.bring(known, rest, op)
            self.now[array.name] = rest
        return self.held(array)

    def put(self, made: Array, op: Op) -> None:
        """A line's result: brought to where it rests, or left a partial sum where the rules are lazy."""
        rest = self.rules.activation(made.with_layout({}))
        if not self.rules.lazy:
            self.bring(made, rest, op)
        self.now[made.name] = made if self.rules.lazy else rest
        self.written[made.name] = self.written.get(made.name, 0) + 1

    def run(self, op: Op, function: str, arrays: tuple[Array, ...], phase: str = "forward") -> None:
        self.kernels.append(Kernel(op.part, phase, function, arrays, op, self.line))


@functools.lru_cache(maxsize=2**14)
def _moves(before: Array, after: Array) -> tuple[Step, ...]:
    return reshard(before, after, OPEN)


def read_forward(section: Section, rules: Rules) -> Reading:
    """All kernels and moves of one forward pass through a section; each section is read once."""
    return Reading(section, *forward_lines(section.ops, rules), rules)


@functools.lru_cache(maxsize=MOST_READ)
def forward_lines(ops: tuple[Op, ...], rules: Rules) -> Lines:
    """The same of its lines, whatever their sizes."""
    walk = Walk(rules)
    for walk.line, op in enumerate(ops):
        _READERS.get(op.function, _read_elementwise)(op, walk)
    for op in ops[-1:]:
        if op.output is not None:
            walk.whole(op.output, op)
    return tuple(walk.kernels), tuple(walk.moves)


def _read_einsum(op: Op, walk: Walk) -> None:
    rules = walk.rules
    wanted: list[Array] = []
    for array in op.inputs:
        held = walk.whole(array, op)
        wanted.append(rules.for_line(array, held, op))
        walk.bring(held, wanted[-1], op)
    for array in op.weights:
        wanted.append(rules.used(array))
        walk.bring(rules.weight(array), wanted[-1], op, "weight")
    raw = rules.of_line(op)
    walk.run(op, "matmul", (*wanted, raw))
    walk.put(raw, op)


def _read_attention(op: Op, walk: Walk) -> None:
    """Queries go to where their keys are; keys and values are brought whole along the sequence, or as much of it as a
    chip attends to; results are joined and go back to their heads (or, where heads were traded for the sequence, to
    their tokens)."""
    assert op.output is not None
    rules = walk.rules
    query, *keys = op.inputs
    walk.bring(walk.whole(query, op), rules.attending(query), op)
    for array in keys:
        walk.whole(array, op)
        if "s" in array.names or "m" in array.names:
            held = rules.activation(array) if rules.trades else rules.cached(array)
            walk.bring(held, rules.attending(array), op, ring=rules.ring)
    arrays = tuple(rules.attending(array) for array in op.inputs)
    result = rules.attending(op.output)
    grown = {dim.name for array in arrays[1:] for dim in array.dims} & {"s", "m"}
    walk.run(op, op.function, (*arrays, result))
    made = replace(result, partial=rules.attend_keys if grown else ())
    if op.function == "attend":
        walk.bring(made, rules.activation(op.output), op)
        made = rules.activation(op.output)
    walk.put(made, op)


def _read_dispatch(op: Op, walk: Walk) -> None:
    """Tokens to the experts' chips: by AllToAll, or everybody gathers all tokens; none move where all chips have them
    already."""
    assert op.output is not None
    rules = walk.rules
    held = [walk.whole(array, op) for array in op.inputs]
    there = rules.activation(op.output)
    if rules.exchange:
        walk.move(op.part, "expert", Step("all_to_all", rules.exchange, rules.home(there), there))
    else:
        split = {dim.name: () if dim.name == "b" else dim.axes for dim in held[0].dims}
        walk.move(op.part, "expert", Step("all_gather", rules.gathered, held[0], held[0].with_layout(split)))
    walk.run(op, "dispatch", (there, there))
    walk.put(there, op)


def _read_combine(op: Op, walk: Walk) -> None:
    """Results back to their tokens: still a partial sum over the axes by which experts are dealt or sliced, tokens not
    sent."""
    assert op.output is not None
    rules = walk.rules
    held, rest = walk.held(op.inputs[0]), rules.activation(op.output)
    there = replace(held, partial=())
    if rules.exchange:
        walk.move(op.part, "expert", Step("all_to_all", rules.exchange, there, rules.home(there)))
    else:
        split = {dim.name: () if dim.name == "b" else dim.axes for dim in rest.dims}
        walk.move(
            op.part, "expert", Step("reduce_scatter", rules.gathered, rest.with_layout(split, rules.gathered), rest)
        )
    walk.run(op, "combine", (there, there))
    walk.put(replace(rest, partial=(*rules.beyond, *held.partial)), op)


def _read_lookup(op: Op, walk: Walk) -> None:
    """Rows of a table split over the vocabulary: each chip finds some of its tokens, and the sum is everybody's."""
    assert op.output is not None
    table = op.weights[0]
    walk.bring(walk.rules.weight(table), walk.rules.used(table), op, "weight")
    walk.run(op, "lookup", (walk.rules.activation(op.output),))
    made = walk.rules.looked_up(op.output)
    split = {axis for dim in walk.rules.used(table).dims for axis in dim.axes}
    walk.put(replace(made, partial=tuple(axis for axis in made.partial if axis in split)), op)


def _read_linear(op: Op, walk: Walk) -> None:
    """Sums stay partial where all their terms are; a bias or a gate of one number per token changes nothing."""
    assert op.output is not None
    held = [walk.held(array) for array in op.inputs]
    linear = op.function in ("add", "bias") or (len(op.inputs) == 2 and len(op.inputs[1].names) == 2)
    sums = [array for array in held if "d" in array.names or op.function != "act"] if linear else held
    result = walk.rules.activation(op.output)
    if linear and sums and all(array.partial == sums[0].partial for array in sums):
        result = replace(result, partial=sums[0].partial)
    else:
        for array in op.inputs:
            walk.whole(array, op)
    walk.run(op, op.function, (*(replace(array, partial=()) for array in held), replace(result, partial=())))
    walk.put(result, op)


def _read_join(op: Op, walk: Walk) -> None:
    """What is laid end to end must lie alike: a part without heads is gathered to where the heads are."""
    for array in op.inputs:
        walk.bring(walk.whole(array, op), walk.rules.for_line(array, walk.held(array), op), op)
    _read_elementwise(op, walk)


def _read_elementwise(op: Op, walk: Walk) -> None:
    arrays = tuple(walk.whole(array, op) for array in op.inputs)
    if op.output is None:
        walk.run(op, op.function, tuple(walk.rules.cached(array) for array in op.inputs))
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
