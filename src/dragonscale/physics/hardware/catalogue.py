"""Chips by name: the built-in catalogue, or the path of a user's file, with what-if changes (`h100+hbm=2x`).

A chip that is sold with several memories is named with one of them (`m2pro-16gb`, `M2 Pro 16GB`); without, it is the
one with the largest.
"""

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import LOOK_ALIKE, InputError, nearest, shorten
from dragonscale.physics.hardware.changes import changed_chip, split_changes
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.chip_file import completed, merge, read_chip
from dragonscale.physics.hardware.families import complete, expand, with_capacity
from dragonscale.tables import built_in, file_version, read_table


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    """The built-in chips by name: files of one chip, and the members of families."""
    return expand(built_in(Path(__file__).with_name("chips")))


# Words beside a chip's name: who makes it, and what kind of thing it is.
_VENDORS = {"nvidia", "tesla", "geforce", "amd", "instinct", "intel", "habana", "aws", "apple", "google", "cloud"}
_KINDS = {"gpu", "chip", "soc", "vram", "ram", "memory", "unified", "desktop"}
_SEPARATORS = re.compile(r"[\s_+()/-]+")
# Memory of a chip, written without a space.
_SIZE = re.compile(r"\d+gb")
# Machines that are named before or after the chip in them: MacBook Pro 14 inch M3 Max.
_MACHINES = re.compile(r"\b(macbook( (pro|air))?|mac (mini|studio|pro)|imac)( 1[3-6]( ?in(ch)?)?)?\b")


def _spelling(name: str) -> str:
    """A name in lower case, without vendors, machines and separators, so that all ways to write it are equal.

    >>> _spelling("NVIDIA H100-SXM5 80GB"), _spelling("rtx_4090"), _spelling("MacBook Pro M3 Max 64 GB")
    ('h100sxm580gb', 'rtx4090', 'm3max64gb')
    """
    text = " ".join(_SEPARATORS.split(name.strip().lower()))
    without_machine = _MACHINES.sub("", text).strip() or text
    spelled = without_machine.replace("gib", "gb").replace("cores", "core").split()
    spelled.sort(key=lambda word: _SIZE.fullmatch(word) is not None)  # the size of the memory stands last
    return "".join(word for word in spelled if word not in _VENDORS | _KINDS)


@functools.cache
def _names() -> dict[str, str]:
    """Every accepted spelling and the chip it means, with the size of its memory where that is not the usual one."""
    spellings: dict[str, set[str]] = {}
    for name, table in _tables().items():
        spellings[name] = set(map(_spelling, (*table.get("aliases", []), name)))
    sizes: dict[str, str] = {}
    # a variant lends the memories that are sold with it alone: an M3 Max with 36 GB has 30 cores
    for name, table in sorted(_tables().items(), key=lambda entry: "of" in entry[1]):
        capacities = _capacities(table)
        for capacity in capacities:
            key = name if capacity == capacities[-1] else f"{name}-{capacity.lower()}"
            for spelling in spellings[name] | spellings.get(table.get("of", ""), set()):
                sizes.setdefault(spelling + capacity.lower(), key)
    for name, several in spellings.items():
        # a plain name wins over one with a size that is spelled alike
        sizes |= dict.fromkeys(several, name)
    return sizes


def _capacities(table: dict[str, Any]) -> list[str]:
    """The sizes of memory that a chip is sold with, the usual one last."""
    capacity = table.get("memory", {}).get("hbm", {}).get("capacity")
    if table.get("capacities"):
        return table["capacities"]
    if capacity is None:
        return _capacities(_tables()[table["base"]])
    return [capacity["value"]]


def chip_names() -> list[str]:
    """The names of the built-in chips, in order, without the variants of a chip that only have other cores."""
    return [name for name, table in _tables().items() if "of" not in table]


def is_chip(name: str) -> bool:
    """Whether a built-in chip has this name or alias."""
    return _spelling(name) in _names()


# What a member of a family never takes from the family's base.
_OF_ONE_CHIP = ("structure", "memory", "matrix", "vector", "power", "visible", "of")


def _based(table: dict[str, Any]) -> dict[str, Any]:
    """A table merged over the chip that it names as its base, if any."""
    if "base" not in table:
        return table
    changes = dict(table)
    base = _based(_tables()[_resolve(str(changes.pop("base")))])
    if "cores" in changes:  # a member of a family
        changes = complete(changes, base)
        base = {key: value for key, value in base.items() if key not in _OF_ONE_CHIP}
    merged = merge(base, {"aliases": [], "capacities": [], "personal": False, **changes})
    memory = changes.get("memory")
    hbm = memory.get("hbm") if isinstance(memory, dict) else None  # what is no table is refused as the file is read
    if isinstance(hbm, dict) and "capacity" in hbm and "visible" not in hbm:
        # how much of the base's memory programs can allocate says nothing about another memory
        main = dict(merged["memory"]["hbm"])
        main.pop("visible", None)
        merged = {**merged, "memory": {**merged["memory"], "hbm": main}}
    if changes.keys() & {"price", "memory", "matrix"}:
        # nor do the base's prices about a chip with another price, memory or rates
        for price in {"price", "list_price"} - changes.keys():
            merged.pop(price, None)
    return merged


def _resolve(name: str) -> str:
    """The built-in chip that a name or alias means, with the size of its memory where that is not the usual one."""
    spelling = _spelling(name)
    if spelling not in _names():
        raise _no_chip(name, spelling)
    return _names()[spelling]


def _no_chip(name: str, spelling: str) -> InputError:
    """The error for a name of no chip: the sizes of memory that the chip is sold with, what may have been meant, or
    chips of the same series or maker."""
    for alias in sorted(_names(), key=len, reverse=True):
        if spelling.startswith(alias) and _SIZE.fullmatch(spelling, len(alias)):
            return InputError(_other_size(name, _names()[alias]))
    lists = f"`dscale chips` lists all {len(chip_names())}; a path ending in .toml or .yaml describes one of your own."
    message = f"There is no chip {shorten(name)}"
    if _PROCESSORS.search(name.lower()):
        return InputError(
            f"{message}: no CPU is one. Name the GPU or TPU, whose host can hold a part of a model; of a CPU alone "
            f"write its memory and rates into a chip file (`dscale chips --template`). {lists}"
        )
    neighbours = _titled(name)
    if not neighbours and (guess := _guess(spelling)):
        return InputError(f"{message}; did you mean {guess!r}? {lists}")
    if neighbours := neighbours or _series(spelling):
        message += f"; near it are {', '.join(neighbours)}"
    return InputError(f"{message}. {lists}")


_PROCESSORS = re.compile(r"\b(cpus?|xeon|epyc|ryzen|threadripper|core i\d|i[3579]-?\d*|none|no gpu)\b")
MAX_NEIGHBOURS = 6
"""Chips that an error names, of the same series or maker."""


def _other_size(name: str, key: str) -> str:
    """What memories a chip is sold with, for a name that has another; those of its variants are included."""
    chip = load_chip(key)
    listed = chip.like or chip.name
    sizes: set[str] = set()
    for other, table in _tables().items():
        if listed in (other, table.get("of")) or re.fullmatch(rf"{re.escape(listed)}-\d+gb", other):
            sizes.update(_capacities(table))
    ordered = sorted(sizes, key=lambda size: float(size.removesuffix("GB")))
    *smaller, largest = ordered
    choice = f"{', '.join(smaller)} or {largest}".removeprefix(" or ")
    title = re.sub(r" \d+GB$", "", load_chip(listed).title)
    return f"There is no {shorten(name)}: the {title} has {choice}; of a modified one write {listed}+memory=SIZE."


def _guess(spelling: str) -> str:
    """The chip that a mistyped name most likely means, by its name before its aliases; empty where none is near. An
    H300 is no mistyped B300, as there are chips of that series."""
    candidates = [name for name in _names() if _same_digits(spelling, name) and _same_letters(spelling, name)]
    guess = nearest(spelling, [name for name in chip_names() if name in candidates])
    return guess or _names().get(nearest(spelling, candidates), "")


def _same_letters(typed: str, name: str) -> bool:
    """Whether a mistyped name may be of the series that its first letters say, if they are those of any."""
    letters = re.match("[a-z]*", typed)
    return not letters or name.startswith(letters[0]) or not _series(typed)


def _same_digits(typed: str, name: str) -> bool:
    """Whether the digits of a mistyped name may be those of a chip: an A40 is no mistyped A10.

    >>> _same_digits("a40", "a10"), _same_digits("h10", "h100"), _same_digits("v5x", "v5p")
    (False, True, True)
    """
    typed_digits = re.sub(r"\D", "", typed.translate(LOOK_ALIKE))
    digits = re.sub(r"\D", "", name.translate(LOOK_ALIKE))
    return digits.startswith(typed_digits) or typed_digits.startswith(digits)


_NUMBERED = re.compile(r"(?P<series>[a-z]*)(?P<number>\d{1,5})")


def _series(spelling: str) -> list[str]:
    """Chips whose names have the same letters before a number, those with the nearest numbers first.

    >>> _series("a20")[:3], _series("m6")[:2], _series("cpu")
    (['a30', 'a10', 'a10g'], ['m5', 'm5max'], [])
    """
    typed = _NUMBERED.match(spelling)
    if typed is None:
        return []
    # how far the number is off, as a ratio
    distances: dict[str, float] = {}
    for alias, key in _names().items():
        numbered = _NUMBERED.match(alias)
        if numbered and not alias.endswith("gb") and numbered["series"] == typed["series"] and key in chip_names():
            distance = abs(math.log(max(1, int(numbered["number"])) / max(1, int(typed["number"]))))
            distances[key] = min(distance, distances.get(key, distance))
    return sorted(distances, key=lambda key: (distances[key], key))[:MAX_NEIGHBOURS]


def _titled(name: str) -> list[str]:
    """Chips that have the first word of a name without numbers in their title, the newest first.

    >>> _titled("TPU")[:2], _titled("strix point"), _titled("rtx3050")
    (['tpu7x', 'v6e'], ['strix-halo'], [])
    """
    word = re.match(r"[a-z]{3,}(?!.*\d)", name.strip().lower())
    if word is None or word[0] in _KINDS:
        return []
    chips = [chip for chip in map(load_chip, chip_names()) if word[0] in chip.title.lower()]
    return [chip.name for chip in sorted(chips, key=lambda chip: chip.released, reverse=True)][:MAX_NEIGHBOURS]


_FILE = re.compile(r".*?\.(?:toml|ya?ml)(?=$|[:+*])", re.IGNORECASE)


def chip_path(text: str) -> str:
    """The path of a user's chip file at the start of a chip or slice; empty where there is none.

    >>> chip_path("./my.yaml+hbm=2x:8"), chip_path("my.chip.toml"), chip_path("h100:8")
    ('./my.yaml', 'my.chip.toml', '')
    """
    path = _FILE.match(text.strip()) if len(text) < 5000 else None
    if path is None:
        return ""
    return path[0]


def _cached(load: Callable[[str], Chip]) -> Callable[[str], Chip]:
    """Load each chip once, and a user's file again as soon as it has changed."""
    load_once = functools.cache(lambda name, _version: load(name))

    @functools.wraps(load)
    def loaded(name: str) -> Chip:
        path = chip_path(name)
        if not path:
            return load_once(name, None)
        version = file_version(path)
        if version is None:
            return load(name)  # a file that cannot be read: this raises the error that says why
        return load_once(name, version)

    return loaded


@_cached
def load_chip(name: str) -> Chip:
    """A chip by name (`v5p`, `h100`), alias, or path of a TOML or YAML file; with changes after it (`h100+hbm=1.5x`).

    >>> load_chip("v5e").peak("bf16")
    197000000000000.0
    >>> load_chip("tpu-v5e").title
    'TPU v5e'
    """
    plain, changes = split_changes(name)
    if changes:
        return changed_chip(load_chip(plain), *changes)
    if chip_path(name):
        table = read_table(Path(name), "Chip file")
        if "base" in table:
            return replace(read_chip(_based(table), name), like=_resolve(str(table["base"])))
        whole, assumed = completed(table, name)
        return replace(read_chip(whole, name), assumed=assumed)
    key = _resolve(name)
    if key in _tables():
        table = _based(_tables()[key])
        if "visible" in table:
            table = with_capacity(table, _capacities(table)[-1])
        return replace(read_chip(table, f"{key}.toml"), like=table.get("of", ""))
    usual, _, size = key.rpartition("-")
    table = _based(_tables()[usual]) | {"name": key, "aliases": []}
    return replace(read_chip(with_capacity(table, size.upper()), f"{usual}.toml"), like=table.get("of", usual))


def candidates() -> list[Chip]:
    """The chips that a search over the catalogue may propose: those that can be had, and of machines and cards that
    people own only those that are rented out too.

    >>> names = {chip.name for chip in candidates()}
    >>> names & {"h100", "rtx4090", "rtx4060", "m4max", "rubin"} == {"h100", "rtx4090"}
    True
    """
    chips = [load_chip(name) for name in chip_names()]
    return [chip for chip in chips if not chip.announced and (chip.price is not None or not chip.personal)]
