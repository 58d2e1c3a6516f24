"""Chips by name: the built-in catalogue, or the path of a user's file, with what-if changes (`h100+hbm=2x`)."""

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
from dragonscale.tables import built_in, file_version, read_table


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    """The built-in files by chip name."""
    return built_in(Path(__file__).with_name("chips"))


_VENDORS = {"nvidia", "tesla", "geforce", "amd", "instinct", "intel", "habana", "aws", "apple", "google", "cloud"}


def _spelling(name: str) -> str:
    """A name in lower case, without vendors and separators, so that all ways to write it are equal.

    >>> _spelling("NVIDIA H100-SXM5 80GB"), _spelling("rtx_4090")
    ('h100sxm580gb', 'rtx4090')
    """
    return "".join(word for word in re.split(r"[\s_-]+", name.strip().lower()) if word not in _VENDORS)


@functools.cache
def _names() -> dict[str, str]:
    """Every accepted spelling and the chip it means."""
    names: dict[str, str] = {}
    for name, table in _tables().items():
        for alias in (*table.get("aliases", []), name):
            names[_spelling(alias)] = name
    return names


def chip_names() -> list[str]:
    """The names of the built-in chips, in order."""
    return list(_tables())


def is_chip(name: str) -> bool:
    """Whether a built-in chip has this name or alias."""
    return _spelling(name) in _names()


def _based(table: dict[str, Any]) -> dict[str, Any]:
    """A table merged over the chip that it names as its base, if any."""
    if "base" not in table:
        return table
    changes = dict(table)
    base = _resolve(str(changes.pop("base")))
    merged = merge(_based(_tables()[base]), {"aliases": [], **changes})
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
    return read_chip(_based(_tables()[key]), f"{key}.toml")
