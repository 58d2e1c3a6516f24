"""Chips by name: the built-in catalogue, or the path of a user's file, with what-if changes (`h100+hbm=2x`).

A chip that is sold with several memories is named with one of them (`m2pro-16gb`, `M2 Pro 16GB`); without, it is the
one with the largest.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import LOOK_ALIKE, InputError, nearest, resembles, shorten
from dragonscale.physics.hardware.changes import changed_chip, split_changes
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.chip_file import completed, merge, read_chip
from dragonscale.physics.hardware.families import complete, expand, is_member, with_capacity
from dragonscale.tables import built_in, file_version, read_table


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    """The built-in chips by name: files of one chip, and the members of families."""
    return expand(built_in(Path(__file__).with_name("chips")))


# Words beside a chip's name: who makes it, and what kind of thing it is.
_VENDORS = {"nvidia", "tesla", "geforce", "amd", "instinct", "intel", "habana", "aws", "apple", "google", "cloud"}
_KINDS = {"gpu", "chip", "soc", "vram", "ram", "memory", "unified", "desktop"}
_SEPARATORS = re.compile(r"[\s_+()/-]+")
# Machines that are named before or after the chip in them: MacBook Pro 14 inch M3 Max.
_MACHINES = re.compile(r"\b(macbook( (pro|air))?|mac (mini|studio|pro)|imac)( 1[3-6]( ?in(ch)?)?)?\b")


def _spelling(name: str) -> str:
    """A name in lower case, without vendors, machines and separators, so that all ways to write it are equal.

    >>> _spelling("NVIDIA H100-SXM5 80GB"), _spelling("rtx_4090"), _spelling("MacBook Pro M3 Max 64 GB")
    ('h100sxm580gb', 'rtx4090', 'm3max64gb')
    """
    words = " ".join(_SEPARATORS.split(name.strip().lower()))
    named = _MACHINES.sub("", words).strip() or words
    spelled = "".join(word for word in named.split() if word not in _VENDORS | _KINDS)
    return spelled.replace("gib", "gb").replace("cores", "core")


@functools.cache
def _names() -> dict[str, str]:
    """Every accepted spelling and the chip it means, with the size of its memory where that is not the usual one."""
    spellings: dict[str, set[str]] = {}
    for name, table in _tables().items():
        spellings[name] = {_spelling(alias) for alias in (*table.get("aliases", []), name)}
    sizes: dict[str, str] = {}
    # a variant lends the memories that are sold with it alone: an M3 Max with 36 GB has 30 cores
    for name, table in sorted(_tables().items(), key=lambda entry: "of" in entry[1]):
        capacities = _capacities(table)
        for capacity in capacities:
            key = name if capacity == capacities[-1] else f"{name}-{capacity.lower()}"
            for spelling in spellings[name] | spellings.get(table.get("of", ""), set()):
                sizes.setdefault(spelling + capacity.lower(), key)
    return sizes | {spelling: name for name, several in spellings.items() for spelling in several}


def _capacities(table: dict[str, Any]) -> list[str]:
    """The sizes of memory that a chip is sold with, the usual one last."""
    capacity = table.get("memory", {}).get("hbm", {}).get("capacity")
    if table.get("capacities"):
        return table["capacities"]
    return _capacities(_tables()[table["base"]]) if capacity is None else [capacity["value"]]


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
    if is_member(changes):
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
    """The built-in chip that a name or alias means."""
    spelling = _spelling(name)
    if spelling not in _names():
        raise _no_chip(name, _guess(spelling))
    return _names()[spelling]


def _guess(spelling: str) -> str:
    """The chip that a mistyped name most likely means, by its name before its aliases; empty where none is near."""
    candidates = [name for name in _names() if _same_digits(spelling, name)]
    guess = nearest(spelling, [name for name in chip_names() if name in candidates])
    return guess or _names().get(nearest(spelling, candidates), "")


def _same_digits(typed: str, name: str) -> bool:
    """Whether the digits of a mistyped name may be those of a chip: an A40 is no mistyped A10.

    >>> _same_digits("a40", "a10"), _same_digits("h10", "h100"), _same_digits("v5x", "v5p")
    (False, True, True)
    """
    typed_digits = re.sub(r"\D", "", typed.translate(LOOK_ALIKE))
    digits = re.sub(r"\D", "", name.translate(LOOK_ALIKE))
    return digits.startswith(typed_digits) or typed_digits.startswith(digits)


def _no_chip(name: str, guess: str) -> InputError:
    """The error for a name of no chip: the likely one, similar ones, and where all chips are listed."""
    message = f"There is no chip {shorten(name)}."
    if guess:
        message = f"There is no chip {shorten(name)}; did you mean {guess!r}?"
    similar = [chip_name for chip_name in chip_names() if resembles(name, chip_name) and chip_name != guess]
    if similar:
        message += f" Similar: {', '.join(similar)}."
    count = len(chip_names())
    message += f" `dscale chips` lists all {count}; a path ending in .toml or .yaml describes one of your own."
    return InputError(message)


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
        chip = read_chip(with_capacity(table, _capacities(table)[-1]), f"{key}.toml")
        return replace(chip, like=table.get("of", ""))
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
