"""Arguments of a command line, read by the fields of a question.

`--name value`, `--name=value`, switches with and without `no-`, places first to last, `--` before words that
begin with a dash. What is wrong is said in one sentence with the nearest flag.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.commands.questions.flag import Field
from dragonscale.commands.questions.synonyms import (
    Fields,
    FlagReading,
    canonical,
    refusal,
    spelled,
    takes_value,
    with_synonyms,
)
from dragonscale.errors import InputError, shorten

TRUE = ("true", "1", "yes")
"""Values that config files and scripts write behind a switch."""


@dataclass(frozen=True)
class ReadArguments:
    """The values that were given, by the names of their fields, and notes on flags of other software."""

    values: dict[str, Any]
    notes: tuple[str, ...] = ()


def read_arguments(fields: Fields, arguments: Sequence[str], command: str) -> ReadArguments:
    """The values that were given, by the names of their fields; flags of other software are read as what says the same
    here.

    >>> from dragonscale.commands.questions.flag import fields_of
    >>> from dragonscale.commands.questions.shared import Output
    >>> from dragonscale.commands.questions.shared import MODEL
    >>> read_arguments([MODEL, *fields_of(Output)], ["llama3-8b", "--save=a.toml", "--json"], "train").values
    {'model': 'llama3-8b', 'save': 'a.toml', 'json': True}
    """
    flags = spelled(fields)
    places = [field for field in fields if field.place]
    given: dict[str, Any] = {}
    others: dict[str, str] = {}
    typed: dict[str, str] = {}
    words = list(arguments)
    ended, flag = False, None
    while words:
        word = words.pop(0)
        if word == "--" and not ended:
            ended = True
        elif not ended and word.startswith("-") and len(word) > 1 and not _is_number(word):
            name, equals, value = word.partition("=")
            field, negated = _flag(name, flags)
            if field is None:
                typed[canonical(name)] = name.replace("_", "-")
                _other(others, fields, command, name, value if equals else None, words)
                continue
            if field.switch:
                if equals:
                    raise InputError(f"{name} is a switch and takes no value; leave out ={shorten(value)}.")
                _keep(given, flag := field, not negated)
                continue
            if not equals:
                if not words or (words[0].startswith("--") and len(words[0]) > 2):
                    raise InputError(f"{name} needs a value: {field.about}")
                value = words.pop(0)
            if field.place and field.name in given:
                raise InputError(
                    f"{field.value} is given twice, {shorten(given[field.name])} and {shorten(value)}; give it once."
                )
            _keep(given, flag := field, value)
        else:
            _place(given, places, word, command, flag)
    reading = with_synonyms(fields, given, others, typed) if others else FlagReading(given)
    given = reading.values
    missing = [field for field in fields if field.required and field.name not in given]
    if missing:
        first, rest = missing[0], [one.value if one.place else one.flag for one in missing[1:]]
        more = f" So are {', '.join(rest)}." if len(rest) > 1 else f" So is {rest[0]}." if rest else ""
        name = first.value if first.place else f"{first.flag} {first.value}"
        raise InputError(f"{name} is missing: {first.about}{more} See `dscale {command} --help`.")
    return ReadArguments(given, reading.notes)


def _is_number(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."


def _flag(name: str, flags: dict[str, Field[Any, Any]]) -> tuple[Field[Any, Any] | None, bool]:
    """The field of a spelling, None where there is none, and whether it is denied."""
    written = name.replace("_", "-")
    if written in flags:
        return flags[written], False
    denied = "--" + written.removeprefix("--no-")
    if written.startswith("--no-") and denied in flags and flags[denied].switch:
        return flags[denied], True
    return None, False


def _other(
    others: dict[str, str], fields: Fields, command: str, typed: str, value: str | None, words: list[str]
) -> None:
    """Take up a flag of other software, with its value where it has one: that behind its =, or the next word."""
    name = canonical(typed)
    expects = takes_value(name, fields)
    if expects is None:
        guess = refusal(name, fields) or "."
        ending = "" if guess.endswith((".", "?")) else "."
        raise InputError(
            f"`dscale {command}` has no flag {shorten(typed)}{guess}{ending} See `dscale {command} --help`."
        )
    if value is None and expects:
        if not words or (words[0].startswith("--") and len(words[0]) > 2):
            raise InputError(f"{typed} needs a value.")
        value = words.pop(0)
    # a switch may be followed by true or false, as config files write it
    if value is None:
        value = words.pop(0) if words and words[0].lower() in (*TRUE, "false") else "true"
    if others.get(name, value) != value:
        raise InputError(f"{typed} is given twice, {shorten(others[name])} and {shorten(value)}; give it once.")
    others[name] = value


def _keep(given: dict[str, Any], field: Field[Any, Any], value: Any) -> None:
    if field.name in given and field.many:
        given[field.name] = f"{given[field.name]},{value}"
        return
    if field.name in given and given[field.name] != value:
        raise InputError(
            f"{field.flag} is given twice, {shorten(given[field.name])} and {shorten(value)}; give it once."
        )
    given[field.name] = value


def _place(
    given: dict[str, Any], places: Fields, word: str, command: str, before: Field[Any, Any] | None = None
) -> None:
    free = [field for field in places if field.name not in given]
    if free:
        given[free[0].name] = [word] if free[0].gathers else word
    elif places and places[-1].gathers:
        given[places[-1].name].append(word)
    else:
        where = "values go behind their flags"
        if before is not None:
            one = "one word: join several with a comma, or put them in quotes"
            where = f"{before.flag} takes {'no value' if before.switch else one}"
        raise InputError(
            f"`dscale {command}` does not take {shorten(word)} here; {where}, see `dscale {command} --help`."
        )
