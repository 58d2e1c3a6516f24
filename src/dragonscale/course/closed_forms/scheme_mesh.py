"""A scheme's mesh axes on wires: as given, on ideal rings, or divided so that a layer communicates least.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.course.closed_forms.schemes import read_scheme
>>> mesh = best_mesh(read_scheme("fsdp+tp"), parse_slice("v5p:4x4x4"), {"B": 49152, "D": 8192, "F": 32768})
>>> mesh.axes, len(mesh.rings["X"]), len(mesh.rings["Y"])
({'X': 16, 'Y': 4}, 2, 1)
"""

import itertools
import math

from dragonscale.course.closed_forms.rooflines import layer_times, ring_mesh
from dragonscale.course.closed_forms.schemes import Scheme
from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.mesh import Mesh, make_mesh

PODS = "P"
"""The mesh axis that may count pods."""


def counts_pods(scheme: Scheme) -> bool:
    """Whether a scheme has an axis P that copies the model across pods."""
    return scheme.owners.get(PODS) in scheme.tokens


def shares_wires(mesh: Mesh) -> bool:
    """Whether mesh axes share an axis of the torus."""
    return mesh.slice is not None and any(ring.share < 1 for rings in mesh.rings.values() for ring in rings)


def possible_overlap(mesh: Mesh | None, wanted: str) -> str:
    """`sum` for mesh axes that share an axis of the torus, since both cannot have its links at once; else as wanted."""
    return "sum" if mesh is not None and shares_wires(mesh) else wanted


def given_mesh(
    scheme: Scheme, chip: Chip, piece: Slice | None, axes: dict[str, int], spans: dict[str, int] | None = None
) -> Mesh:
    """The mesh of given sizes: over a slice, or on rings of their own that span so many axes of a torus."""
    if spans and not isinstance(chip.network, Torus):
        raise InputError(f"{chip.title} has no torus whose axes a mesh axis could span; leave them out.")
    if not spans and (piece is not None or not isinstance(chip.network, Torus)):
        return make_mesh(dict(axes), chip, piece)
    pods = (PODS,) if counts_pods(scheme) else ()
    if pods and chip.dcn is None:
        raise InputError(f"{chip.title} has no data-centre network between pods; leave out the axis {PODS}.")
    wide: dict[str, Number] = dict(spans or {})
    return ring_mesh(dict(axes), chip, wide, pods)


def best_mesh(scheme: Scheme, piece: Slice, sizes: dict[str, int], overlap: str = "max") -> Mesh:
    """The division of a slice's chips between the scheme's axes whose forward pass communicates least per FLOP, among
    all that lie on its wires."""
    fixed = {PODS: piece.pods} if counts_pods(scheme) else {}
    free = [axis for axis in scheme.axes if axis not in fixed]
    if len(free) > 2:
        raise InputError(f"{scheme.text} has {len(free)} mesh axes to divide the chips between; give their sizes.")
    found: list[Mesh] = []
    for ways in _factors(piece.chips // math.prod(fixed.values()), len(free)):
        try:
            found.append(make_mesh(fixed | dict(zip(free, ways, strict=True)), piece.chip, piece))
        except InputError:
            continue
    if not found:
        raise InputError(f"No split of {piece} over {', '.join(scheme.axes)} lies on its wires; give the mesh.")

    def communicates(mesh: Mesh) -> float:
        times = layer_times(scheme, dict(sizes), mesh)
        return float(times.network(possible_overlap(mesh, overlap)) / times.math)

    return min(found, key=communicates)


def _factors(chips: int, count: int) -> list[tuple[int, ...]]:
    divisors = [size for size in range(1, chips + 1) if chips % size == 0]
    return [ways for ways in itertools.product(divisors, repeat=count) if math.prod(ways) == chips]
