"""Command lines in a software's own flags: written through its table of keys, and read with it.

>>> table = load_keys("vllm")
>>> words = flag_words(table, {"--tensor-parallel-size": 8, "--enforce-eager": True, "--max-num-seqs": None})
>>> words
['--tensor-parallel-size', '8', '--enforce-eager']
>>> read_flags(table, ["-tp", "8", "--enforce-eager", "--no-such=1"]).values
{'--tensor-parallel-size': '8', '--enforce-eager': True}
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.keys import Key, KeyTable, load_keys
from dragonscale.exports.words import MixedWord, Word, quoted

__all__ = ["ReadFlags", "flag_words", "load_keys", "read_flags", "shell_lines"]


def flag_words(table: KeyTable, flags: Mapping[str, Any]) -> list[Word]:
    """Flags as words; None leaves one out, True and False turn a switch on or off, a dict is written as JSON."""
    words: list[Word] = []
    for name, value in flags.items():
        key = table.check(name, value)
        if value is None:
            continue
        if key.type == "flag":
            words += _switch(name, key, value)
        elif isinstance(value, list | tuple):
            words += [name, *map(_word, value)]
        else:
            words += [name, _word(value)]
    return words


def _switch(name: str, key: Key, value: Any) -> list[str]:
    if value:
        return [name]
    if key.off:
        return [key.off]
    return []  # a switch without an opposite is off unless it is given


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
    words between them, and the names that the software does not have."""

    values: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def take(self, name: str, default: Any = None) -> Any:
        """A flag's value, struck from the list: what is left at the end was not understood."""
        return self.values.pop(name, default)


def read_flags(table: KeyTable, words: Sequence[str]) -> ReadFlags:
    """The flags of a command line, `--name value` or `--name=value`, underscores for dashes where the software takes
    both."""
    read, at = ReadFlags(), 0
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
            read.values[key.name] = _spelt_on(key, name) if not equals else inline.lower() in ("true", "1")
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


def _spelt_on(key: Key, name: str) -> bool:
    return name != key.off and _dashed(name) != key.off


def _dashed(name: str) -> str:
    lead = len(name) - len(name.lstrip("-"))
    return name[:lead] + name[lead:].replace("_", "-")
