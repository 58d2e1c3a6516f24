"""What questions about operations are given: a chip or slice, mesh axes, sizes; as text, or as the objects themselves.

>>> sizes_of("B=1024,D=8k"), sizes_of({"B": 64})
({'B': 1024, 'D': 8000}, {'B': 64})
>>> target_of("v5e:4x4")[1].chips
16
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset
from dragonscale.models.scaling_laws import chinchilla_tokens
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, parse_target
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.sharding.mesh import Mesh, make_mesh, natural_mesh, parse_mesh
from dragonscale.physics.units import parse, parse_count


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
    found = size_lists(sizes)
    several = next((name for name, values in found.items() if len(values) > 1), "")
    if several:
        raise InputError(f"--sizes gives {several} several values, which `dscale roofline` takes; give one here.")
    return {name: values[0] for name, values in found.items()}


def size_lists(sizes: Any) -> dict[str, list[int]]:
    """The same where a dim may have several sizes, in brackets or not.

    >>> size_lists("B=[1,8],D=8k"), size_lists("B=1,8,D=4")
    ({'B': [1, 8], 'D': [8000]}, {'B': [1, 8], 'D': [4]})
    """
    if isinstance(sizes, Mapping):
        sizes = ",".join(f"{name}={size}" for name, size in sizes.items())
    if not isinstance(sizes, str):
        raise InputError(f"--sizes is {shorten(sizes)}; it takes sizes such as 'B=1024,D=8192'.")
    found: dict[str, list[int]] = {}
    name, at = "", f"In --sizes {shorten(sizes)} the"
    for part in sizes.split(",") if sizes.strip() else []:
        before, equals, size = part.rpartition("=")
        if (not equals and not found) or (equals and not before.strip()):
            raise InputError(f"{at} part {shorten(part)} is not a size; write it as 'B=1024'.")
        name = before.strip() if equals else name
        if equals and name in found:
            raise InputError(f"{at} dim {name} is given twice.")
        value = parse_count(size.strip().strip("[]() "), f"the size of {name}")
        if value < 1:
            raise InputError(f"{at} dim {name} has size 0; a dim has at least one element.")
        found.setdefault(name, []).append(value)
    return found


def read_part(text: str, flag: str, wanted: str, least: float, most: float) -> float:
    """`40%` or `0.4` as a part between two; `wanted` says what to write.

    >>> read_part("1%", "--slack", "", 0.0, 0.5)
    0.01
    """
    number = text.strip()
    try:
        part = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        part = math.nan
    if not least <= part <= most:
        raise InputError(f"{flag} is {shorten(text)}; {wanted}.")
    return part


def read_tokens(text: str, parameters: float, what: str = "--tokens") -> float:
    """The tokens of a run: `15T`, or `chinchilla` for 20 a parameter."""
    if text.strip().lower() == "chinchilla":
        return chinchilla_tokens(parameters)
    tokens = parse(text, "count", what)
    if tokens < 1:
        raise InputError(f"--tokens is {shorten(text)}; a run has at least one token.")
    return tokens


def targets_of(things: Sequence[Any]) -> dict[str, tuple[Chip, Slice | None]]:
    """Chips and slices in a list, by their names; an answer tells them apart by these alone.

    >>> [*targets_of([parse_target("v5e:4x4")[1], "h100"])]
    ['v5e:4x4', 'h100']
    """
    found: dict[str, tuple[Chip, Slice | None]] = {}
    chips: dict[str, Chip] = {}
    for thing in things:
        chip, piece = target_of(thing)
        if chips.setdefault(chip.name, chip) != chip:
            raise InputError(f"--on has two different chips that are named {chip.name}; give one another name.")
        found[written_target(thing)] = chip, piece
    return found


def slice_of(name: str, chips: Iterable[Chip]) -> Slice:
    """The slice that an answer names, of the very chips that were asked about.

    >>> slice_of("v5e:4x8", [parse_target("v5e")[0]]).shape
    (4, 8)
    """
    of, _, topology = name.rpartition(":")
    shape, _, pods = topology.partition("*")
    chip = next(chip for chip in chips if chip.name == of)
    return Slice(chip, tuple(map(int, shape.split("x"))), int(pods or 1))


_INSTEAD = {
    "model": "write its config to a file and give the path",
    "chip": "write the chip to a TOML file and give the path",
}


def unnamed(*things: Any) -> str:
    """Why no file or command can name the things of a question: an object that is not what its name
    stands for. Empty where each can be named.

    >>> from dataclasses import replace
    >>> chip = parse_target("v5e")[0]
    >>> unnamed("llama3-8b", chip), unnamed(replace(chip, power=1.0))[:50]
    ('', 'The chip is an object, which a file cannot name; w')
    """
    for thing in things:
        if isinstance(thing, list | tuple):
            if told := unnamed(*thing):
                return told
            continue
        one = thing.chip if isinstance(thing, Slice) else thing
        kind = "chip" if isinstance(one, Chip) else "model" if isinstance(one, Transformer) else ""
        if kind and one != _stands_for(one.name, kind):
            return f"The {kind} is an object, which a file cannot name; {_INSTEAD[kind]}."
    return ""


def check_named(*things: Any) -> None:
    """Refuse to name what no name stands for."""
    if told := unnamed(*things):
        raise InputError(told)


def _stands_for(name: str, kind: str) -> Any:
    """What a name means; None where nothing. A model's is looked for in the catalogue alone, never in the network."""
    try:
        if kind == "chip":
            return parse_target(name)[0]
        return load_model(name) if is_preset(read_asked(name).text) else None
    except InputError:
        return None


def written_target(on: Any) -> str:
    """A chip or slice as it would be typed."""
    return on.strip() if isinstance(on, str) else on.name if isinstance(on, Chip) else str(on)
