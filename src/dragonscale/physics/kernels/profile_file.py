"""Kernel profiles as TOML files, one for a chip or a family, and the choice of the one that fits a chip.

`chips` are those whose kernels were measured for the file (or, where none were, whose facts it was derived from);
`stands_for` are chips of the same family, which take its fractions of their own datasheet's rates, and its seconds
unchanged. A chip that no file names takes the file of its kind: `generic-gpu` or `tpu`. Every table names the evidence
that it rests on.

A user's profile, as `dscale calibrate` writes it, is taken where it is named (`--profile mine.toml`) or where a chip
asks for the one in the user's folder (`own`). Software with its own kernels names their `library`, and takes the file
that was measured with it where there is one.
"""

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware.architecture import architecture
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import RECORDS, FittedOn, Grouped, KernelProfile, Stream, Tables
from dragonscale.physics.units import parse
from dragonscale.tables import SourceFile, Strict, built_in, checked, file_version, read_table

# Profiles of chips that no file names, by kind.
_GENERIC = {"gpu": "generic-gpu", "tpu": "tpu"}
# Where a chip's file does not say: the SMs of an H100, and its L2 cache.
_DEFAULT_CORES = 132
_DEFAULT_CACHE_BYTES = 50 * 2**20
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
    """The library of these kernels, where it is not the one that most software calls: `jax`, `ggml`."""
    architectures: tuple[str, ...] = ()
    """Architectures whose chips take a library's kernels from this file."""
    cores: float | None = None
    """Cores that tiles are handed out to; the chip's number if not given."""


def read_profile(table: dict[str, Any], origin: str) -> ProfileFile:
    """Check a table against `ProfileFile`."""
    file = checked(table, ProfileFile, "kernel profile", origin)
    subject = f"The kernel profile {shorten(origin)}"
    for kind in KINDS:
        tables = getattr(file, kind)
        if not tables or {} in tables.values():
            raise InputError(f"{subject} has no tables of {kind}.")
    if file.cores is not None and not 0 < file.cores < MAX_CONSTANT:
        raise InputError(f"{subject} has no cores.")
    for path, raw in tables_of(file).items():
        rests_on = raw.get("rests_on")
        source = rests_on.get("source") if isinstance(rests_on, dict) else None
        if source not in file.sources:
            raise InputError(f"{subject} rests {path} on {source!r}, which [sources] does not list.")
    return file


def tables_of(file: ProfileFile) -> dict[str, dict[str, Any]]:
    """Every table of constants by its path: `matmul.bf16`, `grouped.fp8.triton`, `stream`."""
    tables = {"stream": file.stream}
    for kind in RECORDS:
        for name, table in getattr(file, kind).items():
            tables[f"{kind}.{name}"] = table
    for name, by_implementation in file.grouped.items():
        for implementation, table in by_implementation.items():
            tables[f"grouped.{name}.{implementation}"] = table
    return tables


def make_table(raw: dict[str, Any], record: type[_Record], where: str) -> _Record:
    """A record of constants in seconds and fractions from a table of a file."""
    values = {key: value for key, value in raw.items() if key != "rests_on"}
    names = {field.name for field in dataclasses.fields(record)}  # pyright: ignore[reportArgumentType]
    for key, value in values.items():
        if key not in names:
            raise unknown(f"constant of {where} called", key, names)
        if isinstance(value, str):
            values[key] = parse(value, "s", f"{where}.{key}")
        if not _is_possible(values[key], must_be_positive=key in _DIVISORS):
            raise InputError(
                f"{where}.{key} of a kernel profile is {shorten(str(value))}; no kernel has such a constant."
            )
    try:
        return msgspec.convert(values, record)
    except msgspec.ValidationError as error:
        raise InputError(f"The constants of {where} are not right: {error}.") from None


KINDS = (*RECORDS, "grouped")
MAX_CONSTANT = 1e9
# Constants that something is divided by, or that count.
_DIVISORS = {"rate", "bandwidth", "sustained", "cached", "throttle", "tile", "columns", "occupancy", "chain", "pad"}


def _is_possible(value: Any, must_be_positive: bool) -> bool:
    """Whether a number can be a constant of a kernel: none is negative or infinite, some are not zero."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_possible(entry, must_be_positive=True) for entry in value)
    if not isinstance(value, int | float):
        return True  # what is no number is refused by its type
    if must_be_positive and value <= 0:
        return False
    return 0 <= value < MAX_CONSTANT


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
        if library and file.library == library and (chip.kin in file.chips or architecture(chip) in file.architectures):
            return name
    # measured chips before those of the same family
    for listed in ("chips", "stands_for"):
        for name, file in files.items():
            if chip.kin in getattr(file, listed):
                return name
    if chip.kind not in _GENERIC:
        raise InputError(f"There is no kernel profile for {chip.title}, a chip of kind {chip.kind!r}.")
    return _GENERIC[chip.kind]


def backend(chip: Chip, library: str) -> str:
    """What a library's kernels on a chip are written in, as its profile is named; empty where it has none for the chip.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [backend(load_chip(name), "ggml") for name in ("rtx4090", "m3ultra", "v5p")]
    ['cuda', 'metal', '']
    """
    name = choose(chip, library)
    return name.rpartition("-")[2] if library and profile_files()[name].library == library else ""


def make_profile(file: ProfileFile, chip: Chip) -> KernelProfile:
    """A file's constants with a chip's datasheet rates."""
    for kind in KINDS:
        for name in getattr(file, kind):
            if name not in FORMATS:
                raise unknown("number format", name, FORMATS)
    tables: dict[str, Any] = {}
    for kind, record in RECORDS.items():
        written = getattr(file, kind)
        tables[kind] = Tables({name: make_table(raw, record, f"{kind}.{name}") for name, raw in written.items()})
    grouped: dict[str, dict[str, Grouped]] = {}
    for name, written in file.grouped.items():
        at = f"grouped.{name}"
        grouped[name] = {library: make_table(raw, Grouped, f"{at}.{library}") for library, raw in written.items()}
    rests_on = {path: msgspec.convert(raw["rests_on"], FittedOn) for path, raw in tables_of(file).items()}
    exponentials = 1.0
    if file.chips:
        exponentials = _exponentials(chip) / _exponentials(load_chip(file.chips[0]))
    last_level = chip.memory.get("l2") or chip.memory.get("vmem") or chip.memory.get("cmem")
    return KernelProfile(
        name=file.name,
        title=file.title,
        chip=chip,
        cores=file.cores or float(chip.structure.get("sms") or _gpu_cores(chip) or _DEFAULT_CORES),
        cache_bytes=last_level.capacity if last_level else _DEFAULT_CACHE_BYTES,
        stream=make_table(file.stream, Stream, "stream"),
        **tables,
        grouped=Tables(grouped),
        exponentials=exponentials,
        measured=chip.name in file.chips and any(evidence.rows for evidence in rests_on.values()),
        rests_on=rests_on,
    )


def _gpu_cores(chip: Chip) -> float:
    """The cores of a GPU whose maker does not call them multiprocessors."""
    return float(chip.structure.get("cores") or 0) if chip.kind == "gpu" else 0.0


def _exponentials(chip: Chip) -> float:
    """Exponentials of a core per cycle: 16 on GPUs since 2017, unless the chip's file says more."""
    return float(chip.structure.get("exponentials_per_cycle_per_sm", 16))


OWN = "own"
"""The name of the user's profile of a chip."""
BUILT_IN = "built-in"
"""The name of the built-in profile that fits a chip best."""


def own_folder() -> Path:
    """The folder of the user's profiles, each named after its chip: `$XDG_CONFIG_HOME/dragonscale/profiles`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dragonscale" / "profiles"


def own_file(chip: Chip | str) -> Path | None:
    """The user's profile of a chip; None if there is none."""
    name = chip if isinstance(chip, str) else chip.kin
    path = own_folder() / f"{name}.toml"
    try:
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def named_profile(name: str, chip: Chip) -> ProfileFile | None:
    """The file that a name means for a chip: a path, a built-in profile, or `own`; None for `built-in`."""
    if name == BUILT_IN:
        return None
    if name in profile_files():
        return profile_files()[name]
    if name == OWN:
        path = own_file(chip)
        if path is None:
            raise InputError(
                f"There is no profile of your own for {chip.kin} in {shorten(str(own_folder()))}; "
                "`dscale calibrate --install` puts one there."
            )
        name = str(path)
    elif not name.endswith(".toml"):
        hint = "A path ending in .toml is one of your own."
        raise unknown("kernel profile", name, [OWN, BUILT_IN, *profile_files()], hint)
    return _read_file(name, file_version(name))


def profile_version(chip: Chip) -> tuple[object, ...]:
    """A key that changes with the profile that is named with a chip, for caches of what was computed from it."""
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
    """The profile of a chip's kernels: the one that is named here or with the chip, or the built-in one that best fits
    the chip and the library of the software.

    >>> kernel_profile_for("h100").measured, kernel_profile_for("gb200").name, kernel_profile_for("gb200").measured
    (True, 'b200', False)
    """
    if isinstance(chip, str):
        chip = load_chip(chip)
    if path or chip.kernels:
        file = named_profile(path or chip.kernels, chip)
        if file is not None:
            return make_profile(file, chip)
    name = choose(chip, library)
    if chip.name in chip_names() and load_chip(chip.name) is chip:
        return _built_in(name, chip.name)  # of an unchanged chip of the catalogue, made once
    return make_profile(profile_files()[name], chip)
