"""Chips as TOML or YAML files: the built-in ones beside this module, and those a user writes.

The layout is that of `ChipFile`. A leaf is a quantity: a table `{value, source, per, direction, note, also}` or, in a
user's file, just the text (`"3.35TB/s"`). A file may start from another chip with `base = "v5p"` and give only what
differs, which is how a chip that does not exist yet is described. Tiers of switches are told by their names:

    base = "h100"

    [[levels]]
    name = "node"
    bandwidth = "900GB/s"

Every number is checked as it is read: rates, capacities and sizes are more than nothing.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.chip import Chip, Level, NumberFormats, Quantity, Torus, Tree, assemble
from dragonscale.physics.units import DTYPE_BYTES, parse
from dragonscale.tables import SourceFile, Strict, beside, checked


class ReadingFile(Strict, frozen=True):
    """One source's value of a quantity, as written in a file."""

    value: str | float | list[float]
    source: str
    note: str = ""


class QuantityFile(Strict, frozen=True):
    """A value as written in a file: a table with its source, or (in a user's own file) just the value."""

    value: str | float | list[float]
    source: str
    per: str = "chip"
    direction: str = ""
    note: str = ""
    also: list[ReadingFile] = []


Written = QuantityFile | str | float | list[float]


class MemoryFile(Strict, frozen=True):
    capacity: Written | None = None
    bandwidth: Written | None = None
    visible: Written | None = None


class FormatsFile(Strict, frozen=True):
    native: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    source: str = ""
    note: str = ""


class TorusFile(Strict, frozen=True):
    link: Written
    hop_latency: Written
    pod: Written
    wrap: str
    slices: tuple[tuple[int, ...], ...] = ()


class LevelFile(Strict, frozen=True):
    name: str
    degree: int
    bandwidth: Written
    latency: Written
    reduces: bool = False
    peers: float = 0
    bridge: Written | None = None


class HostFile(Strict, frozen=True):
    chips: Written
    shape: Written | None = None
    vm: Written | None = None
    memory: Written | None = None


class DcnFile(Strict, frozen=True):
    egress: Written
    latency: Written = "10us"


class ChipFile(Strict, frozen=True):
    """The whole file."""

    name: str
    title: str
    kind: str
    matrix: dict[str, Written]
    memory: dict[str, MemoryFile]
    vector: dict[str, Written] = {}
    formats: FormatsFile | None = None
    structure: dict[str, Written] = {}
    host: HostFile | None = None
    pcie: Written | None = None
    dcn: DcnFile | None = None
    ici: TorusFile | None = None
    levels: list[LevelFile] = []
    price: Written | None = None
    list_price: Written | None = None
    power: Written | None = None
    sources: dict[str, SourceFile] = {}
    aliases: list[str] = []
    released: str = ""
    default_slice: str = ""
    architecture: str = ""
    announced: bool = False


def read_quantity(written: Written, dimension: str, where: str, default_source: str) -> Quantity:
    """Turn what a file says into a `Quantity` in base units.

    >>> read_quantity("900GB/s", "bytes/s", "hbm", "mychip.toml").value
    900000000000.0
    """
    if not isinstance(written, QuantityFile):
        return Quantity(_value(written, dimension, where), dimension, default_source)
    words = written.source, written.per, written.direction, written.note
    main = Quantity(_value(written.value, dimension, where), dimension, *words)
    others = [(_value(other.value, dimension, where), other) for other in written.also]
    return replace(main, also=tuple(replace(main, value=v, source=o.source, note=o.note) for v, o in others))


def _value(value: str | float | list[float], dimension: str, where: str) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, (int, float)) and dimension != "count":
        raise InputError(f"{where} is {value!r}, which has no unit; write it as text with its unit.")
    return parse(value, dimension, where)


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with the entries of `changes` put over it, table by table (a quantity is replaced whole)."""
    merged = dict(base)
    for key, value in changes.items():
        if key == "levels":
            value = _merged_levels(base.get("levels"), value)
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict) and "value" not in merged[key]
        merged[key] = merge(merged[key], value) if both_tables else value
    return merged


def _merged_levels(base: Any, changes: Any) -> Any:
    """Tiers of switches with changes to those of the same name; where one has a new name, the changes
    are all there is."""
    if not all(isinstance(some, list) and all(isinstance(one, dict) for one in some) for some in (base, changes)):
        return changes
    below = {one.get("name"): one for one in base}
    if any(one.get("name") not in below for one in changes):
        return changes
    named = {one["name"]: one for one in changes}
    return [merge(one, named.get(one["name"], {})) for one in base] if len(named) == len(changes) else changes


ASSUMED: dict[str, dict[str, Any]] = beside(__file__, "assumed.toml")
"""What a file without a base may leave out."""
TEMPLATE = Path(__file__).with_name("template.toml")
"""A file to start from."""


def completed(table: dict[str, Any], origin: str) -> tuple[dict[str, Any], str]:
    """A user's table with what it leaves out, and a sentence about that; what is needed and missing is refused at
    once, all of it."""
    hbm = table.get("memory", {}).get("hbm", {}) if isinstance(table.get("memory", {}), dict) else {}
    rates = table.get("matrix")
    rate = next((rates[name] for name in ("bf16", "fp16") if name in rates), None) if isinstance(rates, dict) else None
    needed = {"bf16 or fp16 in [matrix]": rate}
    needed |= {f"{name} in [memory.hbm]": hbm.get(name) for name in ("capacity", "bandwidth") if isinstance(hbm, dict)}
    lacking = [words for words, value in needed.items() if value is None]
    if lacking:
        raise InputError(
            f"The chip file {shorten(origin)} has no {', no '.join(lacking)}; `dscale chips --template` prints a whole "
            "one."
        )
    left = [name for name in ASSUMED if name not in table and not (name == "levels" and "ici" in table)]
    fast = read_quantity(rate, "FLOP/s", f"matrix in {origin}", origin).value if isinstance(rate, str) else 0.0
    own = {"name": Path(origin).stem, "title": table.get("name", Path(origin).stem)}
    own["vector"] = {"fp32": f"{fast / 16e12:g}TFLOP/s"} if fast else {}
    whole = own | {name: ASSUMED[name]["value"] for name in left if "value" in ASSUMED[name]} | table
    told = ", ".join(ASSUMED[name]["words"] for name in left)
    return whole, f"{shorten(origin)} leaves out {', '.join(left)}; taken: {told}." if left else ""


_WORDS = ("released", "default_slice", "architecture", "announced")


def read_chip(table: dict[str, Any], origin: str) -> Chip:
    """Check a table against `ChipFile` and assemble the chip."""
    file = checked(table, ChipFile, "chip file", origin)
    at = f"The chip file {shorten(origin)}"
    strange = [name for name in (*file.matrix, *file.vector, *_named(file.formats)) if name not in DTYPE_BYTES]
    if strange:
        raise InputError(f"{at} names {strange[0]!r}, which is no dtype.")
    if "hbm" not in file.memory:
        raise InputError(f"{at} has no [memory.hbm].")
    lacking = [name for name in ("capacity", "bandwidth") if getattr(file.memory["hbm"], name) is None]
    if lacking:
        raise InputError(f"{at} has no {lacking[0]} in [memory.hbm].")
    if (file.ici is None) == (not file.levels):
        raise InputError(f"{at} must have either [ici] (a torus) or [[levels]] (switches).")
    _check_levels(file.levels, at)
    sources = {key: f"{value.title} ({value.date}) {value.url}".strip() for key, value in file.sources.items()}
    words: dict[str, Any] = {name: getattr(file, name) for name in _WORDS}
    words["aliases"] = tuple(file.aliases)
    blank = Chip(file.name, file.title, file.kind, {}, {}, {}, _network_shape(file), **words, sources=sources)
    chip = assemble(blank, _facts(file, origin))
    if file.formats is None:
        return chip
    formats = NumberFormats(file.formats.native, file.formats.weights, file.formats.source or origin, file.formats.note)
    if file.sources and formats.source not in (*file.sources, origin):
        raise InputError(f"{at}'s [formats] names the source {formats.source!r}, which [sources] does not list.")
    return replace(chip, formats=formats)


def _named(formats: FormatsFile | None) -> tuple[str, ...]:
    return () if formats is None else (*formats.native, *formats.weights)


def _network_shape(file: ChipFile) -> Torus | Tree:
    """The network without its numbers, which `assemble` fills in from the facts."""
    if file.ici is None:
        return Tree(
            tuple(Level(level.name, level.degree, 0.0, 0.0, level.reduces, level.peers) for level in file.levels)
        )
    if file.ici.wrap not in ("full-axis", "cubes", "never", "always"):
        raise InputError(f"ici.wrap is {shorten(file.ici.wrap)}; it is one of full-axis, cubes, always, never.")
    return Torus(0, 0.0, 0.0, (), file.ici.wrap, file.ici.slices)


_DIMENSIONS = {
    "memory": {"capacity": "bytes", "visible": "bytes", "bandwidth": "bytes/s"},
    "host": {"chips": "count", "shape": "count", "vm": "count", "memory": "bytes"},
    "dcn": {"egress": "bytes/s", "latency": "s"},
    "ici": {"link": "bytes/s", "hop_latency": "s", "pod": "count"},
    "levels": {"bandwidth": "bytes/s", "latency": "s", "bridge": "bytes/s"},
    "": {"pcie": "bytes/s", "power": "W", "price": "USD/h", "list_price": "USD/h"},
}
"""Of the numbers in the tables of each kind."""


def _facts(file: ChipFile, origin: str) -> dict[str, Quantity]:
    """Every number of the file by its path."""
    written: dict[str, tuple[Written | None, str]] = {}

    def add(kind: str, table: object, path: str) -> None:
        for name, dimension in _DIMENSIONS[kind].items() if table else ():
            written[f"{path}{name}"] = (getattr(table, name), dimension)

    written |= {f"matrix.{dtype}": (rate, "FLOP/s") for dtype, rate in file.matrix.items()}
    written |= {f"vector.{dtype}": (rate, "FLOP/s") for dtype, rate in file.vector.items()}
    for name, memory in file.memory.items():
        add("memory", memory, f"memory.{name}.")
    for key, value in file.structure.items():
        text = value.value if isinstance(value, QuantityFile) else value
        unit = "Hz" if isinstance(text, str) and text.endswith("Hz") else "count"
        written[f"structure.{key}"] = (value, unit)
    for kind in ("host", "dcn", "ici"):
        add(kind, getattr(file, kind), f"{kind}.")
    for level in file.levels:
        add("levels", level, f"levels.{level.name}.")
    add("", file, "")
    facts = {
        path: read_quantity(value, dimension, f"{path} in {origin}", origin)
        for path, (value, dimension) in written.items()
        if value is not None
    }
    for path, fact in facts.items():
        for reading in (fact, *fact.also):
            if file.sources and reading.source not in (*file.sources, origin):
                names = f"{path} in {shorten(origin)} names the source {reading.source!r}"
                raise InputError(f"{names}, which [sources] does not list.")
        _check_value(path, fact, origin)
    return facts


LONGEST_AXIS, MOST_CHIPS = 4096, 10**6
"""Chips along one axis of a pod and in all of it, at most: far beyond what has been built."""
MOST_CHILDREN = 10**6
_BOXES, _TILE = ("ici.pod", "host.shape"), "structure.mxu"
"""What is written as a list: the sizes of boxes of chips, and the sides of a systolic array."""
_MAY_BE_ZERO = ("latency", "price", "vm", "hop_latency")


def _check_value(path: str, fact: Quantity, origin: str) -> None:
    """Numbers are finite and more than nothing; only sizes of boxes and sides of a systolic array are lists."""
    for value in (reading.value for reading in (fact, *fact.also)):
        shown = f"{path} in {shorten(origin)} is {shorten(value)}"
        if isinstance(value, tuple) and path in _BOXES:
            whole = all(size == int(size) and 1 <= size <= LONGEST_AXIS for size in value if math.isfinite(size))
            if not (
                1 <= len(value) <= 3 and all(map(math.isfinite, value)) and whole and math.prod(value) <= MOST_CHIPS
            ):
                sizes = f"one to three whole sizes from 1 to {LONGEST_AXIS:,}, {MOST_CHIPS:,} chips at most"
                raise InputError(f"{shown}; write {sizes}.")
        elif isinstance(value, tuple) and path == _TILE:
            if len(value) != 2 or not all(math.isfinite(side) and side >= 1 for side in value):
                raise InputError(f"{shown}; write its two sides, such as [128, 128].")
        elif isinstance(value, tuple) or path in (*_BOXES, _TILE):
            wanted = "one number, not a list" if isinstance(value, tuple) else "a list of sizes"
            raise InputError(f"{shown}; write {wanted}.")
        elif not value and not path.endswith(_MAY_BE_ZERO) and not path.startswith("structure."):
            raise InputError(f"{shown}; it is more than nothing.")


def _check_levels(levels: list[LevelFile], at: str) -> None:
    """Tiers have names of their own and children; only the top one may leave their number open, as 0."""
    names = [level.name for level in levels]
    for place, level in enumerate(levels):
        if names.count(level.name) > 1:
            raise InputError(f"{at} has two [[levels]] called {shorten(level.name)}; give each a name of its own.")
        least = 0 if place == len(levels) - 1 and place else 1
        if not least <= level.degree <= MOST_CHILDREN:
            raise InputError(
                f"{at} has a degree of {shorten(level.degree)} in level {shorten(level.name)}; it is a number of "
                f"children from 1 to {MOST_CHILDREN:,}, and only of the top level 0 (as many as needed)."
            )
