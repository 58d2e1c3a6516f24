"""Every way to serve a model that is worth looking at: slices of a chip, shardings, formats.

A *lot* is a set of plans with one structure (the same formats and the same spread of the cache) on one kind of wiring, as
arrays; each is costed in one call.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy

from dragonscale.hardware import Chip, Slice, Torus
from dragonscale.hardware.slices import possible_shapes
from dragonscale.models.transformer import Transformer
from dragonscale.serving.plan import ServingPlan

DEGREES = ("tensor", "data", "expert", "context", "width", "pipe")
"""The numbers of a plan."""
LARGEST = 64
"""Chips of one copy of a model beyond which nobody looks unless asked for."""


@dataclass(frozen=True)
class Formats:
    """Dtypes of weights, matmuls and cache, of the attention where it differs, and of activations between chips."""

    weights: str = "bf16"
    compute: str = "bf16"
    kv: str = "bf16"
    attention: str = ""
    wire: str = "bf16"

    def __str__(self) -> str:
        return f"{self.weights}/{self.compute}, cache {self.kv}"


@dataclass(frozen=True)
class Lot:
    """Plans that are costed together: `plan` holds arrays, `pieces` the slice of each. Under switches the wires of a group
    do not depend on the size of the slice, so all slices of a chip go together; on a torus each slice has its own."""

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


def fp8_products(chip: Chip, model: Transformer) -> str:
    """What fp8 weights are multiplied in. Checkpoints of mixtures have scales by blocks (DeepSeek, Qwen, GLM, MiniMax), and it
    is for those that Hopper has good kernels."""
    mixture = any("e" in section.dims for section in model.program().sections)
    hopper = chip.kind == "gpu" and chip.format("fp8") == "native" and "fp4" not in chip.matrix
    return "fp8_block" if mixture and hopper else "fp8"


def natural_formats(chip: Chip, model: Transformer) -> list[Formats]:
    """Formats that a chip has matrix units for, widest first, and weights narrower than the products."""
    has = {name for name in chip.matrix if chip.format(name) == "native"}
    found = [Formats()]
    if "int8" in has and "fp8" not in has:
        found += [Formats("int8", "bf16", "int8"), Formats("int8", "int8", "int8"), Formats("int4", "bf16", "int8")]
    if "fp8" in has:
        found.append(Formats("fp8", fp8_products(chip, model), "fp8"))
    blocks = [name for name in ("nvfp4", "mxfp4") if chip.format(name) == "native"]
    if blocks:
        found.append(Formats(blocks[0], blocks[0], "fp8", "fp8"))
    elif chip.kind == "gpu" and "fp8" in has:
        found.append(Formats("int4", "bf16", "fp8"))
    stored = model.weight_dtypes.get("experts", "")
    if stored == "mxfp4":
        found.append(Formats("mxfp4", "bf16", "bf16", "bf16"))
    return found


def slices_of(chip: Chip, most: int = LARGEST) -> list[Slice]:
    """Slices that can be had, smallest first, up to so many chips."""
    if isinstance(chip.network, Torus):
        return [Slice(chip, shape) for shape in possible_shapes(chip) if math.prod(shape) <= most]
    node = chip.network.levels[0].degree
    sizes = [2**power for power in range(20) if 2**power <= min(node, most)]
    sizes += [node] if node <= most and node not in sizes else []
    size = 2 * node
    while size <= most:
        sizes.append(size)
        size *= 2
    return [Slice(chip, (size,)) for size in sorted(sizes)]


def parts_of(piece: Slice) -> list[Slice]:
    """The slice itself, and the smaller ones that it can be cut into with nothing left over; smallest first.

    >>> from dragonscale.hardware import parse_slice
    >>> [str(part) for part in parts_of(parse_slice("v5e:2x4"))], len(parts_of(parse_slice("h100:16")))
    (['v5e:1x1', 'v5e:2x2', 'v5e:2x4'], 5)
    """
    network = piece.chip.network
    if isinstance(network, Torus):
        smaller = [Slice(piece.chip, shape) for shape in possible_shapes(piece.chip) if _tiles(shape, piece.shape)]
    else:
        node = network.levels[0].degree
        sizes = [size for size in range(1, piece.chips) if piece.chips % size == 0]
        smaller = [Slice(piece.chip, (size,)) for size in sizes if node % size == 0 or size % node == 0]
    found = {str(part): part for part in smaller if part.chips < piece.chips}
    return [*sorted(found.values(), key=lambda part: part.chips), piece]


def _tiles(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether boxes of one shape, turned somehow, fill the other."""
    return any(
        all(whole % part == 0 for part, whole in zip(turned, large, strict=True)) for turned in permutations(small)
    )


def splits(model: Transformer, piece: Slice) -> Iterator[ServingPlan]:
    """Plans that use a whole slice, without formats: `tensor`, `data` beside experts, `width` on tori, and a pipeline
    where the slice is larger than what the fast network joins."""
    sections = model.program().sections
    experts = max((section.dims.get("e", 0) for section in sections), default=0)
    heads = math.gcd(*(section.dims[name] for section in sections for name in ("n", "u", "mn") if name in section.dims))
    network, chips = piece.chip.network, piece.chips
    torus = isinstance(network, Torus)
    joined = chips if torus else network.levels[0].degree
    for pipe in (size for size in (1, 2, 4, 8) if chips % size == 0 and size <= model.n_layers):
        rest = chips // pipe
        if pipe > 1 and 2 * rest <= joined and heads % (2 * rest) == 0:
            continue  # wider tensor parallelism would do
        for data in (
            size for size in range(1, rest + 1) if rest % size == 0 and (size == 1 or (experts and pipe == 1))
        ):
            if heads % (rest // data) == 0:
                yield from _dealt(rest // data, data, pipe, experts)
        if torus and pipe == 1:
            for width in (size for size in (2, 4, 8, 16) if rest % size == 0 and rest // size > 1):
                if heads % (rest // width) == 0:
                    yield ServingPlan(tensor=rest // width, width=width)


def _dealt(tensor: int, data: int, pipe: int, experts: int) -> Iterator[ServingPlan]:
    ways = {1, data * tensor} if data == 1 else {data * tensor, data}
    for expert in sorted(ways if experts else {1}):
        if expert <= max(experts, 1) and (not experts or experts % expert == 0):
            yield ServingPlan(tensor=tensor, data=data, expert=expert, pipe=pipe)


def lots(
    model: Transformer, pieces: Iterable[Slice], formats: Formats, spreads: tuple[str, ...] = ("copy",)
) -> Iterator[Lot]:
    """The plans of some slices of one chip with one set of formats, by way to spread the cache."""
    groups: dict[str, list[tuple[Slice, ServingPlan]]] = {}
    for piece in pieces:
        torus = isinstance(piece.chip.network, Torus)
        own = groups.setdefault(str(piece) if torus else piece.chip.name, [])
        own += [(piece, plan) for plan in splits(model, piece)]
    for found in groups.values():
        for spread in spreads if found else ():
            yield Lot(tuple(piece for piece, _ in found), stack([plan for _, plan in found], formats, spread))


def stack(plans: list[ServingPlan], formats: Formats, spread: str) -> ServingPlan:
    """Plans as one, with arrays for numbers."""
    numbers: dict[str, Any] = {name: numpy.array([getattr(plan, name) for plan in plans], float) for name in DEGREES}
    return ServingPlan(**numbers, **vars(formats), spread=spread)


def smallest_slice(chip: Chip, size: float) -> Slice | None:
    """The smallest slice of one pod whose memory holds `size` bytes, or None where even a pod does not.

    GPUs come in powers of two within a node, so that heads divide, and in whole nodes beyond.

    >>> from dragonscale.hardware import load_chip
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
