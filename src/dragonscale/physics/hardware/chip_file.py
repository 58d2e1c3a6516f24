"""Chips as TOML or YAML files: the built-in ones beside this module, and those a user writes.

The layout is that of `ChipFile`. A leaf is a quantity: a table `{value, source, per, direction, note, also}` or, in a
user's file, just the text (`"3.35TB/s"`). A file may start from another chip with `base = "v5p"` and give only what
differs, which is how a chip that does not exist yet is described. Tiers of switches are matched by their names:

    base = "h100"

    [[levels]]
    name = "node"
    bandwidth = "900GB/s"

Every number is checked as it is read: rates, capacities and sizes are positive.
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
    memory_bandwidth: Written | None = None


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
    capacities: list[str] = []
    personal: bool = False
    unified: bool = False
    of: str = ""


def read_quantity(written: Written, dimension: str, where: str, default_source: str) -> Quantity:
    """Turn what a file says into a `Quantity` in base units.

    >>> read_quantity("900GB/s", "bytes/s", "hbm", "mychip.toml").value
    900000000000.0
    """
    if not isinstance(written, QuantityFile):
        return Quantity(_value(written, dimension, where), dimension, default_source)
    provenance = written.source, written.per, written.direction, written.note
    main = Quantity(_value(written.value, dimension, where), dimension, *provenance)
    others: list[Quantity] = []
    for other in written.also:
        value = _value(other.value, dimension, where)
        others.append(replace(main, value=value, source=other.source, note=other.note))
    return replace(main, also=tuple(others))


def _value(value: str | float | list[float], dimension: str, where: str) -> float | tuple[float, ...]:
    """A number in base units, or the sizes of a list; only counts may be written without a unit."""
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


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _merged_levels(base: Any, changes: Any) -> Any:
    """Tiers of switches with changes to those of the same name. Where a tier of the changes is not one of the base's,
    or is given twice, the changes replace all tiers."""
    if not _is_list_of_tables(base) or not _is_list_of_tables(changes):
        return changes  # what is no list of tables is refused as the file is read
    merged = {level.get("name"): level for level in base}
    changed = {level.get("name"): level for level in changes}
    if not changed.keys() <= merged.keys() or len(changed) != len(changes):
        return changes
    for name, level in changed.items():
        merged[name] = merge(merged[name], level)
    return list(merged.values())


ASSUMED: dict[str, dict[str, Any]] = beside(__file__, "assumed.toml")
"""What a file without a base may leave out: the value taken instead, and words for it."""
TEMPLATE = Path(__file__).with_name("template.toml")
"""A file to start from."""
# A chip's vector unit where its file has none: an H100's fp32 rate is about a sixteenth of its dense bf16 rate.
_MATRIX_TO_VECTOR = 16


def completed(table: dict[str, Any], origin: str) -> tuple[dict[str, Any], str]:
    """A user's table with defaults for what it leaves out, and a sentence that names them. Every required number that
    is missing is refused in one error."""
    rates = _subtable(table, "matrix")
    rate = rates.get("bf16", rates.get("fp16"))
    missing: list[str] = []
    if rate is None:
        missing.append("bf16 or fp16 in [matrix]")
    hbm = _subtable(table, "memory").get("hbm", {})
    if isinstance(hbm, dict):
        missing += [f"{name} in [memory.hbm]" for name in ("capacity", "bandwidth") if hbm.get(name) is None]
    if missing:
        template = "`dscale chips --template` prints a whole one."
        raise InputError(f"The chip file {shorten(origin)} has no {', no '.join(missing)}; {template}")
    filled: dict[str, Any] = {"name": Path(origin).stem, "title": table.get("name", Path(origin).stem), "vector": {}}
    if isinstance(rate, str):
        flops = read_quantity(rate, "FLOP/s", f"matrix in {origin}", origin).value
        filled["vector"] = {"fp32": f"{flops / _MATRIX_TO_VECTOR / 1e12:g}TFLOP/s"}
    # a torus has no tiers of switches to leave out
    omitted = [name for name in ASSUMED if name not in table and not (name == "levels" and "ici" in table)]
    for name in omitted:
        if "value" in ASSUMED[name]:
            filled[name] = ASSUMED[name]["value"]
    if not omitted:
        return filled | table, ""
    assumptions = ", ".join(ASSUMED[name]["words"] for name in omitted)
    return filled | table, f"{shorten(origin)} leaves out {', '.join(omitted)}; taken: {assumptions}."


def _subtable(table: dict[str, Any], name: str) -> dict[str, Any]:
    """A table inside another; empty where there is none or where something else stands in its place."""
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def read_chip(table: dict[str, Any], origin: str) -> Chip:
    """Check a table against `ChipFile` and assemble the chip."""
    file = checked(table, ChipFile, "chip file", origin)
    subject = f"The chip file {shorten(origin)}"
    _check_tables(file, subject)
    sources = {key: f"{source.title} ({source.date}) {source.url}".strip() for key, source in file.sources.items()}
    without_numbers = Chip(
        name=file.name,
        title=file.title,
        kind=file.kind,
        matrix={},
        vector={},
        memory={},
        network=_network_shape(file),
        released=file.released,
        default_slice=file.default_slice,
        architecture=file.architecture,
        announced=file.announced,
        capacities=tuple(file.capacities),
        personal=file.personal,
        unified=file.unified,
        aliases=tuple(file.aliases),
        sources=sources,
    )
    chip = assemble(without_numbers, _facts(file, origin))
    if file.formats is None:
        return chip
    formats = NumberFormats(file.formats.native, file.formats.weights, file.formats.source or origin, file.formats.note)
    if file.sources and formats.source not in (*file.sources, origin):
        raise InputError(f"{subject}'s [formats] names the source {formats.source!r}, which [sources] does not list.")
    return replace(chip, formats=formats)


def _check_tables(file: ChipFile, subject: str) -> None:
    """Refuse dtypes that do not exist, a main memory without its numbers, and a network that is none or two."""
    dtypes = [*file.matrix, *file.vector]
    if file.formats is not None:
        dtypes += [*file.formats.native, *file.formats.weights]
    for dtype in dtypes:
        if dtype not in DTYPE_BYTES:
            raise InputError(f"{subject} names {dtype!r}, which is no dtype.")
    if "hbm" not in file.memory:
        raise InputError(f"{subject} has no [memory.hbm].")
    for name in ("capacity", "bandwidth"):
        if getattr(file.memory["hbm"], name) is None:
            raise InputError(f"{subject} has no {name} in [memory.hbm].")
    if (file.ici is None) == (not file.levels):
        raise InputError(f"{subject} must have either [ici] (a torus) or [[levels]] (switches).")
    _check_levels(file.levels, subject)


def _network_shape(file: ChipFile) -> Torus | Tree:
    """The network without its numbers, which `assemble` fills in from the facts."""
    if file.ici is None:
        levels = [Level(level.name, level.degree, 0.0, 0.0, level.reduces, level.peers) for level in file.levels]
        return Tree(tuple(levels))
    if file.ici.wrap not in ("full-axis", "cubes", "never", "always"):
        raise InputError(f"ici.wrap is {shorten(file.ici.wrap)}; it is one of full-axis, cubes, always, never.")
    return Torus(0, 0.0, 0.0, (), file.ici.wrap, file.ici.slices)


# The dimension of each number, by the kind of table that it stands in ("" is the top of the file).
_DIMENSIONS = {
    "memory": {"capacity": "bytes", "visible": "bytes", "bandwidth": "bytes/s"},
    "host": {"chips": "count", "shape": "count", "vm": "count", "memory": "bytes", "memory_bandwidth": "bytes/s"},
    "dcn": {"egress": "bytes/s", "latency": "s"},
    "ici": {"link": "bytes/s", "hop_latency": "s", "pod": "count"},
    "levels": {"bandwidth": "bytes/s", "latency": "s", "bridge": "bytes/s"},
    "": {"pcie": "bytes/s", "power": "W", "price": "USD/h", "list_price": "USD/h"},
}


def _facts(file: ChipFile, origin: str) -> dict[str, Quantity]:
    """Every number of the file by its path, in base units."""
    facts: dict[str, Quantity] = {}

    def add(path: str, written: Written | None, dimension: str) -> None:
        if written is not None:
            facts[path] = read_quantity(written, dimension, f"{path} in {origin}", origin)

    def add_table(kind: str, table: object, path: str) -> None:
        if table is not None:
            for name, dimension in _DIMENSIONS[kind].items():
                add(f"{path}{name}", getattr(table, name), dimension)

    for dtype, rate in file.matrix.items():
        add(f"matrix.{dtype}", rate, "FLOP/s")
    for dtype, rate in file.vector.items():
        add(f"vector.{dtype}", rate, "FLOP/s")
    for name, memory in file.memory.items():
        add_table("memory", memory, f"memory.{name}.")
    for name, count in file.structure.items():
        # counts of parts, but for the clocks ("1.98GHz")
        text = count.value if isinstance(count, QuantityFile) else count
        is_clock = isinstance(text, str) and text.endswith("Hz")
        add(f"structure.{name}", count, "Hz" if is_clock else "count")
    for kind in ("host", "dcn", "ici"):
        add_table(kind, getattr(file, kind), f"{kind}.")
    for level in file.levels:
        add_table("levels", level, f"levels.{level.name}.")
    add_table("", file, "")
    for path, fact in facts.items():
        for reading in (fact, *fact.also):
            if file.sources and reading.source not in (*file.sources, origin):
                subject = f"{path} in {shorten(origin)} names the source {reading.source!r}"
                raise InputError(f"{subject}, which [sources] does not list.")
            _check_value(path, reading.value, origin)
    return facts


# Bounds far beyond what has been built: chips along one axis of a pod and in all of it, and children of a switch tier.
MAX_AXIS_CHIPS = 4096
MAX_POD_CHIPS = 10**6
MAX_CHILDREN = 10**6
# What is written as a list: the sizes of boxes of chips, and the sides of a systolic array.
_BOXES = ("ici.pod", "host.shape")
_TILE = "structure.mxu"
_MAY_BE_ZERO = ("latency", "price", "vm", "hop_latency")


def _check_value(path: str, value: Any, origin: str) -> None:
    """Refuse what is not finite or not positive, and lists where none belong; only boxes and tiles are lists."""
    shown = f"{path} in {shorten(origin)} is {shorten(value)}"
    if isinstance(value, tuple) and path in _BOXES:
        if not _is_box(value):
            sizes = f"one to three whole sizes from 1 to {MAX_AXIS_CHIPS:,}, {MAX_POD_CHIPS:,} chips at most"
            raise InputError(f"{shown}; write {sizes}.")
    elif isinstance(value, tuple) and path == _TILE:
        if len(value) != 2 or not all(math.isfinite(side) and side >= 1 for side in value):
            raise InputError(f"{shown}; write its two sides, such as [128, 128].")
    elif isinstance(value, tuple):
        raise InputError(f"{shown}; write one number, not a list.")
    elif path in (*_BOXES, _TILE):
        raise InputError(f"{shown}; write a list of sizes.")
    elif not value and not path.endswith(_MAY_BE_ZERO) and not path.startswith("structure."):
        raise InputError(f"{shown}; it is more than nothing.")


def _is_box(sizes: tuple[float, ...]) -> bool:
    """Whether these are the sizes of a box of chips: whole, positive, and not beyond what anyone builds."""
    for size in sizes:
        if not math.isfinite(size) or size != int(size) or not 1 <= size <= MAX_AXIS_CHIPS:
            return False
    return 1 <= len(sizes) <= 3 and math.prod(sizes) <= MAX_POD_CHIPS


def _check_levels(levels: list[LevelFile], subject: str) -> None:
    """Refuse tiers of the same name and degrees that are none; only the top of several tiers may leave its degree open,
    as 0."""
    names = [level.name for level in levels]
    for index, level in enumerate(levels):
        if names.count(level.name) > 1:
            raise InputError(f"{subject} has two [[levels]] called {shorten(level.name)}; give each a name of its own.")
        is_top = index > 0 and index == len(levels) - 1
        if not (0 if is_top else 1) <= level.degree <= MAX_CHILDREN:
            raise InputError(
                f"{subject} has a degree of {shorten(level.degree)} in level {shorten(level.name)}; it is a number of "
                f"children from 1 to {MAX_CHILDREN:,}, and only of the top level 0 (as many as needed)."
            )
