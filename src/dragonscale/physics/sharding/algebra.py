"""Sharded einsums: the collectives of every legal strategy, and their costs.

One rule covers every case of the book: *give each mesh axis to at most one index of the einsum.* An operand that is
laid out otherwise must be gathered or moved first; an axis given to a contracted index leaves a partial sum, to be
reduced or scattered; an axis given to no index repeats the work. The choices follow from the layouts alone, so they are
derived once, and the cheapest is chosen for the sizes at hand.

>>> from dragonscale.physics.notation import parse_einsum
>>> mesh = Mesh({"X": 4})
>>> def show(text):
...     best = strategies(parse_einsum(text), {"I": 64, "J": 64, "K": 64}, mesh)[0]
...     return [str(step) for step in best.collectives]
>>> show("A[I_X, J] @ B[J, K] -> C[I_X, K]")
[]
>>> show("A[I, J_X] @ B[J_X, K] -> C[I, K]")
['all_reduce_X C[I, K]{U_X} -> C[I, K]']
>>> show("A[I_X, J] @ B[J, K_X] -> C[I_X, K]")
['all_gather_X B[J, K_X] -> B[J, K]']
"""

import functools
import itertools
from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.collectives import BOOK, Options, Seconds, collective_time
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.notation.array import without
from dragonscale.physics.numbers import Number, is_array, is_symbolic, maximum
from dragonscale.physics.rooflines import compute_dtype
from dragonscale.physics.sharding.layout import Sizes, check_layout, local_bytes, replicated_over
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import Step, reshard
from dragonscale.physics.sharding.reshard_step import layout_of

MAX_STRATEGIES = 4096
FLOPS_PER_BYTE = 2500
"""What chips compute in bf16 while they send one byte along a mesh axis: 2,189 on a v5e, 2,200 on an H100 in its node,
2,550 on a v5p, 3,056 on a v4. Weighs FLOPs against bytes where no chip is given."""


@dataclass(frozen=True)
class Strategy:
    """One way to compute a sharded einsum: steps before, the local einsum, steps after."""

    before: tuple[Step, ...]
    local: Einsum
    after: tuple[Step, ...]
    replicated: tuple[str, ...] = ()
    """Mesh axes that repeat the same work."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.before, *self.after)

    @property
    def collectives(self) -> tuple[Step, ...]:
        """The steps that move bytes."""
        return tuple(step for step in self.steps if not step.free)

    def flops(self, sizes: Sizes, mesh: Mesh) -> Number:
        """FLOPs of one chip."""
        # an axis of no array repeats the work on its chips
        return self.local.flops(sizes) / mesh.size(*self.local.axes)

    def wire_bytes(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that each chip sends."""
        return sum(step.wire_bytes(sizes, mesh) for step in self.steps)

    def step_seconds(self, sizes: Sizes, mesh: Mesh, options: Options) -> list[Seconds]:
        """The time of each collective on the mesh's wires."""
        seconds: list[Seconds] = []
        for step in self.collectives:
            seconds.append(collective_time(step.kind, step.volume(sizes, mesh), mesh.group(step.axes), options))
        return seconds

    def comms_seconds(self, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> Number:
        """Time of all collectives, one after the other."""
        return sum(seconds.lower for seconds in self.step_seconds(sizes, mesh, options))

    def math_seconds(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Time of the local einsum at the chip's peak rate for the wider of its operands; zero for a reshard."""
        assert mesh.chip is not None
        if self.is_reshard:  # a chip without a rate for the dtype can still move it
            return 0
        return self.flops(sizes, mesh) / mesh.chip.peak(compute_dtype(self.local))

    def hbm_read(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip reads for the local einsum: its blocks of the operands, once each; zero for a reshard,
        whose bytes are those of its collectives."""
        if self.is_reshard:
            return 0
        return sum(local_bytes(array, sizes, mesh) for array in self.local.operands)

    def hbm_written(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip writes: its block of the result."""
        if self.is_reshard:
            return 0
        return local_bytes(self.local.output, sizes, mesh)

    def hbm_bytes(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip reads and writes for the local einsum; zero for a reshard."""
        return self.hbm_read(sizes, mesh) + self.hbm_written(sizes, mesh)

    def seconds(self, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> dict[str, Number]:
        """The time of each resource: compute, HBM and the network."""
        assert mesh.chip is not None
        return {
            "compute": self.math_seconds(sizes, mesh),
            "HBM": self.hbm_bytes(sizes, mesh) / mesh.chip.bandwidth("hbm"),
            "network": self.comms_seconds(sizes, mesh, options),
        }

    def lower_seconds(self, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> Number:
        """The time of the slowest resource: a bound, if everything overlaps."""
        return maximum(*self.seconds(sizes, mesh, options).values())

    @property
    def is_reshard(self) -> bool:
        """Whether it only moves one array to another layout."""
        return len(self.local.operands) == 1 and not self.local.contracted


def strategies(line: Einsum, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> list[Strategy]:
    """Every legal strategy, cheapest first.

    The cheapest has the smallest lower bound on its time, then the smallest sum over resources; without a chip, FLOPs
    and bytes are weighed by `FLOPS_PER_BYTE`. Symbolic sizes are ranked as if they were all equal and large.
    """
    for array in line.arrays:
        check_layout(array, sizes, mesh)
    if isinstance(mesh.chips, int):  # otherwise some axis is a symbol or an array
        legal = _derive_once(line, tuple(mesh.axes.items()))
    else:
        legal = tuple(derive(line, mesh))
    if not legal:
        axes = ", ".join(line.output.partial)
        raise InputError(f"{line.output} is to hold partial sums over {axes}, but no summed dim is split over that.")
    plain = plain_sizes(sizes)
    return sorted(legal, key=lambda strategy: rank(strategy, plain, mesh, options))


@functools.lru_cache(maxsize=512)
def _derive_once(line: Einsum, axes: tuple[tuple[str, int], ...]) -> tuple[Strategy, ...]:
    """The strategies of `derive`, cached: sizes and wires, which callers vary, do not change them."""
    return tuple(derive(line, Mesh(dict(axes))))


def plain_sizes(sizes: Sizes) -> Sizes:
    """The sizes with a large number in place of symbols and arrays, for ranking strategies."""
    return {name: 8192 if is_symbolic(size) or is_array(size) else size for name, size in sizes.items()}


def rank(strategy: Strategy, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> tuple[float, ...]:
    """The sort key of a strategy: the lower bound, the sum over resources, the number of collectives."""
    if mesh.chip is None:
        flops, sent = strategy.flops(sizes, mesh), strategy.wire_bytes(sizes, mesh)
        parts = [float(flops), float(sent) * FLOPS_PER_BYTE]
    else:
        parts = list(map(float, strategy.seconds(sizes, mesh, options).values()))
    return (max(parts), sum(parts), len(strategy.collectives))


def derive(line: Einsum, mesh: Mesh, prefer: str = "move") -> list[Strategy]:
    """The strategies that the layouts allow, whatever the sizes. `prefer` is that of `reshard`."""
    if len(line.operands) == 1 and not line.contracted:
        return [_reshard_only(line, mesh, prefer)]
    axes = line.axes
    # An axis may be given to an index that it already splits somewhere, or to none (""). Any other index would move
    # all operands for nothing.
    choices: list[list[str]] = []
    for axis in axes:
        split = [dim.name for dim in line.dims if axis in dim.axes]
        choices.append(list(dict.fromkeys([*split, ""])))
    distinct: dict[tuple[str, ...], Strategy] = {}
    for indices in itertools.islice(itertools.product(*choices), MAX_STRATEGIES):
        assignment = {axis: index for axis, index in zip(axes, indices, strict=True) if index}
        if any(assignment.get(axis) not in line.contracted for axis in line.output.partial):
            continue  # partial sums over an axis arise only where it splits a contracted index
        for strategy in _strategies_of(line, assignment, mesh, prefer):
            # as text: two strategies are the same if their steps read the same
            distinct.setdefault((*map(str, strategy.steps), str(strategy.local)), strategy)
    return list(distinct.values())


def _strategies_of(line: Einsum, assignment: dict[str, str], mesh: Mesh, prefer: str) -> list[Strategy]:
    """The strategies of one assignment of axes to indices: one for each order in which the arrays list the axes of an
    index (they rarely differ)."""
    orders: dict[str, list[tuple[str, ...]]] = {}
    for index in dict.fromkeys(assignment.values()):
        assigned = [axis for axis in assignment if assignment[axis] == index]
        orders[index] = []
        for array in line.arrays:
            # as the array lists them, then those that it does not have; the first axis is the major one
            axes = layout_of(array).get(index, ())
            order = (*(axis for axis in axes if axis in assigned), *without(assigned, axes))
            if order not in orders[index]:
                orders[index].append(order)
    strategies_: list[Strategy] = []
    for chosen in itertools.product(*orders.values()):
        strategies_.append(_strategy(line, dict(zip(orders, chosen, strict=True)), mesh, prefer))
    return strategies_


def _strategy(line: Einsum, split: dict[str, tuple[str, ...]], mesh: Mesh, prefer: str) -> Strategy:
    """Bring the operands to the split, multiply, and bring the result to the output's layout."""
    before: list[Step] = []
    local: list[Array] = []
    for array in line.operands:
        shard = array.with_layout(split)
        before += reshard(array, shard, mesh, prefer)
        local.append(shard)
    # each chip has summed its part of the contracted indices only
    summed = tuple(axis for index in line.contracted for axis in split.get(index, ()))
    partial = line.output.with_layout(split, summed)
    after = reshard(partial, line.output, mesh, prefer)
    replicated = without(mesh.axes, list(itertools.chain.from_iterable(split.values())))
    return Strategy(tuple(before), Einsum(tuple(local), partial), after, replicated)


def _reshard_only(line: Einsum, mesh: Mesh, prefer: str) -> Strategy:
    """The strategy of a line that computes nothing: the array, under its new name, takes its new layout."""
    [source] = line.operands
    renamed = line.output.with_layout(layout_of(source), source.partial)
    moves = reshard(renamed, line.output, mesh, prefer)
    return Strategy((), Einsum((source,), renamed), moves, replicated_over(source, mesh))


def book_case(line: Einsum) -> int:
    """Which of the book's four cases a matmul falls under.

    1: no contracted dim is split and no axis is used twice. 2: one operand's contracted dim is split. 3: both are, over
    the same axes. 4: one axis splits different dims of the operands that stay in the output.
    """
    index_of: dict[str, str] = {}  # the dim of the output that each axis splits
    contracted: list[dict[str, tuple[str, ...]]] = []  # of each operand, the axes of its contracted dims
    for array in line.operands:
        contracted.append({dim.name: dim.axes for dim in array.dims if dim.name in line.contracted})
        for dim in array.dims:
            if dim.name in line.contracted:
                continue
            for axis in dim.axes:
                if index_of.setdefault(axis, dim.name) != dim.name:
                    return 4
    if not any(any(axes.values()) for axes in contracted):
        return 1
    if all(axes == contracted[0] for axes in contracted):
        return 3
    return 2


def backward(line: Einsum) -> list[Einsum]:
    """The einsums of the backward pass: the gradient of each operand, laid out like the operand.

    The gradient of the output is laid out like the output; where the forward pass left partial sums, it is whole.

    >>> from dragonscale.physics.notation import parse_einsum
    >>> for gradient in backward(parse_einsum("A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]")):
    ...     print(gradient)
    dC[I_X, K_Y] · B[J, K_Y] -> dA[I_X, J]
    A[I_X, J] · dC[I_X, K_Y] -> dB[J, K_Y]
    """
    gradients = []
    upstream = replace(line.output, name=f"d{line.output.name or 'C'}", partial=())
    for index, operand in enumerate(line.operands):
        # C = A·B gives dA = dC·B and dB = A·dC
        operands = (*line.operands[:index], upstream, *line.operands[index + 1 :])
        result = replace(operand, name=f"d{operand.name or 'AB'[index % 2]}", partial=())
        gradients.append(Einsum(operands, result))
    return gradients
