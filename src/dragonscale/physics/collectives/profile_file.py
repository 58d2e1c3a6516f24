"""Efficiency profiles as TOML files, one per network, and the choice of those that fit a chip.

A file describes one tier: `domain` (inside a node or rack), `fabric` (between nodes), `rail` (between nodes, one chip
of each), `torus` or `wide`. It names the chips it was measured on and, between nodes, the transports. Every algorithm's
table says what its constants rest on: the source, how many measurements, and the error they leave. A chip nobody has
measured gets the file that lists no chips: the generic one of the tier, which says what it rests on.
"""

import functools
from pathlib import Path as FilePath
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.collectives.profile import NetworkProfile, NetworkTier, Path
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.units import parse
from dragonscale.tables import SourceFile, Strict, built_in, checked, read_table

TIERS = ("domain", "fabric", "rail", "torus", "wide")
TRANSPORTS = ("ib", "roce", "efa", "")


class RestsOn(Strict, frozen=True):
    """Where an algorithm's constants come from: the source, how many rows, and the errors they leave on those rows.
    `borrowed` names the constants that the rows do not settle and that come from elsewhere, as the note says."""

    source: str
    rows: int = 0
    median_ape: float | None = None
    mape: float | None = None
    borrowed: tuple[str, ...] = ()
    note: str = ""


class PathFile(Strict, frozen=True):
    """One algorithm's constants. Times and rates are text with units."""

    rests_on: RestsOn
    launch: str = "0us"
    hop: str = "0us"
    fraction: float = 1.0
    ramp: str = "0us"
    copy: str | None = None
    stall: str = "0us"
    switch: str = "0B"
    flags: str | None = None


class TierFile(Strict, frozen=True):
    """The whole file."""

    name: str
    title: str
    tier: str
    rests_on: str
    sources: dict[str, SourceFile]
    paths: dict[str, PathFile] = {}
    implementations: dict[str, dict[str, PathFile]] = {}
    chips: list[str] = []
    transports: list[str] = []
    egress: str | None = None
    halves: bool = True


def read_tier(table: dict[str, Any], origin: str) -> TierFile:
    """Check a table against `TierFile`."""
    file = checked(table, TierFile, "network profile", origin)
    if file.tier not in TIERS:
        raise unknown("tier", file.tier, TIERS)
    everything = [*file.paths.items(), *(pair for own in file.implementations.values() for pair in own.items())]
    for name, path in everything:
        at, source = f"The network profile {shorten(origin)}", path.rests_on.source
        if source not in file.sources:
            raise InputError(f"{at} rests {name} on {source!r}, which [sources] does not list.")
        if not 0 < path.fraction <= 1:
            raise InputError(f"{at} gives {name} the fraction {path.fraction}; it lies in (0, 1].")
    return file


def make_path(file: PathFile) -> Path:
    """The constants in seconds and bytes per second."""
    units: dict[str, str] = dict.fromkeys(("launch", "hop", "ramp", "stall"), "s")
    units |= {"copy": "bytes/s", "flags": "bytes/s", "switch": "bytes"}
    read = {name: parse(text, unit, name) for name, unit in units.items() if (text := getattr(file, name))}
    return Path(fraction=file.fraction, **read)


def make_tier(file: TierFile) -> NetworkTier:
    """The tier that a file describes."""
    own = {who: {name: make_path(path) for name, path in them.items()} for who, them in file.implementations.items()}
    egress = parse(file.egress, "bytes/s", "egress") if file.egress else None
    paths = {name: make_path(path) for name, path in file.paths.items()}
    return NetworkTier(file.name, file.title, paths, own, egress, file.halves)


@functools.cache
def tier_files() -> dict[str, TierFile]:
    """The built-in profiles by name."""
    tables = built_in(FilePath(__file__).with_name("profiles"))
    return {name: read_tier(table, f"{name}.toml") for name, table in tables.items()}


def load_tier(name: str) -> NetworkTier:
    """A network's profile by name, or from the path of a TOML file."""
    if name.endswith(".toml"):
        return make_tier(read_tier(read_table(FilePath(name), "Network profile"), name))
    files = tier_files()
    if name not in files:
        raise unknown("network profile", name, files, "A path ending in .toml describes one of your own.")
    return make_tier(files[name])


def choose(tier: str, chip: str, transport: str = "") -> str:
    """The name of the profile that fits best: measured on this chip and transport, on this chip, on this transport, or
    the generic one.

    >>> choose("domain", "h200"), choose("torus", "v5p"), choose("domain", "l40s")
    ('nvlink4', 'ici', 'generic-domain')
    """

    found: dict[tuple[bool, bool], str] = {}
    for file in tier_files().values():
        on, over = chip in file.chips, transport in file.transports
        if file.tier == tier and (on or not file.chips) and (over or not file.transports):
            found.setdefault((on, over), file.name)
    return found[max(found)]


@functools.cache
def _profile(chip: str, transport: str, implementation: str) -> NetworkProfile:
    tiers = {tier: load_tier(choose(tier, chip, transport)) for tier in TIERS}
    return NetworkProfile(**tiers, implementation=implementation)


def profile_for(chip: Chip | str, transport: str = "ib", implementation: str = "nccl") -> NetworkProfile:
    """The profile of a chip's networks, with the transport between nodes (`ib`, `efa`, `roce`, or empty if unknown) and
    the library whose kernels run.

    >>> from dragonscale.physics.hardware import load_chip
    >>> profile_for(load_chip("h100")).domain.title
    'NVLink 4 under NVSwitch'
    """
    if transport not in TRANSPORTS:
        raise unknown("transport", transport, TRANSPORTS)
    return _profile(chip if isinstance(chip, str) else chip.kin, transport, implementation)


def implementations() -> list[str]:
    """Every library that some profile knows, beside the usual `nccl`."""
    return sorted({name for file in tier_files().values() for name in file.implementations})
