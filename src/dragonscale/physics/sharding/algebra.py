"""Sharded einsums: which collectives they need, in every legal way, and what each way costs.

One rule covers every case of the book. *Give each mesh axis to at most one index of the einsum.* Whatever operand is
laid out otherwise must be gathered or moved first; an axis given to a summed index leaves a partial sum, to be reduced
or scattered; an axis given to no index repeats the work. The choices follow from the layouts alone, so they are derived
once, and the cheapest is chosen for the sizes at hand.

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
from dragonscale.physics.collectives import BOOK, Options, Seconds, collective_time, wire_bytes
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.numbers import Number, is_array, is_symbolic, maximum
from dragonscale.physics.rooflines import compute_dtype
from dragonscale.physics.sharding.layout import Sizes, check_layout, local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import Step, reshard

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
        used = {axis for array in (*self.local.operands, self.local.output) for axis in (*array.axes, *array.partial)}
        return self.local.flops(sizes) / mesh.size(*used)

    def wire_bytes(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that each chip sends."""
        return sum(wire_bytes(step.kind, step.volume(sizes, mesh), mesh.size(*step.axes)) for step in self.collectives)

    def step_seconds(self, sizes: Sizes, mesh: Mesh, options: Options) -> list[Seconds]:
        """The time of each collective on the mesh's wires."""
        moves = [(step.kind, step.volume(sizes, mesh), mesh.group(step.axes)) for step in self.collectives]
        return [collective_time(*move, options) for move in moves]

    def comms_seconds(self, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> Number:
        """Time of all collectives, one after the other."""
        return sum(seconds.lower for seconds in self.step_seconds(sizes, mesh, options))

    def math_seconds(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Time of the local einsum at the chip's peak rate for the wider of its operands; a reshard
        computes nothing."""
        assert mesh.chip is not None
        if self.is_reshard:  # so a chip without a rate for the dtype can still move it
            return 0
        return self.flops(sizes, mesh) / mesh.chip.peak(compute_dtype(self.local))

    def hbm_read(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip reads for the local einsum: its blocks of the operands, once each."""
        return 0 if self.is_reshard else sum(local_bytes(array, sizes, mesh) for array in self.local.operands)

    def hbm_written(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip writes: its block of the result."""
        return 0 if self.is_reshard else local_bytes(self.local.output, sizes, mesh)

    def hbm_bytes(self, sizes: Sizes, mesh: Mesh) -> Number:
        """Bytes that one chip reads and writes for the local einsum; a reshard computes nothing."""
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
        """Everything overlaps perfectly: the slowest resource."""
        return maximum(*self.seconds(sizes, mesh, options).values())

    @property
    def is_reshard(self) -> bool:
        """Whether it only moves one array to another layout."""
        return len(self.local.operands) == 1 and not self.local.contracted


def strategies(line: Einsum, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> list[Strategy]:
    """Every legal strategy, cheapest first.

    Cheapest is the least lower bound of the time, then the least sum of its parts; without a chip, FLOPs and bytes are
    weighed by `FLOPS_PER_BYTE`. Sizes that are symbols are ranked as if they were all equal and large.
    """
    for array in (*line.operands, line.output):
        check_layout(array, sizes, mesh)
    plain_mesh = all(isinstance(size, int) for size in mesh.axes.values())
    found = _derived(line, tuple(mesh.axes.items())) if plain_mesh else derive(line, mesh)
    if not found:
        axes = ", ".join(line.output.partial)
        raise InputError(f"{line.output} is to hold partial sums over {axes}, but no summed dim is split over that.")
    plain = plain_sizes(sizes)
    return sorted(found, key=lambda strategy: rank(strategy, plain, mesh, options))


@functools.lru_cache(maxsize=512)
def _derived(line: Einsum, axes: tuple[tuple[str, int], ...]) -> tuple[Strategy, ...]:
    """The strategies of `derive`, which sizes and wires do not change: while a size is varied they are found once."""
    return tuple(derive(line, Mesh(dict(axes))))


def plain_sizes(sizes: Sizes) -> Sizes:
    """The sizes with large numbers in place of symbols and arrays, for choosing among strategies."""
    return {name: 8192 if is_symbolic(size) or is_array(size) else size for name, size in sizes.items()}


def rank(strategy: Strategy, sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> tuple[float, ...]:
    """What strategies are compared by: the lower bound, the sum of its parts, the number of collectives."""
    if mesh.chip is None:
        flops, sent = strategy.flops(sizes, mesh), strategy.wire_bytes(sizes, mesh)
        parts = [float(flops), float(sent) * FLOPS_PER_BYTE]
    else:
        parts = [float(seconds) for seconds in strategy.seconds(sizes, mesh, options).values()]
    return (max(parts), sum(parts), len(strategy.collectives))


def derive(line: Einsum, mesh: Mesh, prefer: str = "move") -> list[Strategy]:
    """The strategies that the layouts allow, whatever the sizes. `prefer` is that of `reshard`."""
    if len(line.operands) == 1 and not line.contracted:
        return [_reshard_only(line, mesh, prefer)]
    axes = line.axes
    # An axis may be given to the indices that it already splits somewhere, or to none.
    dims = [dim for array in (*line.operands, line.output) for dim in array.dims]
    choices = [list(dict.fromkeys([*(dim.name for dim in dims if axis in dim.axes), ""])) for axis in axes]
    found: dict[tuple[object, ...], Strategy] = {}
    for given in itertools.islice(itertools.product(*choices), MAX_STRATEGIES):
        assignment = {axis: index for axis, index in zip(axes, given, strict=True) if index}
        kept = {axis for axis in assignment if assignment[axis] in line.contracted}
        if not set(line.output.partial) <= kept:
            continue  # an output of partial sums needs them to arise
        for strategy in _orders(line, assignment, mesh, prefer):
            key = tuple((step.kind, step.axes, str(step.before), str(step.after)) for step in strategy.steps)
            found.setdefault((*key, str(strategy.local)), strategy)
    return list(found.values())


def _orders(line: Einsum, assignment: dict[str, str], mesh: Mesh, prefer: str) -> list[Strategy]:
    """One strategy for each order in which the arrays list the axes of an index (they rarely differ)."""
    arrays = (*line.operands, line.output)
    options: dict[str, list[tuple[str, ...]]] = {}
    for index in dict.fromkeys(assignment.values()):
        mine = [axis for axis in assignment if assignment[axis] == index]
        orders = []
        for array in arrays:
            held = [axis for dim in array.dims if dim.name == index for axis in dim.axes if axis in mine]
            orders.append((*held, *(axis for axis in mine if axis not in held)))
        options[index] = list(dict.fromkeys(orders))
    every = itertools.product(*options.values())
    return [_strategy(line, dict(zip(options, chosen, strict=True)), mesh, prefer) for chosen in every]


def _strategy(line: Einsum, split: dict[str, tuple[str, ...]], mesh: Mesh, prefer: str) -> Strategy:
    """Bring the operands to the split, multiply, and bring the result to the output's layout."""
    before: list[Step] = []
    local: list[Array] = []
    for array in line.operands:
        wanted = array.with_layout(split)
        before += reshard(array, wanted, mesh, prefer)
        local.append(wanted)
    summed = tuple(axis for index in line.contracted for axis in split.get(index, ()))
    raw = line.output.with_layout(split, summed)
    after = reshard(raw, line.output, mesh, prefer)
    used = {axis for axes in split.values() for axis in axes}
    repeated = tuple(axis for axis in mesh.axes if axis not in used)
    return Strategy(tuple(before), Einsum(tuple(local), raw), after, repeated)


def _reshard_only(line: Einsum, mesh: Mesh, prefer: str) -> Strategy:
    """Nothing is computed: the array, under its new name, walks to its new layout."""
    [source] = line.operands
    named = line.output.with_layout({dim.name: dim.axes for dim in source.dims}, source.partial)
    repeated = tuple(axis for axis in mesh.axes if axis not in (*source.axes, *source.partial))
    moves = reshard(named, line.output, mesh, prefer)
    return Strategy((), Einsum((source,), named), moves, repeated)


def book_case(line: Einsum) -> int:
    """Which of the book's four cases a matmul falls under.

    1: no summed dim is split and no axis is used twice. 2: one operand's summed dim is split. 3:
    both are, over the same axes. 4: one axis splits different kept dims of the operands.
    """
    kept = {(axis, dim.name) for array in line.operands for dim in array.dims for axis in dim.axes}
    kept = {(axis, index) for axis, index in kept if index not in line.contracted}
    if len(kept) != len({axis for axis, _ in kept}):
        return 4
    splits = [{dim.name: dim.axes for dim in array.dims if dim.name in line.contracted} for array in line.operands]
    if not any(axes for split in splits for axes in split.values()):
        return 1
    return 3 if all(split == splits[0] for split in splits) else 2


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
    for place, operand in enumerate(line.operands):
        operands = tuple(upstream if other == place else array for other, array in enumerate(line.operands))
        result = replace(operand, name=f"d{operand.name or 'AB'[place % 2]}", partial=())
        gradients.append(Einsum(operands, result))
    return gradients
