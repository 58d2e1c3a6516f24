"""A number that knows where it comes from.

Public tools disagree about the same chip (is the H100's HBM 3072, 3350 or 3400 GB/s? per GPU or per node? one way or
both?) because none of them says. Here every value in a data file carries its unit, what it is per, its direction, its
source and the source's date; other sources' readings of the same quantity are kept beside it under `also`, so that a
calculation can be repeated with the numbers of one source throughout (`Chip.reading("book")`).
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.physics.units import parse


class ReadingFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One source's value of a quantity, as written in a file."""

    value: str | float | list[float]
    source: str
    note: str = ""


class QuantityFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value as written in a file: a table with its source, or (in a user's own file) just the value."""

    value: str | float | list[float]
    source: str
    per: str = "chip"
    direction: str = ""
    note: str = ""
    also: list[ReadingFile] = []


Written = QuantityFile | str | float | list[float]


@dataclass(frozen=True)
class Quantity:
    """A value in base units with its provenance."""

    value: Any
    dimension: str
    source: str
    per: str = "chip"
    direction: str = ""
    note: str = ""
    also: tuple["Quantity", ...] = ()

    def reading(self, source: str) -> "Quantity":
        """This quantity as `source` gives it, if it gives it at all; otherwise unchanged."""
        return next((other for other in self.also if other.source == source), self)


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
