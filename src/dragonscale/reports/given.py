"""What questions about operations are given: a chip or slice, mesh axes, sizes; as text, or as the objects themselves.

>>> sizes_of("B=1024,D=8k"), sizes_of({"B": 64})
({'B': 1024, 'D': 8000}, {'B': 64})
>>> target_of("v5e:4x4")[1].chips
16
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.hardware import Chip, Slice, parse_target, with_changes
from dragonscale.hardware.slices import slice_note
from dragonscale.listener import Listener
from dragonscale.sharding.mesh import Mesh, make_mesh, natural_mesh, parse_mesh
from dragonscale.units import parse_count


def changed(on: Any, changes: str) -> Any:
    """What --on names with the chip's numbers changed (`--set hbm=2x`); without changes as it was given.

    >>> target_of(changed("v5e", "hbm=2x"))[0].bandwidth("hbm") / target_of("v5e")[0].bandwidth("hbm")
    2.0
    """
    return with_changes(on, changes)


def target_of(on: Any, listener: Listener | None = None) -> tuple[Chip, Slice | None]:
    """A chip, and the slice of it where one is meant; a name that is not plain is explained to the listener."""
    if isinstance(on, Slice):
        return on.chip, on
    if isinstance(on, Chip):
        return on, None
    if not isinstance(on, str):
        raise InputError(f"--on is {shorten(on)}; it takes a chip or a slice, such as 'v5e' or 'h100:64'.")
    said = slice_note(on)
    if said and listener is not None:
        listener.note(said)
    return parse_target(on)


def maybe_target(on: Any, listener: Listener | None = None) -> tuple[Chip | None, Slice | None]:
    """The same where a question can do without."""
    return (None, None) if isinstance(on, str) and not on.strip() else target_of(on, listener)


def axes_of(mesh: Any) -> dict[str, int]:
    """`X=4,Y=8` or a dict as mesh axes, slowest first."""
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{name}={size}" for name, size in mesh.items())
    if not isinstance(mesh, str):
        raise InputError(f"--mesh is {shorten(mesh)}; it takes axes such as 'X=4,Y=8'.")
    return dict(parse_mesh(mesh))


def mesh_of(mesh: Any, chip: Chip | None, piece: Slice | None) -> Mesh:
    """The mesh that was given, or the slice's own axes."""
    if isinstance(mesh, Mesh):
        return mesh
    axes = axes_of(mesh)
    return natural_mesh(piece) if piece is not None and not axes else make_mesh(dict(axes), chip, piece)


def sizes_of(sizes: Any) -> dict[str, int]:
    """`B=1024,D=8k` or a dict as the sizes of dims."""
    if isinstance(sizes, Mapping):
        sizes = ",".join(f"{name}={size}" for name, size in sizes.items())
    if not isinstance(sizes, str):
        raise InputError(f"--sizes is {shorten(sizes)}; it takes sizes such as 'B=1024,D=8192'.")
    found: dict[str, int] = {}
    for part in sizes.split(",") if sizes.strip() else []:
        name, equals, size = part.partition("=")
        at = f"In --sizes {shorten(sizes)} the"
        if not equals or not name.strip():
            raise InputError(f"{at} part {shorten(part)} is not a size; write it as 'B=1024'.")
        if name.strip() in found:
            raise InputError(f"{at} dim {name.strip()} is given twice.")
        found[name.strip()] = parse_count(size.strip(), f"the size of {name.strip()}")
        if found[name.strip()] < 1:
            raise InputError(f"{at} dim {name.strip()} has size 0; a dim has at least one element.")
    return found


def written_target(on: Any) -> str:
    """A chip or slice as it would be typed."""
    return on.strip() if isinstance(on, str) else on.name if isinstance(on, Chip) else str(on)
