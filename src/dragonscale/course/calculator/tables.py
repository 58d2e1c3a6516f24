"""The calculator's tables: units of what closed forms take and give (`form_units.toml`), and words (`words.toml`).

Closed forms reckon with plain numbers in base units. A result has the unit of `results`, or that which the end of its
name says (`endings`); its parts those of `parts`, by their kind and name. A parameter has that of `taken_by` (one
function's) or `taken` (by its name alone).
"""

import re
from importlib import resources

import msgspec


class FormUnits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The tables of `form_units.toml`; what each holds is said there."""

    library_only: tuple[str, ...]
    one_line: dict[str, str]
    regimes: dict[str, str]
    behind: dict[str, tuple[str, ...]]
    endings: dict[str, str]
    results: dict[str, str]
    parts: dict[str, str]
    methods: dict[str, tuple[str, ...]]
    listed_with: dict[str, tuple[str, ...]]
    taken: dict[str, str]
    taken_by: dict[str, str]


class WordTables(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The tables of `words.toml`."""

    counted: tuple[str, ...]
    seconds: dict[str, float]
    joules: dict[str, float]
    macs: dict[str, float]
    dimensions: dict[str, tuple[int, int, int, int, int]]
    signs: dict[str, str]
    chip_facts: dict[str, str]
    kinds: dict[str, str]
    wanted: dict[str, str]


def spaced(name: str) -> str:
    """A name as words to search for.

    >>> spaced("ReduceScatter"), spaced("exact_flops")
    ('reduce scatter', 'exact flops')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name[:60]).lower()


_FOLDER = resources.files("dragonscale.course.calculator")
UNITS_OF_FORMS = msgspec.toml.decode((_FOLDER / "form_units.toml").read_bytes(), type=FormUnits)
TABLES = msgspec.toml.decode((_FOLDER / "words.toml").read_bytes(), type=WordTables)
