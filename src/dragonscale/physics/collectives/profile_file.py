"""Efficiency profiles as TOML files, one per network, and the choice of those that fit a chip.

A file describes one tier: `domain` (inside a node or rack), `fabric` (between nodes), `rail` (between nodes, one chip
of each), `torus` or `wide`. It names the chips it was measured on and, between nodes, the transports. Every algorithm's
table says what its constants rest on: the source, how many measurements, and the error they leave. A chip nobody has
measured gets the file that lists no chips: the generic one of the tier, which says what it rests on (`is_measured`).
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
    """The evidence for an algorithm's constants: the source, how many measured rows, and the errors left on those rows.
    `borrowed` names the constants that the rows do not determine and that come from elsewhere, as the note says."""

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
    subject = f"The network profile {shorten(origin)}"
    for paths in (file.paths, *file.implementations.values()):
        for name, path in paths.items():
            if path.rests_on.source not in file.sources:
                raise InputError(f"{subject} rests {name} on {path.rests_on.source!r}, which [sources] does not list.")
            if not 0 < path.fraction <= 1:
                raise InputError(f"{subject} gives {name} the fraction {path.fraction}; it lies in (0, 1].")
    return file


def make_path(file: PathFile) -> Path:
    """The constants in seconds, bytes and bytes per second."""
    return Path(
        launch=parse(file.launch, "s", "launch"),
        hop=parse(file.hop, "s", "hop"),
        fraction=file.fraction,
        ramp=parse(file.ramp, "s", "ramp"),
        copy=_rate(file.copy, "copy"),
        stall=parse(file.stall, "s", "stall"),
        switch=parse(file.switch, "bytes", "switch"),
        flags=_rate(file.flags, "flags"),
    )


def make_tier(file: TierFile) -> NetworkTier:
    """The tier that a file describes."""
    implementations = {library: _make_paths(paths) for library, paths in file.implementations.items()}
    return NetworkTier(
        file.name, file.title, _make_paths(file.paths), implementations, _rate(file.egress, "egress"), file.halves
    )


def _rate(text: str | None, what: str) -> float | None:
    """Bytes per second; None where the file states none."""
    if not text:
        return None
    return parse(text, "bytes/s", what)


def _make_paths(files: dict[str, PathFile]) -> dict[str, Path]:
    return {name: make_path(file) for name, file in files.items()}


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

    # by how well a file fits: (measured on this chip, measured on this transport)
    candidates: dict[tuple[bool, bool], str] = {}
    for file in tier_files().values():
        on_chip, over_transport = chip in file.chips, transport in file.transports
        is_other = (file.chips and not on_chip) or (file.transports and not over_transport)
        if file.tier == tier and not is_other:
            candidates.setdefault((on_chip, over_transport), file.name)
    return candidates[max(candidates)]


def is_measured(tier: str, chip: Chip) -> bool:
    """Whether a profile of a tier is of this chip's network; otherwise the generic one stands in.

    >>> from dragonscale.physics.hardware import load_chip
    >>> is_measured("domain", load_chip("h200")), is_measured("domain", load_chip("l40s"))
    (True, False)
    """
    return not load_tier(choose(tier, chip.kin)).is_generic


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
    name = chip if isinstance(chip, str) else chip.kin
    return _profile(name, transport, implementation)


def implementations() -> list[str]:
    """Every library but `nccl` that some profile has measurements of."""
    return sorted({name for file in tier_files().values() for name in file.implementations})
