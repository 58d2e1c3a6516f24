"""Chips by name: the built-in catalogue, or the path of a user's own file, with changes to ask what if
(`h100+hbm=2x`)."""

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
    """A name without capitals, vendors and what stands between its words.

    >>> _spelling("NVIDIA H100-SXM5 80GB"), _spelling("rtx_4090")
    ('h100sxm580gb', 'rtx4090')
    """
    return "".join(word for word in re.split(r"[\s_-]+", name.strip().lower()) if word not in _VENDORS)


@functools.cache
def _names() -> dict[str, str]:
    """Every accepted spelling and the chip it means."""
    tables = _tables()
    return {_spelling(one): name for name, table in tables.items() for one in (*table.get("aliases", []), name)}


def chip_names() -> list[str]:
    """The names of the built-in chips, in order."""
    return list(_tables())


def is_chip(name: str) -> bool:
    """Whether a built-in chip has this name or alias."""
    return _spelling(name) in _names()


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
    # the base's prices say nothing about a chip with a price, a memory or rates of its own
    other = {"price", "list_price"} - own.keys() if own.keys() & {"price", "memory", "matrix"} else set()
    return {key: value for key, value in merged.items() if key not in other}


def _resolve(name: str) -> str:
    spelling = _spelling(name)
    if spelling not in _names():
        alike = [one for one in _names() if _same_numbers(spelling, one)]
        meant = nearest(spelling, [one for one in chip_names() if one in alike]) or _names().get(
            nearest(spelling, alike), ""
        )
        raise _no_chip(name, meant)
    return _names()[spelling]


def _same_numbers(typed: str, name: str) -> bool:
    """Whether a mistyped name may mean a chip by its digits: an A40 is no A10, with one letter changed.

    >>> _same_numbers("a40", "a10"), _same_numbers("h10", "h100"), _same_numbers("v5x", "v5p")
    (False, True, True)
    """
    digits, others = (re.sub(r"\D", "", one.translate(LOOK_ALIKE)) for one in (typed, name))
    return others.startswith(digits) or digits.startswith(others)


def _no_chip(name: str, meant: str) -> InputError:
    """The error for a name of no chip: what was meant, or else where all chips are listed."""
    guess = f"; did you mean {meant!r}?" if meant else "."
    every = f"`dscale chips` lists all {len(chip_names())}; a path ending in .toml or .yaml describes one of your own."
    alike = [one for one in chip_names() if resembles(name, one) and one != meant]
    also = f" Similar: {', '.join(alike)}." if alike else ""
    return InputError(f"There is no chip {shorten(name)}{guess}{also} {every}")


_FILE = re.compile(r".*?\.(?:toml|ya?ml)(?=$|[:+*])", re.IGNORECASE)


def chip_path(text: str) -> str:
    """The path of a user's chip file at the start of what was written; empty where there is none.

    >>> chip_path("./my.yaml+hbm=2x:8"), chip_path("my.chip.toml"), chip_path("h100:8")
    ('./my.yaml', 'my.chip.toml', '')
    """
    found = _FILE.match(text.strip()) if len(text) < 5000 else None
    return found[0] if found else ""


def _remembered(load: Callable[[str], Chip]) -> Callable[[str], Chip]:
    """Chips are loaded once; a user's own file again as soon as it is another file or has changed."""
    known = functools.cache(lambda name, _: load(name))

    @functools.wraps(load)
    def loaded(name: str) -> Chip:
        path = chip_path(name)
        if not path:
            return known(name, None)
        version = file_version(path)
        return load(name) if version is None else known(name, version)  # what cannot be read says why

    return loaded


@_remembered
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
        whole, told = completed(table, name)
        return replace(read_chip(whole, name), assumed=told)
    key = _resolve(name)
    return read_chip(_based(_tables()[key]), f"{key}.toml")
