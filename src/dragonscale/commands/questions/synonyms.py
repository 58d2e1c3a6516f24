"""Flags of other software, read as the flags here that say the same: one table (`synonyms.toml`) for every face.

>>> from dragonscale.commands.questions.flag import fields_of
>>> from dragonscale.commands.questions.serve import ServeQuestion
>>> reading = with_synonyms(fields_of(ServeQuestion), {}, {"--tp": "4", "--pp": "2", "--request-rate": "30"})
>>> reading.values
{'plan': 'tp4,pp2', 'rate': '30/s'}
>>> reading.notes
('--tp and --pp are read as --plan tp4,pp2.', '--request-rate is read as --rate 30/s.')
"""

import functools
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import Field, written
from dragonscale.errors import InputError, nearest

Fields = Sequence[Field[Any, Any]]

CHIPS = "--on"
SETTINGS = ("fix", "plan")
"""Fields that hold settings of a plan: those of several flags are joined."""
_RANKS_OF_A_COPY = re.compile(r"(?:tp|pp|cp)(\d+)")
"""Degrees that split one copy of the model, so that its chips share a batch."""


@dataclass(frozen=True)
class FlagReading:
    """What flags of other software say here, by the names of fields, and a note on each that was read."""

    values: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass
class _Meant:
    """What one field is given by flags of other software: the flags as they were typed, and what each says."""

    typed: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


@functools.cache
def table() -> dict[str, Any]:
    """The table of synonyms."""
    return tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text(encoding="utf-8"))


def spelled(fields: Fields) -> dict[str, Field[Any, Any]]:
    """The fields of a command by each of their flags; what has a place may be given by a flag too, as `--model`."""
    flags = {spelling: field for field in fields if not field.place for spelling in field.spellings}
    for placed in fields:
        if placed.place and not placed.gathers:
            flags.setdefault(placed.flag, placed)
    return flags


def canonical(typed: str) -> str:
    """A flag as the table writes it: with dashes, and one letter or two (`-tp`) as it stands there."""
    name = typed.replace("_", "-")
    doubled = f"-{name}"
    if not name.startswith("--") and name not in table()["flags"] and doubled in table()["flags"]:
        return doubled
    return name


def flag_in_python(name: str) -> str:
    """A keyword as a flag: `tensor_parallel_size` is what `--tensor-parallel-size` is."""
    return f"--{name.replace('_', '-')}"


def takes_value(name: str, fields: Fields) -> bool | None:
    """Whether a flag of other software is followed by a value; None for a flag that nothing here stands for.

    >>> from dragonscale.commands.questions.flag import fields_of
    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> [takes_value(name, fields_of(TrainQuestion)) for name in ("--gbs", "--gradient-checkpointing", "--qps")]
    [True, False, None]
    """
    rows, flags = table(), spelled(fields)
    if name in rows["ignored"]["names"]:
        return name not in rows["ignored"]["switches"]
    if name in _counting() and CHIPS in flags:
        return True
    if name in rows["per_chip"]["passes"] and "--batch" in flags:
        return True
    form = _form(name, flags, "")
    return None if not form else "{}" in form


def fields_meant(typed: str, fields: Fields) -> set[str]:
    """Names of the fields that a flag of other software sets.

    >>> from dragonscale.commands.questions.flag import fields_of
    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> fields_meant("--bf16", fields_of(TrainQuestion)), fields_meant("--frobnicate", fields_of(TrainQuestion))
    ({'dtype'}, set())
    """
    flags = spelled(fields)
    form = _form(canonical(typed), flags, "")
    return {flags[flag].name for flag in form.split()[::2]}


def _counting() -> tuple[str, ...]:
    counts = table()["counts"]
    return (*counts["of_chips"], *counts["of_nodes"])


def _form(name: str, flags: Mapping[str, Any], preferred: str) -> str:
    """How a flag is meaning here, by the flags that a command has; empty where it is not. `preferred` is a flag that
    comes first."""
    # forms whose flag the command has, with the other flag that some need
    usable: list[str] = []
    for row in table()["flags"].get(name, ()):
        form, besides = (row, "") if isinstance(row, str) else (row["write"], row["with"])
        if form.split()[0] in flags and (not besides or besides in flags):
            usable.append(form)
    return next((form for form in usable if form.split()[0] == preferred), next(iter(usable), ""))


def with_synonyms(
    fields: Fields, typed_here: Mapping[str, Any], others: Mapping[str, Any], typed: Mapping[str, str] | None = None
) -> FlagReading:
    """What was `typed_here`, by the names of fields, with what flags of other software (`others`, as `canonical` writes
    them) say beside it. Notes call these as they were `typed`."""
    reading = _with_synonyms(fields, typed_here, others)
    shown = {name: word for name, word in (typed or {}).items() if name != word}
    if not shown:
        return reading
    # whole names alone: --tp is a part of --tp-size
    called = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in shown))
    notes = [called.sub(lambda match: shown[match[0]], note) for note in reading.notes]
    return FlagReading(reading.values, tuple(notes))


def _with_synonyms(fields: Fields, typed_here: Mapping[str, Any], others: Mapping[str, Any]) -> FlagReading:
    flags, values = spelled(fields), dict(typed_here)
    meant: dict[str, _Meant] = {}
    notes: list[str] = []
    # numbers that say something only together: of chips and nodes, and of accumulation steps
    counted: dict[str, int] = {}
    passes: dict[str, int] = {}
    for name, value in others.items():
        text = written(value).strip() if isinstance(value, str | None) else str(value)
        # a switch that is off
        if value is False or text.lower() == "false":
            continue
        if name in table()["ignored"]["names"]:
            notes.append(f"{name} changes nothing that is planned.")
        # `--gpus 8` is a number, `--gpus h100:8` says which
        elif name in _counting() and text.isdecimal():
            counted[name] = int(text)
        elif name in table()["per_chip"]["passes"] and text.isdecimal():
            passes[name] = int(text)
        else:
            _add(meant, flags, values, name, text)
    if counted:
        notes.append(_count_chips(values, meant, counted))
    per_chip = {name: others[name] for name in table()["per_chip"]["sequences"] if str(others.get(name)).isdecimal()}
    if (passes or per_chip) and "--batch" in flags:
        notes.append(_multiply_batch(values, meant, per_chip, passes))
    for name, meaning in meant.items():
        values[name] = _merged(name, meaning, values.get(name))
        shown = flags_shown(fields, name, meaning.values)
        notes.append(f"{_listed(meaning.typed)} {'is' if len(meaning.typed) == 1 else 'are'} read as {shown}.")
    return FlagReading(values, tuple(filter(None, notes)))


def _add(
    meant: dict[str, _Meant], flags: Mapping[str, Field[Any, Any]], values: Mapping[str, Any], name: str, text: str
) -> None:
    """Take up what one flag says: a form may have several flags (`--method lora --frozen int8`)."""
    preferred = "--plan" if values.get("plan") and "--plan" in flags else ""
    form = _form(name, flags, preferred)
    text = table()["values"].get(name, {}).get(text.lower(), text)
    if "{chips}" in form:
        form = form.replace("{chips}", str(_chips(values, meant) or ""))
    # a unit that is typed already is not meaning again
    _, _, suffix = form.partition("{}")
    if suffix and text.endswith(suffix):
        text = text.removesuffix(suffix)
    # flags and values in turn
    parts = shlex.split(form)
    for flag, value in zip(parts[::2], parts[1::2], strict=True):
        meaning = meant.setdefault(flags[flag].name, _Meant())
        meaning.typed.append(name)
        meaning.values.append(value.replace("{}", text))


def _merged(name: str, meaning: _Meant, typed_here: Any) -> str:
    """The value of a field that flags of other software name, beside what was given for it here."""
    different = list(dict.fromkeys(meaning.values))
    if name in SETTINGS:
        settings = ",".join([*([written(typed_here)] if typed_here else []), *different])
        _check_once(settings, meaning.typed)
        return settings
    if typed_here and written(typed_here) not in different:
        different.append(written(typed_here))
    if len(different) > 1:
        raise InputError(
            f"{_listed(meaning.typed)} and --{name.replace('_', '-')} are the same here, and are {different[0]} and "
            f"{different[1]}; give one of them."
        )
    return different[0]


def _check_once(settings: str, typed: Sequence[str]) -> None:
    """Refuse a degree that two flags give two values."""
    degrees: dict[str, str] = {}
    for letters, degree in re.findall(r"\b([a-z]+)(\d+)\b", settings):
        if degrees.setdefault(letters, degree) != degree:
            raise InputError(
                f"{_listed(typed)} give {letters} two values, {degrees[letters]} and {degree}; give it once."
            )


def _listed(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def flags_shown(fields: Fields, name: str, values: Sequence[str]) -> str:
    """A field with its value as it would be typed here."""
    target = next(field for field in fields if field.name == name)
    value = ",".join(dict.fromkeys(values))
    if target.place:
        return f"the {target.name} {value}"
    return f"{target.flag} {shlex.quote(value)}"


def _count_chips(values: dict[str, Any], meant: dict[str, _Meant], counted: Mapping[str, int]) -> str:
    """Take up numbers of chips, nodes and processes: with a chip alone in --on, how many of it there are."""
    from dragonscale.physics.hardware.catalogue import is_chip

    counts, on = table()["counts"], _target(values, meant)
    of_node = [counted[name] for name in counts["of_chips"] if name in counted]
    # nodes alone, no chip, or a slice that has its own number
    if not of_node or not is_chip(on):
        chips = _chips(values, meant)
        if chips is not None and of_node and math.prod(counted.values()) == chips:
            return ""  # the same number is in --on
        first = next(iter(counted))
        sentence = "--on takes the chip as well, such as h100:8"
        for _, explained in table()["explained"].get(first, ()):
            sentence = explained
        if first in counts["of_chips"] and not on:
            sentence = f"--on takes the chip as well, such as h100:{counted[first]}"
        raise InputError(f"{first} alone does not say which chips; {sentence}.")
    meant.pop("on", None)
    values["on"] = f"{on}:{math.prod(counted.values())}"
    return f"{_listed([*counted])} {'is' if len(counted) == 1 else 'are'} read as {CHIPS} {values['on']}."


def _multiply_batch(
    values: dict[str, Any], meant: Mapping[str, _Meant], per_chip: Mapping[str, Any], passes: Mapping[str, int]
) -> str:
    """Take up the batch of a step where it is given by that of one device, accumulation steps and devices."""
    if values.get("batch") or "batch" in meant:
        return f"{_listed([*passes])} follows from the batch and the microbatch here." if passes else ""
    chips = _chips(values, meant)
    if not chips or not per_chip:
        name = next(iter({**per_chip, **passes}))
        if name not in table()["explained"]:
            return ""
        raise InputError(f"{name} says no batch by itself; {table()['explained'][name][0][1]}.")
    # chips of one copy of the model share its batch
    degrees = [int(degree) for meaning in meant.values() for value in meaning.values for degree in _degrees(value)]
    ranks = chips // math.prod(degrees) or 1
    sequences = math.prod(int(str(value)) for value in per_chip.values())
    values["batch"] = f"{sequences * math.prod(passes.values()) * ranks}seq"
    factors = " x ".join([f"{name} {value}" for name, value in {**per_chip, **passes}.items()])
    return f"{factors} x {ranks} data-parallel ranks is read as --batch {values['batch']}."


def _degrees(settings: str) -> list[str]:
    return _RANKS_OF_A_COPY.findall(settings)


def _target(values: Mapping[str, Any], meant: Mapping[str, _Meant]) -> str:
    """--on as it was given, here or in other words."""
    if values.get("on"):
        return written(values["on"]).strip()
    return meant["on"].values[0].strip() if "on" in meant else ""


def _chips(values: Mapping[str, Any], meant: Mapping[str, _Meant]) -> int | None:
    """The chips of --on; None where it does not say how many."""
    from dragonscale.physics.hardware import parse_target

    try:
        slice_ = parse_target(_target(values, meant))[1]
    except InputError:  # several slices, or a name that is refused where it is read
        return None
    return None if slice_ is None else slice_.chips


def explanation(name: str, fields: Fields) -> str:
    """What is said of a flag of other software that no flag here says in the same way; empty where nothing is."""
    flags = spelled(fields)
    for flag, sentence in table()["explained"].get(name, ()):
        if flag in flags:
            return f"{sentence}."
    return ""


def refusal(name: str, fields: Fields) -> str:
    """What a refusal adds of a flag that a command lacks: what says it here, or the flag that was probably meant; empty
    where nothing is known."""
    flags = spelled(fields)
    if sentence := explanation(name, fields):
        return f"; {sentence}"
    if name in table()["nearest"]:
        return f". {table()['nearest'][name]}"
    close = nearest(name, flags) if len(name.strip("-")) > 1 else ""  # one letter begins too many
    return f"; did you mean {close}?" if close else ""


@dataclass(frozen=True)
class OtherCommand:
    """What a command that is not here stands for: words to put in its place, or a sentence where it may be several."""

    command: tuple[str, ...] = ()
    sentence: str = ""


def command_meant(name: str, rest: Sequence[str]) -> OtherCommand:
    """What is asked for by a command of other software.

    >>> command_meant("infer", ["llama3-8b"]).command, command_meant("fit", ["llama3-8b"]).sentence[:70]
    (('serve',), 'Whether a job fits is answered by `dscale train llama3-8b --on h100:8`')
    >>> command_meant("fit", ["--on", "rtx4090"]).command
    ('models',)
    """
    rows = table()
    if name in rows["commands_of_a_place"] and rest and rest[0] in (CHIPS, "--here"):
        return OtherCommand((rows["commands_of_a_place"][name],))
    if name in rows["commands"]:
        command, *flags = rows["commands"][name].split()
        # `finetune MODEL --method lora` says itself what `finetune` alone is taken for
        if flags and flags[0] in rest:
            flags = []
        return OtherCommand((command, *flags))
    behind = shlex.join(rest) if rest and len(shlex.join(rest)) < 60 else "MODEL"
    slice_named = any(word == CHIPS or word.startswith(f"{CHIPS}=") for word in rest)
    slice_given = "" if slice_named else f" {CHIPS} h100:8"
    return OtherCommand(sentence=rows["either"].get(name, "").replace("{}", f" {behind}").replace("{on}", slice_given))


def names_with_synonyms(fields: Fields, call: Mapping[str, Any]) -> FlagReading:
    """Values by the names of fields, some of which may be names of other software (`tensor_parallel_size`); a name that
    nothing stands for is left as it is, for whoever asked to refuse."""
    names = {field.name for field in fields}
    typed = {flag_in_python(name): name for name in call if name not in names}
    others = {flag: call[name] for flag, name in typed.items() if takes_value(flag, fields) is not None}
    if not others:
        return FlagReading(dict(call))
    values = {name: value for name, value in call.items() if flag_in_python(name) not in others}
    return with_synonyms(fields, values, others, typed)
