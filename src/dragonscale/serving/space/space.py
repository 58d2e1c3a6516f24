"""Every way to serve a model that is worth looking at: slices of a chip, shardings, formats; of those what an engine
runs.

A *lot* is a set of plans with one structure (the same formats and the same spread of the cache) on one kind of wiring,
as arrays; each is costed in one call.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.slices import possible_shapes
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import EngineLegality, rules
from dragonscale.serving.engine.plan import DEGREES, ServingPlan
from dragonscale.serving.engine.restrictions import BOTH
from dragonscale.serving.space.legal import Divisible, divisible, legal_widths

LARGEST = 72
"""Chips of one copy of a model beyond which nobody looks unless asked for: a rack of 72, elsewhere 64."""
RACK = (1, 2, 4, 8, 12, 16, 24, 32, 36, 48, 64, 72)
"""GPUs of a rack of trays that a copy takes: parts of a tray, and the whole trays that racks are rented and run in (AWS
u-p6e-gb200x36 and x72; 64 of 72 with two trays spare; 48 in LMSYS's decode on GB200)."""


@dataclass(frozen=True)
class Lot:
    """Plans that are costed together: `plan` holds arrays, `pieces` the slice of each. Under switches the wires of a
    group do not depend on the size of the slice, so all slices of a chip go together; on a torus each slice has its
    own."""

    pieces: tuple[Slice, ...]
    plan: ServingPlan

    @property
    def piece(self) -> Slice:
        """The slice whose wires are meant: the largest."""
        return max(self.pieces, key=lambda piece: piece.chips)

    def __len__(self) -> int:
        return len(numpy.atleast_1d(self.plan.tensor))

    def one(self, place: int) -> ServingPlan:
        """One of the plans."""
        return replace(self.plan, **{name: int(numpy.atleast_1d(getattr(self.plan, name))[place]) for name in DEGREES})


def slices_of(chip: Chip, most: int | None = None) -> list[Slice]:
    """Slices that can be had, smallest first, up to so many chips: a rack, or of cards that meet over PCIe alone one
    machine, since nobody spreads a copy of a model over machines of these unless it fits in no other way.

    >>> from dragonscale.physics.hardware import load_chip
    >>> (
    ...     [piece.chips for piece in slices_of(load_chip("gb200"))][-4:],
    ...     [piece.chips for piece in slices_of(load_chip("h100"))],
    ...     [piece.chips for piece in slices_of(load_chip("l4"))],
    ... )
    ([36, 48, 64, 72], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8])
    """
    if isinstance(chip.network, Torus):
        return [Slice(chip, shape) for shape in possible_shapes(chip) if math.prod(shape) <= (most or LARGEST)]
    node, within = chip.network.levels[0].degree, chip.network.levels[0].bandwidth
    most = most or (LARGEST if within > (chip.pcie or 0.0) else node)
    trays = chip.host_chips < node  # several hosts under one switch
    sizes = {size for size in RACK if size <= min(node, most)} if trays else set[int]()
    sizes |= {2**power for power in range(20) if 2**power <= min(node, most)} if not trays else set()
    sizes |= {node} if node <= most else set()
    size = 2 * node
    while size <= most:
        sizes.add(size)
        size *= 2
    return [Slice(chip, (size,)) for size in sorted(sizes)]


def parts_of(piece: Slice) -> list[Slice]:
    """The slice itself, and the smaller ones that it can be cut into with nothing left over; smallest first.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [str(part) for part in parts_of(parse_slice("v5e:2x4"))], len(parts_of(parse_slice("h100:16")))
    (['v5e:1x1', 'v5e:2x2', 'v5e:2x4'], 5)
    """
    network = piece.chip.network
    if isinstance(network, Torus):
        smaller = [Slice(piece.chip, shape) for shape in possible_shapes(piece.chip) if _tiles(shape, piece.shape)]
    else:
        node = network.levels[0].degree
        sizes = [size for size in range(1, piece.chips) if piece.chips % size == 0]
        tray = piece.chip.host_chips  # a copy takes a part of a tray, or whole ones
        whole = [size for size in sizes if tray >= node or tray % size == 0 or size % tray == 0]
        smaller = [Slice(piece.chip, (size,)) for size in whole if node % size == 0 or size % node == 0]
    found = {str(part): part for part in smaller if part.chips < piece.chips}
    return [*sorted(found.values(), key=lambda part: part.chips), piece]


def pool_parts(piece: Slice) -> list[Slice]:
    """What pools for prefill and decode take of a slice: those of its parts, and under switches those that can be had
    and any number of whole servers, with room beside them.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [part.chips for part in pool_parts(parse_slice("h100:40"))]
    [1, 2, 4, 8, 16, 24, 32]
    """
    parts = parts_of(piece)[:-1]
    if isinstance(piece.chip.network, Torus):
        return parts
    node = piece.chip.network.levels[0].degree
    sizes = {part.chips for part in (*parts, *slices_of(piece.chip))} | {*range(node, LARGEST + 1, node)}
    return [Slice(piece.chip, (size,)) for size in sorted(sizes) if size < piece.chips]


def _tiles(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether boxes of one shape, turned somehow, fill the other."""
    return any(
        all(whole % part == 0 for part, whole in zip(turned, large, strict=True)) for turned in permutations(small)
    )


def splits(model: Transformer, piece: Slice, engine: str = "generic") -> Iterator[ServingPlan]:
    """Plans that use a whole slice and that an engine runs, without formats: `tensor`, `data` beside experts, `width`
    on tori, and a pipeline where the slice is larger than what the fast network joins."""
    row, sizes = rules(engine), divisible(model)
    return (plan for plan in _ways(row, sizes, piece) if legal_widths(row, piece.chip, sizes, plan))


def _ways(row: EngineLegality, sizes: Divisible, piece: Slice) -> Iterator[ServingPlan]:
    network, chips = piece.chip.network, piece.chips
    torus = isinstance(network, Torus)
    joined = chips if torus else network.levels[0].degree
    for pipe in (size for size in (1, 2, 4, 8) if chips % size == 0 and size <= sizes.layers):
        rest = chips // pipe
        if pipe > 1 and 2 * rest <= joined and sizes.heads % (2 * rest) == 0:
            continue  # wider tensor parallelism would do
        several = rest if sizes.experts and pipe == 1 else 1
        for data in (size for size in range(1, several + 1) if rest % size == 0):
            if sizes.heads % (rest // data) == 0:
                yield from _dealt(rest // data, data, pipe, sizes.experts, row)
        if torus and pipe == 1:
            for width in (size for size in (2, 4, 8, 16) if rest % size == 0 and rest // size > 1):
                if sizes.heads % (rest // width) == 0:
                    yield ServingPlan(tensor=rest // width, width=width)


def _dealt(tensor: int, data: int, pipe: int, experts: int, row: EngineLegality) -> Iterator[ServingPlan]:
    """Plans by the ways that experts are dealt: over none of the ranks or all; beside `data` over all, or over `data`
    alone."""
    world = data * tensor
    ways = {1, world} if data == 1 else {world, data} if row.expert == "divides" else {world}
    for expert in sorted(ways if experts else {1}):
        yield ServingPlan(tensor=tensor, data=data, expert=expert, pipe=pipe)


def lots(
    model: Transformer,
    pieces: Iterable[Slice],
    formats: Formats,
    spreads: tuple[str, ...] = ("copy",),
    engine: str = "generic",
    roles: tuple[str, ...] = (BOTH,),
) -> Iterator[Lot]:
    """The plans of some slices of one chip with one set of formats that an engine runs in replicas of one of the roles,
    by way to spread the cache."""
    row, sizes = rules(engine), divisible(model)
    words: dict[str, Any] = vars(formats)
    groups: dict[str, list[tuple[Slice, ServingPlan]]] = {}
    for piece in pieces:
        torus = isinstance(piece.chip.network, Torus)
        own = groups.setdefault(str(piece) if torus else piece.chip.name, [])
        plans = (replace(plan, **words) for plan in _ways(row, sizes, piece))
        own += [(piece, plan) for plan in plans if legal_widths(row, piece.chip, sizes, plan, roles)]
    for found in groups.values():
        for spread in spreads if found else ():
            yield Lot(tuple(piece for piece, _ in found), stack([plan for _, plan in found], formats, spread))


def stack(plans: list[ServingPlan], formats: Formats, spread: str) -> ServingPlan:
    """Plans as one, with arrays for numbers."""
    numbers: dict[str, Any] = {name: numpy.array([getattr(plan, name) for plan in plans], float) for name in DEGREES}
    return ServingPlan(**numbers, **vars(formats), spread=spread)


def one_plan(piece: Slice, plan: ServingPlan) -> Lot:
    """A plan by itself, to be judged with some batches."""
    formats = Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)
    return Lot((piece,), stack([plan], formats, plan.spread))


def smallest_slice(chip: Chip, size: float) -> Slice | None:
    """The smallest slice of one pod whose memory holds `size` bytes, or None where even a pod does not.

    GPUs come in powers of two within a node, so that heads divide, and in whole nodes beyond.

    >>> from dragonscale.physics.hardware import load_chip
    >>> print(smallest_slice(load_chip("v5e"), 70e9))
    v5e:2x4
    """
    network = chip.network
    if isinstance(network, Torus):
        shapes = possible_shapes(chip)
        fitting = [shape for shape in shapes if math.prod(shape) * chip.visible >= size]
        return Slice(chip, fitting[0]) if fitting else None
    node = network.levels[0].degree
    within = 2 ** math.ceil(math.log2(max(math.ceil(size / chip.visible), 1)))
    return Slice(chip, (within if within <= node else math.ceil(size / chip.visible / node) * node,))
