"""Several sharded einsums in a row, forward and backward, with the collectives of each pass.

The layouts of intermediates are free, so those that make the whole chain cheapest are chosen. Within a pass, an array
that two lines need in the same layout is moved once. For the book's mixed FSDP and tensor parallelism this gives its
eleven collectives:

>>> from dragonscale.physics.notation import parse_chain
>>> lines = parse_chain("In[B_X, D_Y] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_X, D_Y]")
>>> mesh, sizes = Mesh({"X": 16, "Y": 4}), {"B": 49152, "D": 8192, "F": 32768}
>>> forward, backward = passes(lines, sizes, mesh)
>>> [f"{step.kind}_{''.join(step.axes)} {step.before.name}" for step in collectives(forward)]
['all_gather_Y In', 'all_gather_X W_in', 'all_gather_X W_out', 'reduce_scatter_Y Out']
>>> len(collectives(forward)) + len(collectives(backward))
11
"""

import itertools
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.physics.collectives import BOOK, Options
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.sharding.algebra import Strategy, backward, plain_sizes, rank, strategies
from dragonscale.physics.sharding.layout import Sizes, check_layout
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import Step

# Mesh axes up to which intermediates may be split over any axis of the chain.
_MAX_FREE_AXES = 2


@dataclass(frozen=True)
class PlannedEinsum:
    """An einsum with every strategy to compute it, the cheapest first."""

    line: Einsum
    ways: tuple[Strategy, ...]

    @property
    def best(self) -> Strategy:
        """The cheapest strategy."""
        return self.ways[0]


def passes(
    lines: list[Einsum], sizes: Sizes, mesh: Mesh, options: Options = BOOK
) -> tuple[list[PlannedEinsum], list[PlannedEinsum]]:
    """The lines of the forward pass of a chain, and those of the backward pass, each with its strategies."""
    laid_out = choose_intermediates(lines, sizes, mesh, options)
    gradients = [gradient for line in reversed(laid_out) for gradient in backward(line)]

    def plan(line: Einsum) -> PlannedEinsum:
        return PlannedEinsum(line, tuple(strategies(line, sizes, mesh, options)))

    return [plan(line) for line in laid_out], [plan(line) for line in gradients]


def collectives(planned: list[PlannedEinsum]) -> list[Step]:
    """The collectives of one pass: those of each line's cheapest strategy, every move once."""
    return list(dict.fromkeys(step for line in planned for step in line.best.collectives))


def choose_intermediates(lines: list[Einsum], sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> list[Einsum]:
    """The chain with a layout for each intermediate, such that its lines are cheapest together."""
    if len(lines) == 1:
        return lines
    plain = plain_sizes(sizes)
    axes = tuple(dict.fromkeys(axis for line in lines for axis in line.axes))
    layouts: list[list[Array]] = []  # of each intermediate
    for line in lines[:-1]:
        layouts.append([array for array in _layouts(line, axes) if _divides(array, plain, mesh)])

    def cost(einsums: list[Einsum]) -> tuple[float, ...]:
        # each rank is (bound, sum over resources, collectives); they are added one by one
        ranks = [rank(strategies(line, plain, mesh, options)[0], plain, mesh, options) for line in einsums]
        return tuple(map(sum, zip(*ranks, strict=True)))

    # every combination of layouts: line i reads intermediate i-1 and writes intermediate i
    chains: list[list[Einsum]] = []
    for intermediates in itertools.product(*layouts):
        inputs, outputs = (lines[0].operands[0], *intermediates), (*intermediates, lines[-1].output)
        chain = [
            Einsum((source, *line.operands[1:]), output)
            for line, source, output in zip(lines, inputs, outputs, strict=True)
        ]
        chains.append(chain)
    return min(chains, key=cost)


def _divides(array: Array, sizes: Sizes, mesh: Mesh) -> bool:
    """Whether every dim divides into its shards; a layout that nobody asked for is skipped, not refused."""
    try:
        check_layout(array, sizes, mesh)
    except InputError:
        return False
    return True


def _layouts(line: Einsum, axes: tuple[str, ...]) -> list[Array]:
    """The layouts that an intermediate may take: each dim as one of the operands splits it, over one axis of the chain,
    or whole; no axis twice. In a chain of many axes only the layouts of the line's operands are tried."""
    single = [(axis,) for axis in axes] if len(axes) <= _MAX_FREE_AXES else []
    operand_dims = [dim for array in line.operands for dim in array.dims]
    choices: list[list[tuple[str, ...]]] = []
    for name in line.output.names:
        as_operands = [dim.axes for dim in operand_dims if dim.name == name and dim.axes]
        choices.append(list(dict.fromkeys([*as_operands, *single, ()])))
    layouts: list[Array] = []
    for splits in itertools.product(*choices):
        used = list(itertools.chain.from_iterable(splits))
        if len(used) == len(set(used)):
            layouts.append(line.output.with_layout(dict(zip(line.output.names, splits, strict=True))))
    return layouts
