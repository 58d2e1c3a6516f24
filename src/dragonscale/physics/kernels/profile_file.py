"""Kernel profiles as TOML files, one for a chip or a family, and the choice of the one that fits a chip.

`chips` are those whose kernels were measured for the file (or, where none were, whose facts it was worked out from);
`stands_for` are chips of the same family, which take its fractions with their own datasheet's rates, and its seconds as
they are. A chip that no file names takes the file of its kind: `generic-gpu` or `tpu`. Every table says what it rests
on.

A profile of one's own, as `dscale calibrate` writes it, is taken where it is named (`--profile mine.toml`) or lies in
the user's folder under the chip's name. Software whose kernels are not those of other software names their `library`,
and takes the file that was measured with it where there is one.
"""

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import RECORDS, FittedOn, Grouped, KernelProfile, Stream, Tables
from dragonscale.physics.units import parse
from dragonscale.tables import SourceFile, Strict, built_in, checked, file_version, read_table

_USUAL = {"gpu": "generic-gpu", "tpu": "tpu"}
_Record = TypeVar("_Record")


class ProfileFile(Strict, frozen=True):
    """The whole file. Times are text with units, the rest plain numbers."""

    name: str
    title: str
    rests_on: str
    sources: dict[str, SourceFile]
    stream: dict[str, Any]
    matmul: dict[str, dict[str, Any]]
    attention: dict[str, dict[str, Any]]
    decode: dict[str, dict[str, Any]]
    grouped: dict[str, dict[str, dict[str, Any]]]
    chips: tuple[str, ...] = ()
    stands_for: tuple[str, ...] = ()
    library: str = ""
    """Whose kernels these are, where they are not those that most software calls: `jax`."""
    cores: float | None = None
    """Cores that tiles are handed out to; the chip's own number if not given."""


def read_profile(table: dict[str, Any], origin: str) -> ProfileFile:
    """Check a table against `ProfileFile`."""
    file = checked(table, ProfileFile, "kernel profile", origin)
    empty = [kind for kind in (*RECORDS, "grouped") if not getattr(file, kind) or {} in getattr(file, kind).values()]
    if empty or not 0 < (132 if file.cores is None else file.cores) < MOST:
        what = f"tables of {empty[0]}" if empty else "cores"
        raise InputError(f"The kernel profile {shorten(origin)} has no {what}.")
    for path, raw in tables_of(file).items():
        rests = raw.get("rests_on")
        source = rests.get("source") if isinstance(rests, dict) else None
        if source not in file.sources:
            raise InputError(
                f"The kernel profile {shorten(origin)} rests {path} on {source!r}, which [sources] does not list."
            )
    return file


def tables_of(file: ProfileFile) -> dict[str, dict[str, Any]]:
    """Every table of constants by its path: `matmul.bf16`, `grouped.fp8.triton`, `stream`."""
    found = {"stream": file.stream}
    for kind in RECORDS:
        found |= {f"{kind}.{name}": table for name, table in getattr(file, kind).items()}
    for name, own in file.grouped.items():
        found |= {f"grouped.{name}.{who}": table for who, table in own.items()}
    return found


def make_table(raw: dict[str, Any], record: type[_Record], where: str) -> _Record:
    """A record of constants in seconds and fractions from a table of a file."""
    values = {key: value for key, value in raw.items() if key != "rests_on"}
    names = {field.name for field in dataclasses.fields(record)}  # pyright: ignore[reportArgumentType]
    for key, value in values.items():
        if key not in names:
            raise unknown(f"constant of {where} called", key, names)
        values[key] = parse(value, "s", f"{where}.{key}") if isinstance(value, str) else value
        if not _possible(values[key], key in _DIVISORS):
            raise InputError(
                f"{where}.{key} of a kernel profile is {shorten(str(value))}; no kernel has such a constant."
            )
    try:
        return msgspec.convert(values, record)
    except msgspec.ValidationError as error:
        raise InputError(f"The constants of {where} are not right: {error}.") from None


MOST = 1e9
_DIVISORS = {"rate", "bandwidth", "sustained", "cached", "throttle", "tile", "columns", "occupancy", "chain", "pad"}
"""Constants that something is divided by, or that count."""


def _possible(value: Any, above: bool) -> bool:
    """Whether a number can be a constant of a kernel: none is negative or endless, some are not zero."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_possible(one, True) for one in value)
    if not isinstance(value, int | float):
        return True  # what is no number is told by its type
    return (value > 0 if above else value >= 0) and value < MOST


@functools.cache
def profile_files() -> dict[str, ProfileFile]:
    """The built-in profiles by name."""
    tables = built_in(Path(__file__).with_name("profiles"))
    return {name: read_profile(table, f"{name}.toml") for name, table in tables.items()}


def choose(chip: Chip, library: str = "") -> str:
    """The name of the built-in profile that fits a chip best, for software that calls some library.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [choose(load_chip(name)) for name in ("h200", "h800", "gb200", "l40s", "v5p")]
    ['h200', 'h100', 'b200', 'generic-gpu', 'tpu']
    """
    files = {name: file for name, file in profile_files().items() if not file.library}
    for name, file in profile_files().items():
        if library and file.library == library and chip.kin in file.chips:
            return name
    for named in ("chips", "stands_for"):
        for name, file in files.items():
            if chip.kin in getattr(file, named):
                return name
    if chip.kind not in _USUAL:
        raise InputError(f"There is no kernel profile for {chip.title}, a chip of kind {chip.kind!r}.")
    return _USUAL[chip.kind]


def make_profile(file: ProfileFile, chip: Chip) -> KernelProfile:
    """A file's constants with a chip's datasheet rates."""
    wrong = [name for kind in (*RECORDS, "grouped") for name in getattr(file, kind) if name not in FORMATS]
    if wrong:
        raise unknown("number format", wrong[0], FORMATS)
    tables: dict[str, Any] = {
        kind: Tables({name: make_table(raw, record, f"{kind}.{name}") for name, raw in getattr(file, kind).items()})
        for kind, record in RECORDS.items()
    }
    grouped = {
        name: {who: make_table(raw, Grouped, f"grouped.{name}.{who}") for who, raw in own.items()}
        for name, own in file.grouped.items()
    }
    rests = {path: msgspec.convert(raw["rests_on"], FittedOn) for path, raw in tables_of(file).items()}
    last = chip.memory.get("l2") or chip.memory.get("vmem") or chip.memory.get("cmem")
    return KernelProfile(
        file.name,
        file.title,
        chip,
        file.cores or float(chip.structure.get("sms") or 132),
        last.capacity if last else 50 * 2**20,
        make_table(file.stream, Stream, "stream"),
        **tables,
        grouped=Tables(grouped),
        exponentials=_exponentials(chip) / _exponentials(load_chip(file.chips[0])) if file.chips else 1.0,
        measured=chip.name in file.chips and any(rest.rows for rest in rests.values()),
        rests_on=rests,
    )


def _exponentials(chip: Chip) -> float:
    """Exponentials of a core in a cycle: 16 on GPUs since 2017, unless the chip's file says more."""
    return float(chip.structure.get("exponentials_per_cycle_per_sm", 16))


OWN, BUILT_IN = "own", "built-in"
"""Words for a profile: the one in the user's folder, and none of one's own."""


def own_folder() -> Path:
    """Where profiles of one's own lie, each under the name of its chip: `$XDG_CONFIG_HOME/dragonscale/profiles`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dragonscale" / "profiles"


def own_file(chip: Chip | str) -> Path | None:
    """The user's own profile of a chip, if there is one."""
    path = own_folder() / f"{chip if isinstance(chip, str) else chip.kin}.toml"
    try:
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def named_profile(word: str, chip: Chip) -> ProfileFile | None:
    """The file that a word means for a chip: a path, the name of a built-in profile, `own`; None for `built-in`."""
    if word == BUILT_IN:
        return None
    if word in profile_files():
        return profile_files()[word]
    if word == OWN:
        found = own_file(chip)
        if found is None:
            raise InputError(
                f"There is no profile of your own for {chip.kin} in {shorten(str(own_folder()))}; "
                "`dscale calibrate --install` puts one there."
            )
        word = str(found)
    elif not word.endswith(".toml"):
        raise unknown(
            "kernel profile", word, [OWN, BUILT_IN, *profile_files()], "A path ending in .toml is one of your own."
        )
    return _read_file(word, file_version(word))


def profile_version(chip: Chip) -> tuple[object, ...]:
    """What changes when the profile that is named with a chip does, for what is kept of it."""
    if not chip.kernels or chip.kernels == BUILT_IN or chip.kernels in profile_files():
        return (chip.kernels,)
    path = str(own_file(chip) or "") if chip.kernels == OWN else chip.kernels
    return (path, file_version(path))


@functools.lru_cache(maxsize=64)
def _read_file(path: str, _version: tuple[int, ...] | None) -> ProfileFile:
    return read_profile(read_table(Path(path), "Kernel profile"), path)


@functools.cache
def _built_in(name: str, chip: str) -> KernelProfile:
    return make_profile(profile_files()[name], load_chip(chip))


def kernel_profile_for(chip: Chip | str, path: str = "", library: str = "") -> KernelProfile:
    """The profile of a chip's kernels: the one that is named here or with the chip, or the built-in one that fits best
    a chip and software that calls some library.

    >>> kernel_profile_for("h100").measured, kernel_profile_for("gb200").name, kernel_profile_for("gb200").measured
    (True, 'b200', False)
    """
    found = load_chip(chip) if isinstance(chip, str) else chip
    if word := path or found.kernels:
        own = named_profile(word, found)
        if own is not None:
            return make_profile(own, found)
    name = choose(found, library)
    catalogued = found.name in chip_names() and load_chip(found.name) is found
    return _built_in(name, found.name) if catalogued else make_profile(profile_files()[name], found)
