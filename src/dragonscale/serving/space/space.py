"""Every way to serve a model that is worth judging: slices of a chip, shardings and formats that an engine runs.

A *lot* is a set of plans of one structure (the same formats and the same spread of the cache) on one kind of wiring, as
arrays; each is costed in one call.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
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

MAX_COPY_CHIPS = 72
"""Most chips of one copy of a model that are considered by default: a rack of 72, elsewhere 64."""
RACK_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 36, 48, 64, 72)
"""GPUs of a rack of trays that one copy uses: parts of a tray, and whole trays as racks are rented and run (AWS
u-p6e-gb200x36 and x72; 64 of 72 with two trays spare; 48 in LMSYS's decode on GB200)."""

PIPES = (1, 2, 4, 8)
"""Stages of pipelines that are tried for every engine."""


@dataclass(frozen=True)
class Lot:
    """Plans that are costed together: `plan` holds arrays, (plans,), and `pieces` the slice of each.

    Under switches the links of a group do not depend on the size of the slice, so all slices of a chip go together. On
    a torus each slice has its own lot.
    """

    pieces: tuple[Slice, ...]
    plan: ServingPlan

    @property
    def piece(self) -> Slice:
        """The slice whose links count: the largest."""
        return max(self.pieces, key=lambda piece: piece.chips)

    def __len__(self) -> int:
        return len(numpy.atleast_1d(self.plan.tensor))

    def one(self, index: int) -> ServingPlan:
        """The plan at an index."""
        degrees = {name: int(numpy.atleast_1d(getattr(self.plan, name))[index]) for name in DEGREES}
        return replace(self.plan, **degrees)


def slices_of(chip: Chip, max_chips: int | None = None) -> list[Slice]:
    """Slices that can be had, smallest first, up to `max_chips`.

    By default up to a rack; for cards that only share PCIe up to one machine, since nobody spreads a copy of a model
    over several of these unless it fits in no other way.

    >>> from dragonscale.physics.hardware import load_chip
    >>> (
    ...     [piece.chips for piece in slices_of(load_chip("gb200"))][-4:],
    ...     [piece.chips for piece in slices_of(load_chip("h100"))],
    ...     [piece.chips for piece in slices_of(load_chip("l4"))],
    ... )
    ([36, 48, 64, 72], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8])
    """
    if isinstance(chip.network, Torus):
        limit = max_chips or MAX_COPY_CHIPS
        return [Slice(chip, shape) for shape in possible_shapes(chip) if math.prod(shape) <= limit]
    node, bandwidth = chip.network.levels[0].degree, chip.network.levels[0].bandwidth
    if not max_chips:
        max_chips = MAX_COPY_CHIPS if bandwidth > (chip.pcie or 0.0) else node
    within_node: Sequence[int] = [2**power for power in range(20)]
    if chip.host_chips < node:  # several hosts under one switch: a rack of trays
        within_node = RACK_SIZES
    sizes = {size for size in (*within_node, node) if size <= min(node, max_chips)}
    size = 2 * node
    while size <= max_chips:
        sizes.add(size)
        size *= 2
    return [Slice(chip, (size,)) for size in sorted(sizes)]


def parts_of(whole: Slice) -> list[Slice]:
    """The slice itself and the smaller ones that it can be cut into with nothing left over; smallest first.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [str(part) for part in parts_of(parse_slice("v5e:2x4"))], len(parts_of(parse_slice("h100:16")))
    (['v5e:1x1', 'v5e:2x2', 'v5e:2x4'], 5)
    """
    network = whole.chip.network
    if isinstance(network, Torus):
        smaller = [Slice(whole.chip, shape) for shape in possible_shapes(whole.chip) if _tiles(shape, whole.shape)]
    else:
        node, tray = network.levels[0].degree, whole.chip.host_chips
        smaller: list[Slice] = []
        for size in range(1, whole.chips):
            # a copy uses a part of a tray or whole trays, a part of a node or whole nodes
            fits_trays = tray >= node or tray % size == 0 or size % tray == 0
            fits_nodes = node % size == 0 or size % node == 0
            if whole.chips % size == 0 and fits_trays and fits_nodes:
                smaller.append(Slice(whole.chip, (size,)))
    by_name = {str(part): part for part in smaller if part.chips < whole.chips}
    return [*sorted(by_name.values(), key=lambda part: part.chips), whole]


def pool_parts(whole: Slice) -> list[Slice]:
    """Parts of a slice that a prefill or decode replica may use, beside others.

    The slice's own parts; under switches also the slices that can be had and any number of whole servers.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [part.chips for part in pool_parts(parse_slice("h100:40"))]
    [1, 2, 4, 8, 16, 24, 32]
    """
    parts = parts_of(whole)[:-1]
    if isinstance(whole.chip.network, Torus):
        return parts
    node = whole.chip.network.levels[0].degree
    sizes = {part.chips for part in (*parts, *slices_of(whole.chip))} | {*range(node, MAX_COPY_CHIPS + 1, node)}
    return [Slice(whole.chip, (size,)) for size in sorted(sizes) if size < whole.chips]


def _tiles(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether boxes of one shape, rotated somehow, fill the other."""
    return any(
        all(whole % part == 0 for part, whole in zip(turned, large, strict=True)) for turned in permutations(small)
    )


def splits(model: Transformer, chips: Slice, engine: str = "generic") -> Iterator[ServingPlan]:
    """Plans that use a whole slice and that an engine runs, without formats.

    They split by `tensor`, by `data` beside experts, by `width` on tori, and by a pipeline if the slice is larger than
    what the fast network joins.
    """
    row, sizes = rules(engine), divisible(model)
    return (plan for plan in _splits(row, sizes, chips) if legal_widths(row, chips.chip, sizes, plan))


def _splits(row: EngineLegality, sizes: Divisible, chips: Slice) -> Iterator[ServingPlan]:
    network, count = chips.chip.network, chips.chips
    torus = isinstance(network, Torus)
    joined = count if torus else network.levels[0].degree  # chips that the fast network joins
    if row.layers_anyhow and count not in PIPES and count <= sizes.layers:
        yield ServingPlan(pipe=count)
    for pipe in PIPES:
        if count % pipe or pipe > sizes.layers:
            continue
        stage = count // pipe
        if pipe > 1 and 2 * stage <= joined and sizes.heads % (2 * stage) == 0:
            continue  # wider tensor parallelism would do
        max_data = stage if sizes.experts and pipe == 1 else 1
        for data in _divisors(stage, range(1, max_data + 1)):
            if sizes.heads % (stage // data) == 0:
                yield from _dealt(stage // data, data, pipe, sizes.experts, row)
        if torus and pipe == 1:
            for width in _divisors(stage, (2, 4, 8, 16)):
                if stage > width and sizes.heads % (stage // width) == 0:
                    yield ServingPlan(tensor=stage // width, width=width)


def _divisors(number: int, candidates: Iterable[int]) -> list[int]:
    return [size for size in candidates if number % size == 0]


def _dealt(tensor: int, data: int, pipe: int, experts: int, row: EngineLegality) -> Iterator[ServingPlan]:
    """Plans by the ways that experts are dealt out: over one rank or all; with `data` over all, or over `data`
    alone."""
    world = data * tensor
    if not experts:
        ways = {1}
    elif data == 1:
        ways = {1, world}
    elif row.expert == "divides":
        ways = {world, data}
    else:
        ways = {world}
    for expert in sorted(ways):
        yield ServingPlan(tensor=tensor, data=data, expert=expert, pipe=pipe)


def lots(
    model: Transformer,
    pieces: Iterable[Slice],
    formats: Formats,
    spreads: tuple[str, ...] = ("copy",),
    engine: str = "generic",
    roles: tuple[str, ...] = (BOTH,),
) -> Iterator[Lot]:
    """The plans of some slices of one chip, with one set of formats, that an engine runs in replicas of one of the
    roles; one lot for each way to spread the cache."""
    row, sizes = rules(engine), divisible(model)
    settings: dict[str, Any] = vars(formats)
    groups: dict[str, list[tuple[Slice, ServingPlan]]] = {}
    for chips in pieces:
        wiring = str(chips) if isinstance(chips.chip.network, Torus) else chips.chip.name
        group = groups.setdefault(wiring, [])
        for split in _splits(row, sizes, chips):
            plan = replace(split, **settings)
            if legal_widths(row, chips.chip, sizes, plan, roles):
                group.append((chips, plan))
    for group in groups.values():
        if not group:
            continue
        slices, plans = zip(*group, strict=True)
        for spread in spreads:
            yield Lot(slices, stack(plans, formats, spread))


def stack(plans: Sequence[ServingPlan], formats: Formats, spread: str) -> ServingPlan:
    """Plans as one, with arrays for its degrees: (plans,)."""
    degrees: dict[str, Any] = {name: numpy.array([getattr(plan, name) for plan in plans], float) for name in DEGREES}
    return ServingPlan(**degrees, **vars(formats), spread=spread)


def one_plan(chips: Slice, plan: ServingPlan) -> Lot:
    """A lot of a single plan."""
    formats = Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)
    return Lot((chips,), stack([plan], formats, plan.spread))


def smallest_slice(chip: Chip, size: float) -> Slice | None:
    """The smallest slice of one pod whose memory holds `size` bytes, or None if even a pod does not.

    GPUs come in powers of two within a node, so that heads divide, and in whole nodes beyond.

    >>> from dragonscale.physics.hardware import load_chip
    >>> print(smallest_slice(load_chip("v5e"), 70e9))
    v5e:2x4
    """
    network = chip.network
    if isinstance(network, Torus):
        for shape in possible_shapes(chip):
            if math.prod(shape) * chip.visible >= size:
                return Slice(chip, shape)
        return None
    node = network.levels[0].degree
    power_of_two = 2 ** math.ceil(math.log2(max(math.ceil(size / chip.visible), 1)))
    if power_of_two <= node:
        return Slice(chip, (power_of_two,))
    return Slice(chip, (math.ceil(size / chip.visible / node) * node,))
