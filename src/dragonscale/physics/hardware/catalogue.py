"""Chips by name: the built-in catalogue, or the path of a user's own file, with changes to ask what if
(`h100+hbm=2x`)."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import unknown
from dragonscale.physics.hardware.changes import changed_chip, split_changes
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.chip_file import merge, read_chip
from dragonscale.tables import built_in, file_version, read_table


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    """The built-in files by chip name."""
    return built_in(Path(__file__).with_name("chips"))


@functools.cache
def _names() -> dict[str, str]:
    """Every accepted spelling and the chip it means."""
    tables = _tables()
    spellings = {alias.lower(): name for name, table in tables.items() for alias in table.get("aliases", [])}
    return spellings | {name.lower(): name for name in tables}


def chip_names() -> list[str]:
    """The names of the built-in chips, in order."""
    return list(_tables())


def is_chip(name: str) -> bool:
    """Whether a built-in chip has this name or alias."""
    return name.strip().lower() in _names()


def _based(table: dict[str, Any]) -> dict[str, Any]:
    """A table merged over the chip it names as its base, if any."""
    if "base" not in table:
        return table
    own = {key: value for key, value in table.items() if key != "base"}
    merged = merge(_based(_tables()[_resolve(str(table["base"]))]), {"aliases": [], **own})
    memory = own.get("memory")
    hbm = memory.get("hbm") if isinstance(memory, dict) else None
    # what is no table is refused as the file is read
    if isinstance(hbm, dict) and "capacity" in hbm and "visible" not in hbm:
        # what programs find of the base's memory says nothing about another memory
        main = {key: value for key, value in merged["memory"]["hbm"].items() if key != "visible"}
        merged = {**merged, "memory": {**merged["memory"], "hbm": main}}
    if "price" in own and "list_price" not in own:
        merged = {key: value for key, value in merged.items() if key != "list_price"}  # that of the base says nothing
    return merged


def _resolve(name: str) -> str:
    spelling = name.strip().lower()
    if spelling not in _names():
        raise unknown("chip", name, chip_names(), "A path ending in .toml describes a chip of your own.")
    return _names()[spelling]


def _remembered(load: Callable[[str], Chip]) -> Callable[[str], Chip]:
    """Chips are loaded once; a user's own file again as soon as it is another file or has changed."""
    known = functools.cache(lambda name, _: load(name))

    @functools.wraps(load)
    def loaded(name: str) -> Chip:
        path, ending, _ = name.partition(".toml")
        if not ending:
            return known(name, None)
        version = file_version(path + ending)
        return load(name) if version is None else known(name, version)  # what cannot be read says why

    return loaded


@_remembered
def load_chip(name: str) -> Chip:
    """A chip by name (`v5p`, `h100`), alias, or path of a TOML file; with changes after it (`h100+hbm=1.5x`).

    >>> load_chip("v5e").peak("bf16")
    197000000000000.0
    >>> load_chip("tpu-v5e").title
    'TPU v5e'
    """
    plain, changes = split_changes(name)
    if changes:
        return changed_chip(load_chip(plain), *changes)
    if name.endswith(".toml"):
        table = read_table(Path(name), "Chip file")
        chip = read_chip(_based(table), name)
        return replace(chip, like=_resolve(str(table["base"]))) if "base" in table else chip
    key = _resolve(name)
    return read_chip(_based(_tables()[key]), f"{key}.toml")
