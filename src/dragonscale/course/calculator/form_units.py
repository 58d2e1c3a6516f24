"""Units of what closed forms take and give, read from `form_units.toml`. They reckon with plain numbers in base units.

A result has the unit of `results`, or that which the end of its name says (`endings`); its parts those of `parts`, by
their kind and name. A parameter has that of `taken_by` (one function's) or `taken` (by its name alone).
"""

import tomllib
from importlib import resources

import msgspec


class FormUnits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The tables of the file; what each holds is said there."""

    library_only: tuple[str, ...]
    regimes: dict[str, str]
    endings: dict[str, str]
    results: dict[str, str]
    parts: dict[str, str]
    methods: dict[str, tuple[str, ...]]
    listed_with: dict[str, tuple[str, ...]]
    taken: dict[str, str]
    taken_by: dict[str, str]


_TEXT = (resources.files("dragonscale.course.calculator") / "form_units.toml").read_text(encoding="utf-8")
UNITS_OF_FORMS = msgspec.convert(tomllib.loads(_TEXT), FormUnits)
