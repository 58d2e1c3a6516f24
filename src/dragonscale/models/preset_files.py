"""The files of presets: which file and table a name belongs to, and the tables, each parsed when it is asked for.

A file has a table for each preset, or, as `sizes.toml`, a table for each family with a row for each preset.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dragonscale.models.names import plain, spelled
from dragonscale.tables import beside

PRESETS = Path(__file__).with_name("presets")
SIZES = "sizes"
_HEADER = re.compile(r'^\[("?)([^"\[\]]+)\1\](?: *#.*)?$', re.MULTILINE)
_ROW = re.compile(r'^(?:rows = \[| +)\["([^"]+)", "([^"]+)", \d.*$', re.MULTILINE)
_ALIASES = re.compile(r"\baliases = (\[[^\]]*\])")
_SOURCE = re.compile(r'^source = "huggingface\.co/([\w.-]+/[\w.-]+)"', re.MULTILINE)


class PresetEntry(NamedTuple):
    """Where a preset is."""

    stem: str
    name: str


def _entries(stem: str, text: str) -> Iterator[tuple[str, str, str]]:
    """The name, the repository and the text of each preset of a file."""
    if stem == SIZES:
        for row in _ROW.finditer(text):
            yield row[1], row[2], row[0]
        return
    headers = list(_HEADER.finditer(text))
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        body = text[header.end() : following.start() if following else len(text)]
        source = _SOURCE.search(body)
        yield header[2], source[1] if source else "", body


@cache
def entries() -> dict[str, PresetEntry]:
    """The file and preset of every plain name and alias. Scans the text of the files, as parsing them takes longer."""
    names: dict[str, PresetEntry] = {}
    repositories: dict[str, PresetEntry] = {}
    for path in sorted(PRESETS.glob("*.toml")):
        for name, repository, body in _entries(path.stem, path.read_text(encoding="utf-8")):
            entry = PresetEntry(path.stem, name)
            names[plain(name)] = entry
            aliases = _ALIASES.search(body)
            for alias in json.loads(aliases[1]) if aliases else ():
                names[plain(alias)] = entry
            if repository:  # of presets with one repository (a base and its variants) the first has its name
                repositories.setdefault(plain(repository), entry)
    return repositories | names


class NameReading(NamedTuple):
    """The preset that a name is read as, and what it stands for (`a fine-tune of Llama 2`); empty for its own names."""

    entry: PresetEntry
    what: str = ""


@lru_cache(maxsize=1024)
def reading(name: str) -> NameReading | None:
    """The preset that a name stands for: its own, that of the model it was tuned from, or the default of Ollama.

    >>> reading("microsoft/Orca-2-13b")
    NameReading(entry=PresetEntry(stem='llama', name='llama2-13b'), what='a fine-tune of Llama 2')
    >>> reading("llama3:latest").entry.name, reading("nothing")
    ('llama3-8b', None)
    """
    if plain(name) in entries():
        return NameReading(entries()[plain(name)])
    # patterns are of whole names, the first that fits counts
    text, table = spelled(name), beside(__file__, "derived.toml")
    for row in table["derived"]:
        match = re.fullmatch(row["name"], text)
        if match:
            groups = [group for group in match.groups() if group]
            entry = entries().get(plain(row["model"].format(*groups)))
            return entry and NameReading(entry, f"a fine-tune {row['what']}")
    default = table["ollama"].get(text.removesuffix("-latest"))
    return default and NameReading(entries()[plain(default)], "the default of Ollama's name")


@cache
def tables(stem: str) -> dict[str, dict[str, Any]]:
    """The tables of a file by the names of presets."""
    file = tomllib.loads((PRESETS / f"{stem}.toml").read_text(encoding="utf-8"))
    if stem != SIZES:
        return file
    columns = file.pop("columns")["columns"]
    presets: dict[str, dict[str, Any]] = {}
    for family in file.values():
        shared = {key: value for key, value in family.items() if key not in ("columns", "rows")}
        # a family may have columns of its own; the first of a row is the name
        for row in family["rows"]:
            fields = _row_fields(family.get("columns", columns), row)
            presets[row[0]] = merged(shared, fields)
    return presets


def _row_fields(columns: list[str], row: list[Any]) -> dict[str, Any]:
    """A row's fields; a column with a dot is of an object inside, and further fields stand in a table at the end."""
    further: Mapping[str, Any] = {}
    if len(row) > len(columns):
        further = row[len(columns)]
    fields: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=False):
        table, dot, key = column.rpartition(".")
        if dot:
            fields.setdefault(table, {})[key] = value
        else:
            fields[key] = value
    del fields["name"]
    fields["source"] = f"huggingface.co/{fields['source']}"
    return merged(fields, further)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; inner tables are merged too."""
    table = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), Mapping):
            value = merged(table[key], value)
        table[key] = value
    return table
