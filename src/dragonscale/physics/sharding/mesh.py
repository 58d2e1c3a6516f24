"""A mesh: named axes laid over real chips, and the wires that each set of axes gets.

On a torus a mesh axis takes one or more whole hardware axes where the sizes allow it (`X=16, Y=4` on a 4x4x4 cube gives
X two axes and twice the bandwidth); otherwise axes share a hardware axis, the faster one as a line inside the other's
ring. Under switches and across pods the last axis is the innermost, as in JAX. A mesh without a slice is ideal: on a
torus every axis is a full ring of its own, which is the book's default assumption.
"""

import itertools
import math
import re
from dataclasses import dataclass, field
from functools import cached_property

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide, joined
from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.slices import AXIS_NAMES
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.units import parse_count


@dataclass(frozen=True)
class Mesh:
    """Axis names and sizes, slowest first, over the chips of a slice (or over ideal wires of a chip, or none)."""

    axes: dict[str, Number]
    chip: Chip | None = None
    slice: Slice | None = None
    rings: dict[str, tuple[Ring, ...]] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)

    @cached_property
    def _sizes(self) -> dict[tuple[str, ...], Number]:
        """Sizes already worked out: every tensor of a plan asks for those of its dims."""
        return {}

    def size(self, *names: str) -> Number:
        """The product of the sizes of some axes."""
        if names in self._sizes:
            return self._sizes[names]
        for name in names:
            if name not in self.axes:
                raise unknown("mesh axis", name, self.axes)
        return self._sizes.setdefault(names, product(self.axes[name] for name in names))

    @property
    def chips(self) -> Number:
        """Chips in all."""
        return self.size(*self.axes)

    def group(self, names: tuple[str, ...]) -> Group:
        """The chips along some axes and the wires between them."""
        if self.chip is None:
            raise InputError("A collective has a time only on a chip; say which, for instance with --on v5e.")
        self.size(*names)
        network = self.chip.network
        if isinstance(network, Torus):
            return self._on_torus(names, network)
        ordered = [name for name in self.axes if name in names]
        place = list(self.axes).index(ordered[-1])
        stride = product(size for name, size in list(self.axes.items())[place + 1 :])
        return Switches(self.size(*names), network.levels, stride)

    def _on_torus(self, names: tuple[str, ...], network: Torus) -> Group:
        own = {} if self.slice else {name: (Ring(self.axes[name]),) for name in names}
        rings = tuple(ring for name in names for ring in self.rings.get(name, own.get(name, ())))
        inner = Rings(joined(rings) or (Ring(1),), network.link, network.hop_latency)
        pods = math.prod(self.pods.get(name, 1) for name in names)
        if pods == 1:
            return inner
        assert self.chip is not None
        assert self.chip.dcn is not None
        outer = Wide(pods, self.chip.dcn, self.chip.dcn_latency)
        return Stacked(inner, outer) if rings else outer


def parse_mesh(text: str) -> dict[str, int]:
    """Read `X=4,Y=8`.

    >>> parse_mesh("X=4, Y=8")
    {'X': 4, 'Y': 8}
    """
    axes: dict[str, int] = {}
    for part in text.split(",") if text.strip() else []:
        name, equals, size = part.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"[A-Za-z]\w*", name):
            raise InputError(f"In the mesh {shorten(text)} the part {shorten(part)} is not an axis; write it as 'X=4'.")
        if name in axes:
            raise InputError(f"In the mesh {shorten(text)} the axis {name} appears twice.")
        axes[name] = parse_count(size.strip(), f"the size of mesh axis {name}")
        if axes[name] < 1:
            has = f"In the mesh {shorten(text)} the axis {name} has size 0"
            raise InputError(f"{has}; a mesh axis has at least one chip.")
    return axes


def make_mesh(axes: dict[str, Number], chip: Chip | None = None, piece: Slice | None = None) -> Mesh:
    """Lay a mesh over a slice, or over the ideal wires of a chip."""
    if piece is None:
        return Mesh(dict(axes), chip)
    total = math.prod(axes.values())
    if total != piece.chips:
        sizes = " x ".join(f"{name}={size}" for name, size in axes.items())
        raise InputError(f"The mesh {sizes} has {total} chips and {piece} has {piece.chips}; they must agree.")
    if not isinstance(piece.chip.network, Torus):
        return Mesh(dict(axes), piece.chip, piece)
    pods = _take_pods(axes, piece.pods)
    inside = {name: size // pods.get(name, 1) for name, size in axes.items()}
    return Mesh(dict(axes), piece.chip, piece, place_on_torus(inside, piece), pods)


def natural_mesh(piece: Slice) -> Mesh:
    """The mesh whose axes X, Y, Z are the slice's own (with `pod` for several)."""
    if not isinstance(piece.chip.network, Torus):
        return make_mesh({"X": piece.chips}, piece.chip, piece)
    axes = dict(zip(AXIS_NAMES, piece.shape, strict=False))
    return make_mesh(({"pod": piece.pods} if piece.pods > 1 else {}) | axes, piece.chip, piece)


def _take_pods(axes: dict[str, int], pods: int) -> dict[str, int]:
    """Give the pods to the slowest axes."""
    taken: dict[str, int] = {}
    for name, size in axes.items():
        share = math.gcd(size, pods)
        if share > 1:
            taken[name] = share
            pods //= share
    if pods > 1:
        raise InputError(f"No mesh axis has a multiple of the {pods} pods; make the first axis one.")
    return taken


def place_on_torus(axes: dict[str, int], piece: Slice) -> dict[str, tuple[Ring, ...]]:
    """Which hardware axes, or parts of them, each mesh axis runs over."""
    sized = [(size, wraps) for size, wraps in zip(piece.shape, piece.wrap, strict=True) if size > 1]
    wide = [(size, wraps, axis) for axis, (size, wraps) in enumerate(sized)]
    wanted = {name: size for name, size in axes.items() if size > 1}
    whole = _whole_axes(wanted, wide)
    placed = whole if whole is not None else _split_axes(wanted, wide, str(piece))
    return {name: placed.get(name, ()) for name in axes}


def _whole_axes(axes: dict[str, int], wide: list[tuple[int, bool, int]]) -> dict[str, tuple[Ring, ...]] | None:
    """Hardware axes dealt out whole, if the sizes allow it; in order where several ways fit."""
    if not axes:
        return {} if not wide else None
    name, size = next(iter(axes.items()))
    rest = {other: axes[other] for other in axes if other != name}
    for count in range(1, len(wide) + 1):
        for chosen in itertools.combinations(range(len(wide)), count):
            if math.prod(wide[place][0] for place in chosen) != size:
                continue
            found = _whole_axes(rest, [axis for place, axis in enumerate(wide) if place not in chosen])
            if found is not None:
                return {
                    name: tuple(Ring(size, wraps, 1, axis) for size, wraps, axis in (wide[place] for place in chosen))
                } | found
    return None


def _split_axes(axes: dict[str, int], wide: list[tuple[int, bool, int]], where: str) -> dict[str, tuple[Ring, ...]]:
    """Hardware axes shared: filled from the fastest mesh axis up. An inner part is a line; an outer part keeps the ring
    but its neighbours are `stride` links apart, so as many rings share each link."""
    left = [[wraps, 1, size, axis] for size, wraps, axis in reversed(wide)]
    placed: dict[str, tuple[Ring, ...]] = {}
    for name, size in reversed(list(axes.items())):
        rings: list[Ring] = []
        need = size
        for hardware in left:
            part = math.gcd(need, hardware[2])
            if part == 1:
                continue
            wraps, stride, free, axis = hardware
            rings.append(Ring(part, bool(wraps) and part == free, 1 / stride, axis))
            hardware[1], hardware[2] = stride * part, free // part
            need //= part
        if need > 1:
            raise InputError(f"The mesh axis {name}={size} does not divide the axes of {where}; choose sizes that do.")
        placed[name] = tuple(rings)
    return placed
