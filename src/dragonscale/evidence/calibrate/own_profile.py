"""A kernel profile out of measurements: every table that they settle is fitted, the others are the built-in profile's.

A table says what it rests on: how many rows, the median error left on them, and the error on shapes that were left out
of the fit, a fifth at a time, which is what to expect on shapes of other models. One without measurements says from
which built-in profile it was taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate import fitting
from dragonscale.evidence.calibrate.cases import Machine, TimedCase
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels import profile_file
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import KernelProfile, Tables
from dragonscale.tables import toml_value

FEWEST = 4
"""Rows below which a table is not fitted."""
UNSETTLED = 0.10
"""Measurements whose quartiles are farther apart than this, over the median, are left out where enough others are
there."""
SHAPE_FOLDS = 5
EXPANDS = 0.20
"""Experts that are this near to a matmul over all of them are one."""
KINDS = ("stream", "matmul", "attention", "decode", "grouped")
"""Tables in the order in which they are fitted and written."""
TIMES = {"launch", "join", "throttle", "edge", "fill", "block", "group", "key", "expert"}
"""Constants in seconds, beside those whose name says so."""
TablePath = tuple[str, str, str]
"""Where a table stands: its kind, its format, its implementation."""


class ProfileTable(msgspec.Struct):
    """A table of the profile: how many measurements settle it (none: it was taken over), and the median errors of the
    built-in constants, of the fitted ones, of fits that left out half of the rows, and of fits that left out whole
    shapes."""

    table: str
    rows: int
    built_in_error: float | None = None
    error: float | None = None
    held_out_error: float | None = None
    unseen_shapes_error: float | None = None


@dataclass(frozen=True)
class TableFit:
    """The constants of a fitted table and what they are worth."""

    path: TablePath
    constants: Any
    worth: ProfileTable


@dataclass(frozen=True)
class FittedProfile:
    """A profile's file as a table and as text, with what was fitted of it."""

    file: profile_file.ProfileFile
    text: str
    fits: list[TableFit]
    based_on: str

    @property
    def tables(self) -> list[ProfileTable]:
        """Every table of the profile; those that were taken over have no errors."""
        fitted = {fit.worth.table: fit.worth for fit in self.fits}
        return [fitted.get(name) or ProfileTable(name, 0) for name in profile_file.tables_of(self.file)]


def fit_profile(rows: Sequence[TimedCase], machine: Machine, chip: Chip) -> FittedProfile:
    """The profile of a chip that the rows of one machine settle."""
    base = profile_file.choose(chip)
    source = msgspec.to_builtins(profile_file.profile_files()[base])
    profile = profile_file.make_profile(profile_file.profile_files()[base], chip)
    tables = _tables(rows, profile)
    fits: list[TableFit] = []
    if not tables:
        raise InputError("There are too few measurements for any table of a profile; measure for longer.")
    for path, own in tables.items():
        profile = _with_table(profile, path, _started(profile, path))
        fits.append(_fitted(own, path, profile))
        profile = _with_table(profile, path, fits[-1].constants)
    _described(source, machine, chip, base)
    for fit in fits:
        _put(source, fit)
    name = source["name"]
    return FittedProfile(profile_file.read_profile(source, name), profile_text(source, name), fits, base)


def _tables(rows: Sequence[TimedCase], profile: KernelProfile) -> dict[TablePath, list[TimedCase]]:
    """The rows of each table that has enough of them and whose format the chip multiplies."""
    found: dict[TablePath, list[TimedCase]] = {}
    for row in rows:
        kind = fitting.TABLES.get(row.kind)
        if kind is None or row.dtype not in FORMATS or FORMATS[row.dtype].compute not in profile.chip.matrix:
            continue
        path = (kind, "", "") if kind == "stream" else (kind, row.dtype, fitting.RAGGED if kind == "grouped" else "")
        found.setdefault(path, []).append(row)
    for path, own in found.items():
        settled = [row for row in own if row.spread <= UNSETTLED]
        found[path] = settled if len(settled) >= FEWEST else own
    enough = {path: own for path, own in found.items() if len(_forward(own)) >= FEWEST}
    return dict(sorted(enough.items(), key=lambda pair: (KINDS.index(pair[0][0]), pair[0][1] != "bf16")))


def _forward(rows: Sequence[TimedCase]) -> list[TimedCase]:
    return [row for row in rows if row.kind != "attention_both"]


def _started(profile: KernelProfile, path: TablePath) -> Any:
    kind, dtype, who = path
    if kind == "stream":
        return profile.stream
    table = getattr(profile, kind).of(dtype)
    return table.get(who) or next(iter(table.values())) if kind == "grouped" else table


def _with_table(profile: KernelProfile, path: TablePath, table: Any) -> KernelProfile:
    kind, dtype, who = path
    if kind == "stream":
        return replace(profile, stream=table)
    tables = dict(getattr(profile, kind).by_format)
    tables[dtype] = {**tables.get(dtype, {}), who: table} if kind == "grouped" else table
    return replace(profile, **{kind: Tables(tables)})


def _fitted(rows: list[TimedCase], path: TablePath, profile: KernelProfile) -> TableFit:
    start = _started(profile, path)
    # What these rows cannot settle: formats on the way in, the host, the paged cache.
    apart = ("quantise", "dispatch", "write", "cached")
    bounds = {name: pair for name, pair in fitting.BOUNDS[path[0]].items() if not name.startswith(apart)}
    spread = replace(start, expanded=True) if path[0] == "grouped" else None

    def errors(tested: Sequence[TimedCase], table: Any) -> Any:
        return fitting.log_errors(tested, _with_table(profile, path, table))

    def fitted(some: Sequence[TimedCase]) -> Any:
        if (
            spread is not None and fitting.median_error(errors(some, spread)) < EXPANDS
        ):  # a law without constants of its own
            return spread
        forward = _forward(some)
        own = forward if len(forward) >= FEWEST else some
        return _with_backward(fitting.fit_table(start, bounds, lambda trial: errors(own, trial)), some, path, profile)

    table = fitted(rows)
    before, after = (fitting.median_error(errors(rows, constants)) for constants in (start, table))
    half = fitting.held_out_error(rows, lambda row: fitting.fold(row.case.id, 2), fitted, errors)
    unseen = fitting.held_out_error(rows, lambda row: fitting.fold(fitting.shape_of(row), SHAPE_FOLDS), fitted, errors)
    return TableFit(path, table, ProfileTable(".".join(filter(None, path)), len(rows), before, after, half, unseen))


def _with_backward(table: Any, rows: Sequence[TimedCase], path: TablePath, profile: KernelProfile) -> Any:
    """Attention's backward pass over its forward one: the median of what both passes took over what
    the forward takes."""
    both = [row for row in rows if row.kind == "attention_both"]
    if path[0] != "attention" or not both:
        return table
    alone = [msgspec.structs.replace(row, kind="attention") for row in both]
    forward = fitting.expected_seconds(alone, _with_table(profile, path, table))
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
    for table, names in ((source, ("cores", "library")), *((named, ("url",)) for named in source["sources"].values())):
        for name in names:
            if not table.get(name):
                table.pop(name, None)
    for where, raw in profile_file.tables_of(msgspec.convert(source, profile_file.ProfileFile)).items():
        rest = raw["rests_on"]
        note = f"{fitting.TAKEN_OVER} {base}, where it is {where}"
        rest["note"] = f"{note}; {rest['note']}" if rest.get("note") else note


def _put(source: dict[str, Any], fit: TableFit) -> None:
    """A fitted table into the profile's source; what was measured here is what is usual here, so it comes first."""
    kind, dtype, who = fit.path
    place, key = source, kind
    if kind != "stream":
        place, key = (source[kind].setdefault(dtype, {}), who) if kind == "grouped" else (source[kind], dtype)
    if key not in place:
        others = dict(place)
        place.clear()
        place |= {key: _plain(fit.constants), **others}
    worth = fit.worth
    errors = {"median_ape": worth.error, "held_out": worth.held_out_error, "unseen_shapes": worth.unseen_shapes_error}
    known = {name: round(error, 3) for name, error in errors.items() if error is not None}
    place[key]["rests_on"] = {}
    put_constants(place[key], fit.constants, kind, {"source": "calibrate", "rows": worth.rows, **known})


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


def put_constants(raw: dict[str, Any], table: Any, kind: str, rest: dict[str, Any]) -> None:
    """Fitted constants and what they rest on into a raw table, in the order of the record; others stay."""
    for constant in (*fitting.BOUNDS[kind], *(("backward",) if kind == "attention" else ())):
        if (value := getattr(table, constant)) and not getattr(table, "expanded", False):
            raw[constant] = seconds_text(value) if is_time(constant) else value
    order = [field.name for field in fields(table) if field.name in raw]
    values = {key: raw[key] for key in order} | {"rests_on": {**raw.get("rests_on", {}), **rest}}
    raw.clear()
    raw.update(values)


def profile_text(source: dict[str, Any], name: str) -> str:
    """The whole file; what is not a profile is refused."""
    lines = [f"{key} = {text_of(value)}" for key, value in source.items() if key not in ("sources", *KINDS)]
    for key, value in source["sources"].items():
        lines += ["", f"[sources.{key}]", *(f"{part} = {text_of(item)}" for part, item in value.items())]
    for where, raw in profile_file.tables_of(profile_file.read_profile(source, name)).items():
        lines += ["", f"[{where}]", *(f"{key} = {text_of(value)}" for key, value in raw.items())]
    return "\n".join(lines) + "\n"


def text_of(value: Any) -> str:
    """A value as TOML.

    >>> text_of({"rows": [1, 2], "note": 'the "best"', "part": 0.123456})
    '{ rows = [1, 2], note = "the \\\\"best\\\\"", part = 0.1235 }'
    """
    if isinstance(value, bool | str):
        return toml_value(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {text_of(item)}" for key, item in value.items()) + " }"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_text(value: float) -> str:
    """Seconds as text with a unit, to four digits.

    >>> seconds_text(3.0912e-6), seconds_text(0.5e-9)
    ('3.091us', '0.5ns')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value / 1e-9:.4g}ns"


def is_time(name: str) -> bool:
    """Whether a constant is in seconds."""
    return name in TIMES or name.endswith(("_row", "_launch")) or name.startswith("dispatch")
