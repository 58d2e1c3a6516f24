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
    note = slice_note(on)
    if note and listener is not None:
        listener.note(note)
    return parse_target(on)


def maybe_target(on: Any, listener: Listener | None = None) -> tuple[Chip | None, Slice | None]:
    """The same where a question can do without."""
    if isinstance(on, str) and not on.strip():
        return (None, None)
    return target_of(on, listener)


def axes_of(mesh: Any) -> dict[str, int]:
    """`X=4,Y=8` or a dict as mesh axes, slowest first."""
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{name}={size}" for name, size in mesh.items())
    if not isinstance(mesh, str):
        raise InputError(f"--mesh is {shorten(mesh)}; it takes axes such as 'X=4,Y=8'.")
    return dict(parse_mesh(mesh))


def mesh_of(mesh: Any, chip: Chip | None, slice_: Slice | None) -> Mesh:
    """The mesh that was given, or the slice's own axes."""
    if isinstance(mesh, Mesh):
        return mesh
    axes = axes_of(mesh)
    if slice_ is not None and not axes:
        return natural_mesh(slice_)
    return make_mesh(dict(axes), chip, slice_)


def sizes_of(sizes: Any) -> dict[str, int]:
    """`B=1024,D=8k` or a dict as the sizes of dims."""
    values_of = size_lists(sizes)
    several = next((name for name, values in values_of.items() if len(values) > 1), "")
    if several:
        raise InputError(f"--sizes gives {several} several values, which `dscale roofline` takes; give one here.")
    return {name: values[0] for name, values in values_of.items()}


def size_lists(sizes: Any) -> dict[str, list[int]]:
    """The same where a dim may have several sizes, in brackets or not.

    >>> size_lists("B=[1,8],D=8k"), size_lists("B=1,8,D=4")
    ({'B': [1, 8], 'D': [8000]}, {'B': [1, 8], 'D': [4]})
    """
    if isinstance(sizes, Mapping):
        sizes = ",".join(f"{name}={size}" for name, size in sizes.items())
    if not isinstance(sizes, str):
        raise InputError(f"--sizes is {shorten(sizes)}; it takes sizes such as 'B=1024,D=8192'.")
    sizes_by_dim: dict[str, list[int]] = {}
    # the dim of the sizes that follow; a size without a name belongs to the last one
    name, at = "", f"In --sizes {shorten(sizes)} the"
    for part in sizes.split(",") if sizes.strip() else []:
        before, equals, size = part.rpartition("=")
        # a size before any name, or a name that is empty
        if (not equals and not sizes_by_dim) or (equals and not before.strip()):
            raise InputError(f"{at} part {shorten(part)} is not a size; write it as 'B=1024'.")
        if equals:
            name = before.strip()
        if equals and name in sizes_by_dim:
            raise InputError(f"{at} dim {name} is given twice.")
        value = parse_count(size.strip().strip("[]() "), f"the size of {name}")
        if value < 1:
            raise InputError(f"{at} dim {name} has size 0; a dim has at least one element.")
        sizes_by_dim.setdefault(name, []).append(value)
    return sizes_by_dim


def comma_list(text: str) -> list[str]:
    """What stands between commas, without blanks around it; nothing where nothing does.

    >>> comma_list("h100:8, v5p,"), comma_list(" ")
    (['h100:8', 'v5p'], [])
    """
    return list(filter(None, map(str.strip, text.split(","))))


def read_part(text: str, flag: str, wanted: str, least: float, largest: float) -> float:
    """`40%` or `0.4` as a part between two; `wanted` says what to write.

    >>> read_part("1%", "--slack", "", 0.0, 0.5)
    0.01
    """
    number = text.strip()
    try:
        part = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        part = math.nan
    if not least <= part <= largest:
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
    targets: dict[str, tuple[Chip, Slice | None]] = {}
    chips: dict[str, Chip] = {}
    for thing in things:
        chip, slice_ = target_of(thing)
        # two chips of one's own may carry the same name
        if chips.setdefault(chip.name, chip) != chip:
            raise InputError(f"--on has two different chips that are named {chip.name}; give one another name.")
        targets[written_target(thing)] = chip, slice_
    return targets


def slice_of(name: str, chips: Iterable[Chip]) -> Slice:
    """The slice that an answer names, of the very chips that were asked about.

    >>> slice_of("v5e:4x8", [parse_target("v5e")[0]]).shape
    (4, 8)
    """
    # `v5p:8x16x16*2`: chip, shape and pods
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
            if reason := unnamed(*thing):
                return reason
            continue
        item_ = thing.chip if isinstance(thing, Slice) else thing
        if isinstance(item_, Chip):
            kind = "chip"
        else:
            kind = ""
            if isinstance(item_, Transformer):
                kind = "model"
        if kind and item_ != _stands_for(item_.name, kind):
            return f"The {kind} is an object, which a file cannot name; {_INSTEAD[kind]}."
    return ""


def check_named(*things: Any) -> None:
    """Refuse to name what no name stands for."""
    if reason := unnamed(*things):
        raise InputError(reason)


def _stands_for(name: str, kind: str) -> Any:
    """What a name means; None where nothing. A model's is looked for in the catalogue alone, never in the network."""
    try:
        if kind == "chip":
            # a chip that there is not raises
            return parse_target(name)[0]
        if is_preset(read_asked(name).text):
            return load_model(name)
        return None
    except InputError:
        return None


def written_target(on: Any) -> str:
    """A chip or slice as it would be typed."""
    if isinstance(on, str):
        return on.strip()
    if isinstance(on, Chip):
        return on.name
    return str(on)
