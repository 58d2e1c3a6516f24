"""A mesh: named axes laid over the chips of a slice, and the wires that each set of axes gets.

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
    """Axis names and sizes, slowest first, over the chips of a slice (or over ideal wires of a chip, or without any).

    On a torus, `rings` are the parts of hardware axes that each mesh axis runs over inside a pod, and `pods` the number
    of pods that it spans.
    """

    axes: dict[str, Number]
    chip: Chip | None = None
    slice: Slice | None = None
    rings: dict[str, tuple[Ring, ...]] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)

    @cached_property
    def _sizes(self) -> dict[tuple[str, ...], Number]:
        """Products of sizes by axes, computed once: every tensor of a plan asks for those of its dims."""
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
        # chips of the group are as far apart as all axes faster than its fastest are long
        order = list(self.axes)
        fastest = max(order.index(name) for name in names)
        stride = product(self.axes[name] for name in order[fastest + 1 :])
        return Switches(self.size(*names), network.levels, stride)

    def _on_torus(self, names: tuple[str, ...], network: Torus) -> Group:
        rings: tuple[Ring, ...] = ()
        for name in names:
            # without a slice each axis is an ideal ring
            ideal = () if self.slice else (Ring(self.axes[name]),)
            rings += self.rings.get(name, ideal)
        # axes that lie on pods alone have no rings; two parts of one hardware axis form one ring or line
        inner = Rings(joined(rings) or (Ring(1),), network.link, network.hop_latency)
        pods = math.prod(self.pods.get(name, 1) for name in names)
        if pods == 1:
            return inner
        assert self.chip is not None
        assert self.chip.dcn is not None
        outer = Wide(pods, self.chip.dcn, self.chip.dcn_latency)
        if not rings:
            return outer
        return Stacked(inner, outer)


def parse_mesh(text: str) -> dict[str, int]:
    """Read `X=4,Y=8`.

    >>> parse_mesh("X=4, Y=8")
    {'X': 4, 'Y': 8}
    """
    axes: dict[str, int] = {}
    if not text.strip():
        return axes
    for part in text.split(","):
        name, equals, size = part.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"[A-Za-z]\w*", name):
            raise InputError(f"In the mesh {shorten(text)} the part {shorten(part)} is not an axis; write it as 'X=4'.")
        if name in axes:
            raise InputError(f"In the mesh {shorten(text)} the axis {name} appears twice.")
        axes[name] = parse_count(size.strip(), f"the size of mesh axis {name}")
        if axes[name] < 1:
            raise InputError(
                f"In the mesh {shorten(text)} the axis {name} has size 0; a mesh axis has at least one chip."
            )
    return axes


def make_mesh(axes: dict[str, Number], chip: Chip | None = None, slice_: Slice | None = None) -> Mesh:
    """Lay a mesh over a slice, or over the ideal wires of a chip."""
    if slice_ is None:
        return Mesh(dict(axes), chip)
    total = math.prod(axes.values())
    if total != slice_.chips:
        sizes = " x ".join(f"{name}={size}" for name, size in axes.items())
        raise InputError(f"The mesh {sizes} has {total} chips and {slice_} has {slice_.chips}; they must agree.")
    if not isinstance(slice_.chip.network, Torus):
        return Mesh(dict(axes), slice_.chip, slice_)
    # pods first, as only the data-centre network joins them; what is left of each axis lies on the torus
    pods = _assign_pods(axes, slice_.pods)
    inside = {name: size // pods.get(name, 1) for name, size in axes.items()}
    return Mesh(dict(axes), slice_.chip, slice_, place_on_torus(inside, slice_), pods)


def natural_mesh(slice_: Slice) -> Mesh:
    """The mesh whose axes X, Y, Z are those of the slice, after `pod` where it has several."""
    if not isinstance(slice_.chip.network, Torus):
        return make_mesh({"X": slice_.chips}, slice_.chip, slice_)
    axes = dict(zip(AXIS_NAMES, slice_.shape, strict=False))
    if slice_.pods > 1:
        axes = {"pod": slice_.pods} | axes
    return make_mesh(axes, slice_.chip, slice_)


def _assign_pods(axes: dict[str, int], pods: int) -> dict[str, int]:
    """The pods that each mesh axis spans: as many as divide its size, the slowest axes first."""
    assigned: dict[str, int] = {}
    for name, size in axes.items():
        share = math.gcd(size, pods)
        if share > 1:
            assigned[name] = share
            pods //= share
    if pods > 1:
        raise InputError(f"No mesh axis has a multiple of the {pods} pods; make the first axis one.")
    return assigned


@dataclass
class _TorusAxis:
    """A hardware axis of more than one chip, or what is left of it: `size` chips that are `stride` apart."""

    index: int
    size: int
    wraps: bool
    stride: int = 1


def place_on_torus(axes: dict[str, int], slice_: Slice) -> dict[str, tuple[Ring, ...]]:
    """The hardware axes, or parts of them, that each mesh axis runs over."""
    hardware: list[_TorusAxis] = []
    for size, wraps in zip(slice_.shape, slice_.wrap, strict=True):
        if size > 1:
            hardware.append(_TorusAxis(len(hardware), size, wraps))
    wanted = {name: size for name, size in axes.items() if size > 1}
    placed = _whole_axes(wanted, hardware)
    if placed is None:
        placed = _split_axes(wanted, hardware, str(slice_))
    return {name: placed.get(name, ()) for name in axes}


def _whole_axes(axes: dict[str, int], hardware: list[_TorusAxis]) -> dict[str, tuple[Ring, ...]] | None:
    """Whole hardware axes for each mesh axis, the first assignment that fits; None if the sizes allow none."""
    if not axes:
        return None if hardware else {}
    name, size = next(iter(axes.items()))
    others = {other: axes[other] for other in axes if other != name}
    for count in range(1, len(hardware) + 1):
        for chosen in itertools.combinations(hardware, count):
            if math.prod(axis.size for axis in chosen) != size:
                continue
            # no hardware axis may be left over, or the mesh would not fill the slice
            placed = _whole_axes(others, [axis for axis in hardware if axis not in chosen])
            if placed is not None:
                rings = tuple(Ring(axis.size, axis.wraps, 1, axis.index) for axis in chosen)
                return {name: rings} | placed
    return None


def _split_axes(axes: dict[str, int], hardware: list[_TorusAxis], where: str) -> dict[str, tuple[Ring, ...]]:
    """Parts of hardware axes for each mesh axis, filled from the fastest mesh axis up.

    An inner part is a line. An outer part keeps the ring, but its neighbours are `stride` links apart, so as many rings
    share each link.
    """
    placed: dict[str, tuple[Ring, ...]] = {}
    for name, size in reversed(list(axes.items())):
        rings: list[Ring] = []
        remaining = size
        for axis in reversed(hardware):
            part = math.gcd(remaining, axis.size)
            if part == 1:
                continue
            # only the part that takes all that is left of a hardware axis closes around it
            is_outermost = part == axis.size
            rings.append(Ring(part, axis.wraps and is_outermost, 1 / axis.stride, axis.index))
            axis.stride, axis.size = axis.stride * part, axis.size // part
            remaining //= part
        if remaining > 1:
            raise InputError(f"The mesh axis {name}={size} does not divide the axes of {where}; choose sizes that do.")
        placed[name] = tuple(rings)
    return placed
