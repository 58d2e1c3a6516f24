"""The names that a software's own parser takes, for one released version of it; command lines in them, and values.

A table is a JSON file with a line for each name, made by `python -m tools.software NAME --keys` from the software as it
is installed from the package index. Writers look every name up, so a misspelt flag is an error here and not on a
cluster; readers learn from it which flags take a value.

>>> table = load_keys("vllm")
>>> table.known("-tp").name, table.known("--enforce-eager").type
('--tensor-parallel-size', 'flag')
>>> words = flag_words(table, {"--tensor-parallel-size": 8, "--enforce-eager": True, "--max-num-seqs": None})
>>> words
['--tensor-parallel-size', '8', '--enforce-eager']
>>> read_flags(table, ["-tp", "8", "--enforce-eager", "--no-such=1"]).values
{'--tensor-parallel-size': '8', '--enforce-eager': True}
>>> whole("8", "--tp"), whole("1_000", "--steps"), fraction("0.9", "--share"), truth("Yes", "--flag")
(8, 1000, 0.9, True)
>>> whole("eight", "--tp")
Traceback (most recent call last):
dragonscale.errors.InputError: --tp is 'eight'; it takes a whole number from 1 to 1,000,000,000,000.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.exports.written import MixedWord, Word, quoted

MOST = 10**12
_TRUE, _FALSE = ("true", "1", "yes", "on", "enable", "enabled"), ("false", "0", "no", "off", "none", "null", "")


def whole(value: Any, name: str, least: int = 1, most: int = MOST) -> int:
    """A whole number, written as one (`8`, `8.0`, `1_000`)."""
    text = str(value).strip()
    plain = re.fullmatch(r"[+-]?[0-9](?:_?[0-9]){0,14}(?:\.0{1,6})?", text, re.ASCII)
    number = int(text.replace("_", "").partition(".")[0]) if plain and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise InputError(f"{name} is {shorten(value)}; it takes a whole number from {least:,} to {most:,}.")
    return number


def fraction(value: Any, name: str) -> float:
    """A share above 0 and at most 1."""
    try:
        number = float(str(value).strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise InputError(f"{name} is {shorten(value)}; it is above 0 and at most 1.")
    return number


def truth(value: Any, name: str) -> bool:
    """Yes or no, in any of the ways that configs write it."""
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise InputError(f"{name} is {shorten(value)}; write true or false.")
    return text in _TRUE


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A flag or a key of a config. `type` is `int`, `float`, `str`, `bool` (a value true or false), `flag` (no value),
    `json` or `list` (several values); `also` are other spellings; `off` is the flag that turns a `flag` off."""

    name: str = ""
    type: str = "str"
    choices: tuple[Any, ...] = ()
    also: tuple[str, ...] = ()
    off: str = ""
    default: Any = None


class KeyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """All names of one version. `source` says what they were read from."""

    software: str
    version: str
    source: str
    keys: dict[str, Key]

    @functools.cached_property
    def spellings(self) -> dict[str, Key]:
        """Keys by all their spellings; the first that has one wins."""
        found: dict[str, Key] = {}
        for name, key in self.keys.items():
            named = msgspec.structs.replace(key, name=name)
            for spelling in filter(None, (name, *key.also, key.off)):
                found.setdefault(spelling, named)
        return found

    def known(self, name: str) -> Key | None:
        """The key of a name, by any of its spellings; None where the software has none."""
        return self.spellings.get(name)

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
        for name, value in dotted(table):
            self.check(f"{lead}{name}", None if isinstance(value, list) else value)


def dotted(table: Mapping[str, Any], opaque: Sequence[str] = (), lead: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a table and of the tables in it, by their dotted names; tables that are `opaque` are settings.

    >>> list(dotted({"a": 1, "b": {"c": {"d": 2}, "e": {}}, "f": {"g": 3}}, ["f"]))
    [('a', 1), ('b.c.d', 2), ('f', {'g': 3})]
    """
    for name, value in table.items():
        if isinstance(value, Mapping) and f"{lead}{name}" not in opaque:
            yield from dotted(value, opaque, f"{lead}{name}.")
        else:
            yield f"{lead}{name}", value


def table_at(value: Any, *path: str) -> Mapping[str, Any]:
    """The table at the end of a path through tables; an empty one where there is none.

    >>> table_at({"a": {"b": {"c": 1}}}, "a", "b"), table_at({"a": 1}, "a", "b")
    ({'c': 1}, {})
    """
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


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
    keys = {name: json.dumps(msgspec.to_builtins(key)) for name, key in sorted(table.keys.items())}
    body = ",\n".join(f"  {json.dumps(name)}: {key}" for name, key in keys.items())
    return json.dumps(head)[:-1] + ', "keys": {\n' + body + "\n}}\n"


def flag_words(table: KeyTable, flags: Mapping[str, Any]) -> list[Word]:
    """Flags as words; None leaves one out, True and False turn a switch on or off, a dict is written as JSON."""
    words: list[Word] = []
    for name, value in flags.items():
        key = table.check(name, value)
        if value is None:
            continue
        if key.type == "flag":
            # a switch without an opposite is off unless it is given
            words += [name] if value else [key.off] if key.off else []
        else:
            words += [name, *map(_word, value if isinstance(value, list | tuple) else [value])]
    return words


def _word(value: Any) -> Word:
    if isinstance(value, MixedWord):
        return value
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def shell_lines(words: Sequence[Word], indent: str = "    ") -> str:
    """A command over several lines, a flag with its values on each."""
    lines: list[str] = []
    for place, word in enumerate(words):
        if lines and (place == 1 or not _begins(str(word), lines[-1])):
            lines[-1] += f" {quoted(word)}"
        else:
            lines.append(quoted(word))
    return f" \\\n{indent}".join(lines)


def _begins(word: str, line: str) -> bool:
    """Whether a word begins a line: a flag, or the script that a launcher's own flags end at."""
    script = word.endswith((".py", ".yml", ".yaml")) and line.startswith("-") and " " in line
    return script or (word.startswith("-") and not _number(word))


def _number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdecimal()


@dataclass
class ReadFlags:
    """Flags by their first spelling, with their values as text (True or False of a switch, a list of several), the
    words between them, and the names that the software does not have. `most` is the largest number, and `of` stands
    before a name in messages. What is taken is struck from the list: what is left at the end was not understood."""

    values: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    most: int = MOST
    of: str = ""

    def take(self, name: str, default: Any = None) -> Any:
        """A flag's value."""
        return self.values.pop(name, default)

    def whole(self, name: str, default: int = 1, least: int = 1) -> int:
        """A flag's whole number."""
        value = self.take(name)
        return default if value is None else whole(value, self.of + name, least, self.most)

    def truth(self, name: str) -> bool:
        """A switch, off where it is not said."""
        value = self.take(name)
        return value is not None and truth(value, self.of + name)

    def share(self, name: str) -> float | None:
        """A share above 0 and at most 1; None where it is not said."""
        value = self.take(name)
        return None if value is None else fraction(value, self.of + name)

    def under(self, other: "ReadFlags") -> None:
        """Take over what another place says (a config file) where nothing is said here."""
        self.values, self.words = {**other.values, **self.values}, self.words or other.words
        self.unknown += [name for name in other.unknown if name not in self.unknown]


def options(words: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The options of any program, `--name value …` or `--name=value`, each with its values; other words left out.

    >>> list(options(["run.py", "--bf16", "--sizes", "1", "2", "--file=a", "b"]))
    [('bf16', []), ('sizes', ['1', '2']), ('file', ['a'])]
    """
    name, values, ended = "", list[str](), True
    for word in words:
        if word.startswith("--"):
            if name:
                yield name, values
            name, equals, inline = word[2:].partition("=")
            values, ended = [inline] if equals else [], bool(equals)
        elif not ended:
            values.append(word)
    if name:
        yield name, values


def read_flags(table: KeyTable, words: Sequence[str], most: int = MOST) -> ReadFlags:
    """The flags of a command line, `--name value` or `--name=value`, underscores for dashes where the software takes
    both."""
    read, at = ReadFlags(most=most), 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-" or _number(word):
            read.words.append(word)
            continue
        name, equals, inline = word.partition("=")
        key = table.known(name) or table.known(_dashed(name))
        following = at
        while following < len(words) and (not words[following].startswith("-") or _number(words[following])):
            following += 1
        if key is None:
            read.unknown.append(name)
            at = at if equals else following
        elif key.type == "flag":
            on = key.off not in (name, _dashed(name))
            read.values[key.name] = inline.lower() in ("true", "1") if equals else on
        elif equals:
            read.values[key.name] = inline.split() if key.type == "list" else inline
        elif key.type == "list":
            read.values[key.name] = list(words[at:following])
            at = following
        elif at < len(words):
            read.values[key.name] = words[at]
            at += 1
        else:
            raise InputError(f"{name} stands at the end of the command without its value.")
    return read


def _dashed(name: str) -> str:
    lead = len(name) - len(name.lstrip("-"))
    return name[:lead] + name[lead:].replace("_", "-")
