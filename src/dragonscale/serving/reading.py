"""A section of a model read as a forward pass: the kernels each chip runs and the moves between chips.

Arrays are followed line by line with the layout they have at that point. A product over a split dim leaves a partial
sum; it stays one as long as only linear lines touch it (shared and routed experts are added before they are reduced) and
is reduced where something needs it whole. Attention's layouts bring the moves of a cache that is split by heads, by
sequences of the batch or along the sequence. The result has no sizes in it.
"""

from dataclasses import dataclass, field, replace

from dragonscale.models.program import Op, Section
from dragonscale.notation import Array
from dragonscale.serving.rules import DEALT, HEADS, MESH, SLICED, ServingRules
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import reshard
from dragonscale.sharding.step import Step

_OPEN = Mesh(dict(zip(MESH, (2, 3, 5, 7, 11, 13, 17), strict=True)))
"""Sizes without a common factor, so that no exchange of equal axes is mistaken for the general case."""


@dataclass(frozen=True)
class ForwardKernel:
    """What one line computes on one chip, by the layouts of what it reads and writes."""

    part: str
    function: str
    arrays: tuple[Array, ...]
    op: Op


@dataclass(frozen=True)
class ForwardMove:
    """A collective between two kernels. `what` is `activation`, or `expert` for tokens on their way to experts and back."""

    part: str
    what: str
    step: Step


@dataclass(frozen=True)
class ForwardReading:
    """One section under the rules, once."""

    section: Section
    kernels: tuple[ForwardKernel, ...]
    moves: tuple[ForwardMove, ...]


@dataclass
class _Walk:
    """Where every tensor lies at the moment, and what was found so far."""

    rules: ServingRules
    now: dict[str, Array] = field(default_factory=dict)
    kernels: list[ForwardKernel] = field(default_factory=list)
    moves: list[ForwardMove] = field(default_factory=list)

    def held(self, array: Array) -> Array:
        """The array as it lies now; what comes from another section lies as the rules say."""
        known = self.now.get(array.name)
        return known if known is not None and known.names == array.names else self.rules.activation(array)

    def bring(self, array: Array, target: Array, part: str, what: str = "activation") -> None:
        """ForwardMove an array to a layout, once: it stays there."""
        for step in reshard(self.held(array), target, _OPEN):
            if not step.free:
                self.moves.append(ForwardMove(part, what, step))
        self.now[array.name] = target

    def whole(self, array: Array, part: str) -> None:
        """Add up what is still a partial sum."""
        held = self.held(array)
        if held.partial:
            self.bring(array, self.rules.activation(array), part)

    def finish(self, name: str, part: str) -> None:
        """The same for whatever goes by a name, under the dims it was written with."""
        known = self.now.get(name)
        if known is not None and known.partial:
            self.bring(known, self.rules.activation(known.with_layout({})), part)


def read_forward(section: Section, rules: ServingRules) -> ForwardReading:
    """All kernels and moves of one pass through a section; each section is read once."""
    key = (section.name, section.ops, rules)
    if key not in _READ:
        walk = _Walk(rules)
        for op in section.ops:
            _READERS.get(op.function, _read_pointwise)(op, walk)
        last = section.ops[-1].output
        if last is not None:
            walk.whole(last, section.ops[-1].part)
        _READ[key] = (tuple(walk.kernels), tuple(walk.moves))
    kernels, moves = _READ[key]
    return ForwardReading(section, kernels, moves)


_READ: dict[tuple[object, ...], tuple[tuple[ForwardKernel, ...], tuple[ForwardMove, ...]]] = {}


def _read_einsum(op: Op, walk: _Walk) -> None:
    assert op.output is not None
    for array in op.inputs:
        walk.whole(array, op.part)
    inputs = tuple(walk.held(array) for array in op.inputs)
    weights = tuple(walk.rules.weight(array) for array in op.weights)
    contracted = set(op.einsum.contracted)
    axes = {dim.name: dim.axes for array in (*inputs, *weights) for dim in array.dims if dim.axes}
    partial = tuple(axis for name in op.einsum.contracted for axis in axes.get(name, ()))
    rest = walk.rules.activation(op.output)
    split = {dim.name: dim.axes if dim.name in axes else () for dim in rest.dims if dim.name not in contracted}
    raw = op.output.with_layout(split, partial)
    walk.kernels.append(ForwardKernel(op.part, "matmul", (*inputs, *weights, raw), op))
    walk.now[op.output.name] = raw


def _read_attention(op: Op, walk: _Walk) -> None:
    """Queries go to where their keys are; results are joined and go back to their heads."""
    assert op.output is not None
    query, *keys = op.inputs
    walk.whole(query, op.part)
    walk.bring(query, walk.rules.attending(query), op.part)
    for array in keys:
        walk.finish(array.name, op.part)
        if walk.rules.prompt and ("s" in array.names or "m" in array.names):
            new = replace(array, dims=tuple(replace(dim, axes=()) for dim in array.dims))
            held, target = walk.rules.cached(new), walk.rules.attending(new)
            walk.now[f"{array.name}*"] = held
            walk.bring(replace(new, name=f"{array.name}*"), replace(target, name=f"{array.name}*"), op.part)
    arrays = tuple(walk.rules.attending(array) for array in op.inputs)
    result = walk.rules.attending(op.output)
    axes = {dim.name for array in arrays[1:] for dim in array.dims}
    partial = walk.rules.joined() if {"s", "m"} & axes else ()
    raw = replace(result, partial=partial)
    walk.kernels.append(ForwardKernel(op.part, op.function, (*arrays, result), op))
    walk.now[op.output.name] = raw
    if op.function == "attend":
        walk.bring(op.output, walk.rules.activation(op.output), op.part)


def _read_dispatch(op: Op, walk: _Walk) -> None:
    """Tokens to the experts' places: none move where everybody has all tokens already."""
    assert op.output is not None
    source = op.inputs[0]
    for array in op.inputs:
        walk.whole(array, op.part)
    there = walk.rules.activation(op.output)
    if walk.rules.exchange:
        home = there.with_layout(
            {dim.name: ("data",) if dim.name == "b" else () if dim.name == "x" else dim.axes for dim in there.dims}
        )
        walk.moves.append(ForwardMove(op.part, "expert", Step("all_to_all", ("data",), home, there)))
    else:
        held = walk.held(source)
        gathered = held.with_layout({dim.name: () if dim.name == "b" else dim.axes for dim in held.dims})
        walk.moves.append(ForwardMove(op.part, "expert", Step("all_gather", ("data",), held, gathered)))
    walk.kernels.append(ForwardKernel(op.part, "dispatch", (there,), op))
    walk.now[op.output.name] = there


def _read_combine(op: Op, walk: _Walk) -> None:
    """Results back to their tokens: a partial sum over every axis that experts are dealt or sliced over."""
    assert op.output is not None
    routed = op.inputs[0]
    held = walk.held(routed)
    home = walk.rules.activation(op.output)
    if walk.rules.exchange:
        back = held.with_layout(
            {dim.name: ("data",) if dim.name == "b" else () if dim.name == "x" else dim.axes for dim in held.dims}
        )
        walk.moves.append(
            ForwardMove(op.part, "expert", Step("all_to_all", ("data",), replace(held, partial=()), back))
        )
    else:
        everywhere = home.with_layout({dim.name: () if dim.name == "b" else dim.axes for dim in home.dims}, ("data",))
        walk.moves.append(ForwardMove(op.part, "expert", Step("reduce_scatter", ("data",), everywhere, home)))
    partial = (*(axis for axis in DEALT if axis != "data"), *SLICED)
    walk.kernels.append(ForwardKernel(op.part, "combine", (home,), op))
    walk.now[op.output.name] = replace(home, partial=partial)


def _read_lookup(op: Op, walk: _Walk) -> None:
    """Rows of a table split over the vocabulary: each chip finds some of its tokens."""
    assert op.output is not None
    walk.kernels.append(ForwardKernel(op.part, "lookup", (walk.rules.activation(op.output),), op))
    walk.now[op.output.name] = replace(walk.rules.activation(op.output), partial=HEADS)


def _read_linear(op: Op, walk: _Walk) -> None:
    """Sums stay partial where all their terms are; a bias or a gate of one number per token changes nothing."""
    assert op.output is not None
    held = [walk.held(array) for array in op.inputs]
    linear = op.function in ("add", "bias") or (len(op.inputs) == 2 and len(op.inputs[1].names) == 2)
    sums = [array for array in held if "d" in array.names or op.function != "act"] if linear else held
    if linear and sums and all(array.partial == sums[0].partial for array in sums):
        result = replace(walk.rules.activation(op.output), partial=sums[0].partial)
    else:
        for array in op.inputs:
            walk.whole(array, op.part)
        result = walk.rules.activation(op.output)
    walk.kernels.append(
        ForwardKernel(op.part, op.function, (*(replace(array, partial=()) for array in held), result), op)
    )
    walk.now[op.output.name] = result


def _read_pointwise(op: Op, walk: _Walk) -> None:
    for array in op.inputs:
        walk.finish(array.name, op.part)
    arrays = tuple(walk.held(array) for array in op.inputs)
    if op.output is None:
        walk.kernels.append(
            ForwardKernel(op.part, op.function, tuple(walk.rules.cached(array) for array in op.inputs), op)
        )
        return
    result = walk.rules.activation(op.output)
    walk.kernels.append(ForwardKernel(op.part, op.function, (*arrays, result), op))
    walk.now[op.output.name] = result


_READERS = {
    "einsum": _read_einsum,
    "attend": _read_attention,
    "score": _read_attention,
    "dispatch": _read_dispatch,
    "combine": _read_combine,
    "lookup": _read_lookup,
    "add": _read_linear,
    "bias": _read_linear,
    "act": _read_linear,
}
