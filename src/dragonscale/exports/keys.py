"""The names that a software's own parser takes: one table for one released version of it.

A table is a JSON file with a line for each name, made by `python -m tools.software NAME --keys` from the software as it
is installed from the package index. Writers look every name up, so a misspelt flag is an error here and not on a
cluster; readers learn from it which flags take a value.

>>> table = load_keys("vllm")
>>> table.known("-tp").name, table.known("--enforce-eager").type
('--tensor-parallel-size', 'flag')
"""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A flag or a key of a config. `type` is `int`, `float`, `str`, `bool` (a value true or false), `flag` (no value),
    `json` or `list` (several values); `also` are other spellings; `off` is the flag that turns a `flag` off."""

    name: str = ""
    type: str = "str"
    choices: tuple[Any, ...] = ()
    also: tuple[str, ...] = ()
    off: str = ""
    default: Any = None


class KeyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All names of one version. `source` says what they were read from."""

    software: str
    version: str
    source: str
    keys: dict[str, Key]

    def known(self, name: str) -> Key | None:
        """The key of a name, by any of its spellings; None where the software has none."""
        return _spellings(self.software, self.version, self).get(name)

    def mostly(self, names: Sequence[str]) -> bool:
        """Whether the names of a config are the software's, but for a few that may be misspelt or of
        another release."""
        known = sum(self.known(name) is not None for name in names)
        return known >= 2 * (len(names) - known)

    def check(self, name: str, value: Any = None) -> Key:
        """The key of a name that a writer uses; a name or a choice that the software lacks is a
        mistake in the writer."""
        key = self.known(name)
        if key is None:
            raise LookupError(f"{self.software} {self.version} has no {name}")
        if key.choices and value is not None and type(value) is not bool:
            for one in value if isinstance(value, list | tuple) else [value]:
                if one not in key.choices and str(one) not in map(str, key.choices):
                    raise LookupError(f"{self.software} {self.version} has no {name} {one}, only {key.choices}")
        return key

    def check_all(self, table: Mapping[str, Any], lead: str = "") -> None:
        """`check` for every setting of a table and of the tables in it."""
        for name, value in table.items():
            if isinstance(value, Mapping):
                self.check_all(value, f"{lead}{name}.")
            else:
                self.check(f"{lead}{name}", None if isinstance(value, list) else value)


_SPELT: dict[tuple[str, str], dict[str, Key]] = {}


def _spellings(software: str, version: str, table: KeyTable) -> dict[str, Key]:
    found = _SPELT.get((software, version))
    if found is None:
        found = {}
        for name, key in table.keys.items():
            named = msgspec.structs.replace(key, name=name)
            for spelling in (name, *key.also, *([key.off] if key.off else [])):
                found.setdefault(spelling, named)
        _SPELT[software, version] = found
    return found


@functools.cache
def key_tables() -> frozenset[str]:
    """The names of all tables."""
    folder = resources.files("dragonscale.exports") / "keys"
    return frozenset(one.name.removesuffix(".json") for one in folder.iterdir() if one.name.endswith(".json"))


@functools.cache
def load_keys(target: str) -> KeyTable:
    """The table of a target by name."""
    text = (resources.files("dragonscale.exports") / "keys" / f"{target}.json").read_text(encoding="utf-8")
    return msgspec.convert(json.loads(text), KeyTable)


def key_file(table: KeyTable) -> str:
    """A table as its file: a line for each name, so that two versions can be compared."""
    head = {"software": table.software, "version": table.version, "source": table.source}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(msgspec.to_builtins(key))}" for name, key in sorted(table.keys.items())
    ]
    body = ",\n".join(lines)
    return json.dumps(head)[:-1] + ', "keys": {\n' + body + "\n}}\n"
