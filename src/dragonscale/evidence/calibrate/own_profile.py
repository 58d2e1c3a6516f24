"""A kernel profile out of measurements: every table that they settle is fitted, the others are the built-in profile's.

A table says what it rests on: how many rows, the median error left on them, and the error on shapes that were left out
of the fit, a fifth at a time, which is what to expect on shapes of other models. One without measurements says from
which built-in profile it was taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.checking import TAKEN_OVER
from dragonscale.evidence.calibrate.expected import RAGGED, TABLES, log_errors, shape_of
from dragonscale.evidence.calibrate.fitting import BOUNDS, fit_table, fold, held_out_error, median_error
from dragonscale.evidence.calibrate.profile_text import profile_text, put_constants
from dragonscale.evidence.calibrate.records import Machine, TimedCase
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import KernelProfile, Tables
from dragonscale.physics.kernels.profile_file import ProfileFile, choose, make_profile, profile_files, read_profile

FEWEST = 4
"""Rows below which a table is not fitted."""
UNSETTLED = 0.10
"""Measurements whose quartiles are farther apart than this, over the median, are left out where enough others are
there."""
SHAPE_FOLDS = 5
EXPANDS = 0.20
"""Experts that are this near to a matmul over all of them are one."""


@dataclass(frozen=True)
class TableFit:
    """A fitted table: where it stands (`matmul.bf16`), its rows, errors before, after and on shapes left out."""

    path: tuple[str, str, str]
    table: Any
    rows: int
    before: float
    after: float
    held_out: float
    unseen: float

    @property
    def name(self) -> str:
        return ".".join(filter(None, self.path))


@dataclass(frozen=True)
class FittedProfile:
    """A profile's file as a table and as text, with what was fitted of it."""

    file: ProfileFile
    text: str
    fits: list[TableFit]
    based_on: str


def fit_profile(rows: Sequence[TimedCase], machine: Machine, chip: Chip) -> FittedProfile:
    """The profile of a chip that the rows of one machine settle."""
    base = choose(chip)
    source = msgspec.to_builtins(profile_files()[base])
    profile = make_profile(profile_files()[base], chip)
    tables = _tables(rows, profile)
    fits: list[TableFit] = []
    if not tables:
        raise InputError("There are too few measurements for any table of a profile; measure for longer.")
    for path, own in tables.items():
        profile = _with_table(profile, path, _started(profile, path))
        fits.append(_fitted(own, path, profile))
        profile = _with_table(profile, path, fits[-1].table)
    _described(source, machine, chip, base)
    for found in fits:
        _put(source, found)
    name = source["name"]
    return FittedProfile(read_profile(source, name), profile_text(source, name), fits, base)


def _tables(rows: Sequence[TimedCase], profile: KernelProfile) -> dict[tuple[str, str, str], list[TimedCase]]:
    """The rows of each table that has enough of them and whose format the chip multiplies."""
    found: dict[tuple[str, str, str], list[TimedCase]] = {}
    for row in rows:
        kind = TABLES.get(row.kind)
        if kind is None or row.dtype not in FORMATS or FORMATS[row.dtype].compute not in profile.chip.matrix:
            continue
        path = (kind, "", "") if kind == "stream" else (kind, row.dtype, RAGGED if kind == "grouped" else "")
        found.setdefault(path, []).append(row)
    for path, own in found.items():
        settled = [row for row in own if row.spread <= UNSETTLED]
        found[path] = settled if len(settled) >= FEWEST else own
    order = [*("stream", "matmul", "attention", "decode", "grouped")]
    kept = {
        path: own for path, own in found.items() if len([row for row in own if row.kind != "attention_both"]) >= FEWEST
    }
    return dict(sorted(kept.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1] != "bf16")))


def _started(profile: KernelProfile, path: tuple[str, str, str]) -> Any:
    kind, dtype, who = path
    if kind == "stream":
        return profile.stream
    table = getattr(profile, kind).of(dtype)
    if kind == "grouped":
        return table.get(who) or next(iter(table.values()))
    return table


def _with_table(profile: KernelProfile, path: tuple[str, str, str], table: Any) -> KernelProfile:
    kind, dtype, who = path
    if kind == "stream":
        return replace(profile, stream=table)
    tables = dict(getattr(profile, kind).by_format)
    tables[dtype] = {**tables.get(dtype, {}), who: table} if kind == "grouped" else table
    return replace(profile, **{kind: Tables(tables)})


def _fitted(rows: list[TimedCase], path: tuple[str, str, str], profile: KernelProfile) -> TableFit:
    start = _started(profile, path)
    bounds = _bounds(path[0])

    spread = replace(start, expanded=True) if path[0] == "grouped" else None

    def fitted(kept: Sequence[TimedCase]) -> Any:
        if spread is not None and median_error(errors(kept, spread)) < EXPANDS:  # a law without constants of its own
            return spread
        forward = [row for row in kept if row.kind != "attention_both"]
        own = forward if len(forward) >= FEWEST else list(kept)
        table = fit_table(start, bounds, lambda trial: log_errors(own, _with_table(profile, path, trial)))
        return _with_backward(table, kept, path, profile)

    def errors(tested: Sequence[TimedCase], table: Any) -> Any:
        return log_errors(tested, _with_table(profile, path, table))

    table = fitted(rows)
    return TableFit(
        path,
        table,
        len(rows),
        median_error(errors(rows, start)),
        median_error(errors(rows, table)),
        held_out_error(rows, lambda row: fold(row.case.id, 2), fitted, errors),
        held_out_error(rows, lambda row: fold(shape_of(row), SHAPE_FOLDS), fitted, errors),
    )


def _bounds(kind: str) -> dict[str, tuple[float, float, float]]:
    """The constants that these rows can settle."""
    apart = ("quantise", "dispatch", "write", "cached")
    return {name: pair for name, pair in BOUNDS[kind].items() if not name.startswith(apart)}


def _with_backward(table: Any, rows: Sequence[TimedCase], path: tuple[str, str, str], profile: KernelProfile) -> Any:
    """Attention's backward pass over its forward one: the median of what both passes took over what
    the forward takes."""
    import numpy

    from dragonscale.evidence.calibrate.expected import expected_seconds

    both = [row for row in rows if row.kind == "attention_both"]
    if path[0] != "attention" or not both:
        return table
    alone = [msgspec.structs.replace(row, kind="attention") for row in both]
    forward = expected_seconds(alone, _with_table(profile, path, table))
    ratio = float(numpy.median(numpy.array([row.seconds for row in both]) / forward)) - 1
    return replace(table, backward=float(f"{max(1.0, ratio):.4g}"))


def _described(source: dict[str, Any], machine: Machine, chip: Chip, base: str) -> None:
    """The head of the file: whose kernels, measured with what, and where the other tables come from."""
    with_ = ", ".join(f"{name} {version}" for name, version in machine.software.items())
    source["name"] = f"{chip.name}-{machine.timed_with}"
    source["title"] = f"{chip.title}, kernels of {'JAX' if machine.timed_with == 'jax' else 'PyTorch'}"
    source["rests_on"] = f"Kernels timed on this device by `dscale calibrate`, {machine.date}; the rest as in {base}."
    source["chips"], source["stands_for"] = [chip.name], []
    source["library"] = "jax" if machine.timed_with == "jax" else ""
    source["sources"]["calibrate"] = {
        "title": f"dscale calibrate on {machine.devices} x {machine.device}: {with_}; cold caches, medians",
        "date": machine.date,
    }
    for name in ("cores", "library"):
        if not source.get(name):
            source.pop(name, None)
    for named in source["sources"].values():
        if not named.get("url"):
            named.pop("url", None)
    for where, raw in _raw_tables(source).items():
        rest = raw["rests_on"]
        note = f"{TAKEN_OVER} {base}, where it is {where}"
        rest["note"] = f"{note}; {rest['note']}" if rest.get("note") else note


def _raw_tables(source: dict[str, Any]) -> dict[str, dict[str, Any]]:
    from dragonscale.physics.kernels.profile_file import tables_of

    return tables_of(msgspec.convert(source, ProfileFile))


def _put(source: dict[str, Any], found: TableFit) -> None:
    kind, dtype, who = found.path
    if kind == "stream":
        raw = source["stream"]
    else:
        place = source[kind].setdefault(dtype, {}) if kind == "grouped" else source[kind]
        key = who if kind == "grouped" else dtype
        if key not in place:
            others = dict(place)
            place.clear()
            place |= {key: _plain(found.table), **others}  # what was measured here is what is usual here
        raw = place[key]
    rest = {
        "source": "calibrate",
        "rows": found.rows,
        "median_ape": round(found.after, 3),
        "held_out": round(found.held_out, 3),
        "unseen_shapes": round(found.unseen, 3),
    }
    raw["rests_on"] = {}
    put_constants(raw, found.table, kind, {name: one for name, one in rest.items() if one == one})


def _plain(table: Any) -> dict[str, Any]:
    """A record's constants that `put_constants` does not write: tiles and what is not fitted."""
    raw = msgspec.to_builtins(table)
    if raw.get("expanded"):
        return {name: raw[name] for name in ("launch", "rate", "rows", "expanded")}
    return {
        name: value
        for name, value in raw.items()
        if isinstance(value, list | tuple | int | bool) and value not in (0, False)
    }
