"""Several sharded einsums in a row, forward and backward, with the collectives of each pass.

The layouts of intermediates are free: those are chosen that make the whole chain cheapest. Within a
pass, an array that two lines need in the same form is moved once. For the book's mixed FSDP and
tensor parallelism this gives its eleven collectives:

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

MOST_AXES = 2


@dataclass(frozen=True)
class PlannedEinsum:
    """An einsum with every way to do it, the cheapest first."""

    line: Einsum
    ways: tuple[Strategy, ...]

    @property
    def best(self) -> Strategy:
        return self.ways[0]


def passes(
    lines: list[Einsum], sizes: Sizes, mesh: Mesh, options: Options = BOOK
) -> tuple[list[PlannedEinsum], list[PlannedEinsum]]:
    """The forward and backward lines of a chain, each with its strategies."""
    laid_out = choose_intermediates(lines, sizes, mesh, options)
    gradients = [gradient for line in reversed(laid_out) for gradient in backward(line)]

    def plan(line: Einsum) -> PlannedEinsum:
        return PlannedEinsum(line, tuple(strategies(line, sizes, mesh, options)))

    return [plan(line) for line in laid_out], [plan(line) for line in gradients]


def collectives(planned: list[PlannedEinsum]) -> list[Step]:
    """The collectives of one pass: the cheapest way of each line, every move once."""
    return list(dict.fromkeys(step for line in planned for step in line.best.collectives))


def choose_intermediates(lines: list[Einsum], sizes: Sizes, mesh: Mesh, options: Options = BOOK) -> list[Einsum]:
    """The chain with a layout for each intermediate, such that its lines are cheapest together."""
    if len(lines) == 1:
        return lines
    plain = plain_sizes(sizes)

    def chain(chosen: tuple[Array, ...]) -> list[Einsum]:
        inputs, outputs = [lines[0].operands[0], *chosen], [*chosen, lines[-1].output]
        each = zip(lines, inputs, outputs, strict=True)
        return [Einsum((source, *line.operands[1:]), output) for line, source, output in each]

    def cost(einsums: list[Einsum]) -> tuple[float, ...]:
        ranks = [rank(strategies(line, plain, mesh, options)[0], plain, mesh, options) for line in einsums]
        return tuple(map(sum, zip(*ranks, strict=True)))

    axes = tuple(dict.fromkeys(axis for line in lines for axis in line.axes))
    every = itertools.product(
        *([one for one in _layouts(line, axes) if _divides(one, plain, mesh)] for line in lines[:-1])
    )
    return min((chain(chosen) for chosen in every), key=cost)


def _divides(array: Array, sizes: Sizes, mesh: Mesh) -> bool:
    """Whether every dim divides into its parts: a layout that is not asked for must not be refused."""
    try:
        check_layout(array, sizes, mesh)
    except InputError:
        return False
    return True


def _layouts(line: Einsum, axes: tuple[str, ...]) -> list[Array]:
    """Layouts an intermediate could have: each dim as one of the operands splits it, over one axis of the chain, or
    whole; no axis twice. Where a chain has many axes, those of the line's own operands are enough to look through."""
    single = [(axis,) for axis in axes] if len(axes) <= MOST_AXES else []
    choices: list[list[tuple[str, ...]]] = []
    for dim in line.output.dims:
        held = [other.axes for array in line.operands for other in array.dims if other.name == dim.name and other.axes]
        choices.append(list(dict.fromkeys([*held, *single, ()])))
    layouts: list[Array] = []
    for chosen in itertools.product(*choices):
        used = [axis for split in chosen for axis in split]
        if len(used) == len(set(used)):
            names = line.output.names
            layouts.append(line.output.with_layout(dict(zip(names, chosen, strict=True))))
    return layouts
