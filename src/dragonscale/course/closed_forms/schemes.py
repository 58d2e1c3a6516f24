"""A parallelism as its shardings: what a layer sends, forward and backward, and what it waits for.

A scheme is a chain of matrix multiplications in the book's notation. Which mesh axis computes over which dim follows
from it: an axis that splits a hidden dim (one that is neither in the input nor in the output) computes over that dim,
which is tensor parallelism; an axis that splits the tokens computes over tokens, which is data parallelism, and
whatever weights it splits are gathered first (FSDP). Everything else is derived: the backward pass, the collectives,
and which of them can travel at any time.

>>> scheme = read_scheme("fsdp+tp")
>>> scheme.owners
{'X': 'B', 'Y': 'F'}
>>> [told(move) for move in scheme.forward_moves]
['AllGather_Y In', 'AllGather_X W_in', 'AllGather_X W_out', 'ReduceScatter_Y Out']
>>> [told(move) for move in scheme.backward_moves if waits(move)]
['AllGather_Y dOut', 'AllGather_Y In', 'ReduceScatter_Y dIn']
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.notation import Array, Einsum, parse_chain, subscript
from dragonscale.physics.sharding.algebra import Strategy, backward, derive
from dragonscale.physics.sharding.chain import PlannedEinsum, collectives
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.reader import Move

SCHEMES = {
    "dp": "In[B_X, D] · W_in[D, F] · W_out[F, D] -> Out[B_X, D]",
    "fsdp": "In[B_X, D] · W_in[D_X, F] · W_out[F, D_X] -> Out[B_X, D]",
    "tp": "In[B, D_Y] · W_in[D, F_Y] · W_out[F_Y, D] -> Out[B, D_Y]",
    "fsdp+tp": "In[B_X, D_Y] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_X, D_Y]",
    "pods": "In[B_PX, D_Y] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_PX, D_Y]",
}
"""The book's schemes for a layer of two matrices; in `pods`, P counts replicas of the model across pods."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
"""Sizes without a common factor, so that no exchange of equal axes is mistaken for the general case."""


@dataclass(frozen=True)
class Scheme:
    """A layer under a parallelism: its lines with the way each is computed, and the mesh axis' dims."""

    text: str
    owners: dict[str, str]
    """The dim that each mesh axis computes over."""
    weights: tuple[str, ...]
    forward: tuple[PlannedEinsum, ...]
    backward: tuple[PlannedEinsum, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes, in order of first appearance."""
        return tuple(self.owners)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims of its arrays, in order of first appearance."""
        return tuple(dict.fromkeys(index for planned in self.forward for index in planned.line.indices))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The dims that count tokens: those of the input that no weight has."""
        return _tokens([planned.line for planned in self.forward])

    @property
    def forward_moves(self) -> tuple[Move, ...]:
        """The collectives of the forward pass, in order."""
        return self._moves("forward", self.forward)

    @property
    def backward_moves(self) -> tuple[Move, ...]:
        """The collectives of the backward pass, in order: a weight's gradient before that of the layer's input."""
        return self._moves("backward", self.backward)

    def _moves(self, phase: str, planned: tuple[PlannedEinsum, ...]) -> tuple[Move, ...]:
        return tuple(Move("mlp", phase, self._kind(step.before), step) for step in collectives(list(planned)))

    def _kind(self, array: Array) -> str:
        if array.name in self.weights:
            return "weight"
        return "gradient" if array.name.removeprefix("d") in self.weights else "activation"

    def regathered(self, move: Move) -> bool:
        """Whether the backward pass repeats what the forward pass moved already: keeping it would save the move."""
        return move.phase == "backward" and any(move.step == other.step for other in self.forward_moves)


def waits(move: Move) -> bool:
    """Whether compute waits for a collective. Weights are known before, and their gradients needed only by the
    optimizer; an activation is the result of one matmul and the operand of the next."""
    return move.what == "activation"


def told(move: Move) -> str:
    """A collective as the book writes it: `AllGather_X W_in`."""
    kind = "collective_permute" if move.step.kind == "permute" else move.step.kind
    return f"{kind.title().replace('_', '')}{subscript(move.step.axes)} {move.step.before.name}"


def read_scheme(text: str) -> Scheme:
    """A scheme by its name in `SCHEMES` or written out in the book's notation.

    >>> [told(move) for move in read_scheme("In[B, D] · W_in[D, F_Y] · W_out[F_Y, D] -> Out[B, D]").forward_moves]
    ['AllReduce_Y Out']
    """
    written = SCHEMES.get(text.strip().lower(), text)
    if "[" not in written:
        raise InputError(
            f"{shorten(text)} is no scheme; write one of {', '.join(SCHEMES)}, or a chain such as '{SCHEMES['fsdp']}'."
        )
    lines = _named(parse_chain(written))
    if any(len(line.operands) != 2 for line in lines):
        raise InputError(f"{shorten(text)} is no layer; multiply an input by at least one weight.")
    owners = find_owners(lines)
    if len(owners) > len(_PRIMES):
        raise InputError(f"{shorten(text)} has {len(owners)} mesh axes; at most {len(_PRIMES)} are allowed.")
    laid = _laid_out(lines, owners)
    gradients = [gradient for line in reversed(laid) for gradient in reversed(backward(line))]
    return Scheme(
        written,
        owners,
        tuple(line.operands[1].name for line in laid),
        tuple(_pinned(line, owners) for line in laid),
        tuple(_pinned(line, owners) for line in gradients),
    )


def find_owners(lines: list[Einsum]) -> dict[str, str]:
    """The dim that each mesh axis computes over: a hidden one if it splits one, then the tokens, then whatever it
    splits."""
    arrays = [array for line in lines for array in (*line.operands, line.output)]
    outside = {*lines[0].operands[0].names, *lines[-1].output.names}
    tokens = _tokens(lines)
    owners: dict[str, str] = {}
    for axis in dict.fromkeys(axis for array in arrays for axis in array.axes):
        held = list(dict.fromkeys(dim.name for array in arrays for dim in array.dims if axis in dim.axes))
        hidden = [dim for dim in held if dim not in outside]
        owners[axis] = [*hidden, *(dim for dim in held if dim in tokens), *held][0]
    return owners


def _tokens(lines: Iterable[Einsum]) -> tuple[str, ...]:
    lines = list(lines)
    weighted = {name for line in lines for name in line.operands[1].names}
    return tuple(name for name in lines[0].operands[0].names if name not in weighted)


def _named(lines: list[Einsum]) -> list[Einsum]:
    """The one intermediate of a chain of two is called Tmp, as in the book."""
    if len(lines) != 2:
        return lines
    middle = replace(lines[0].output, name="Tmp")
    return [replace(lines[0], output=middle), replace(lines[1], operands=(middle, lines[1].operands[1]))]


def _laid_out(lines: list[Einsum], owners: dict[str, str]) -> list[Einsum]:
    """The chain with each intermediate split as it is computed."""
    split: dict[str, tuple[str, ...]] = {}
    for axis, dim in owners.items():
        split[dim] = (*split.get(dim, ()), axis)
    source, laid = lines[0].operands[0], []
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        output = line.output if last else line.output.with_layout(split)
        laid.append(Einsum((source, line.operands[1]), output))
        source = output
    return laid


def _pinned(line: Einsum, owners: dict[str, str]) -> PlannedEinsum:
    """The ways to compute a line in which every axis is given to the dim that owns it."""
    mesh = Mesh(dict(zip(owners, _PRIMES, strict=False)))
    sizes = dict.fromkeys(line.indices, 2**20)
    ways = [way for way in derive(line, mesh) if _respects(way, owners)]
    if not ways:
        raise InputError(f"In {line} some mesh axis splits no dim that it computes over; write the layouts in full.")
    return PlannedEinsum(line, tuple(sorted(ways, key=lambda way: (way.wire_bytes(sizes, mesh), len(way.collectives)))))


def _respects(way: Strategy, owners: dict[str, str]) -> bool:
    arrays = (*way.local.operands, way.local.output)
    given = {axis: dim.name for array in arrays for dim in array.dims for axis in dim.axes}
    present = {name for array in arrays for name in array.names}
    return all(given.get(axis) == dim for axis, dim in owners.items() if dim in present)
