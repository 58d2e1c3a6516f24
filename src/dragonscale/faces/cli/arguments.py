"""Arguments of a command line, read by the fields of a question.

`--name value`, `--name=value`, switches with and without `no-`, places first to last, `--` before words that
begin with a dash. What is wrong is said in one sentence with the nearest flag.
"""

import functools
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import Field
from dragonscale.errors import InputError, nearest, shorten

Fields = Sequence[Field[Any, Any]]

ABSENT = {
    "--lora": "LoRA is a method of `dscale train`: --method lora --lora-rank 16; a server takes --lora-modules.",
    "--qlora": "QLoRA is a method of `dscale train`: --method qlora --lora-rank 16.",
    "--dpo": "DPO is a method of `dscale train`: --method dpo, with --lora-rank 16 for adapters.",
    "--rlhf": "Reinforcement learning is planned by `dscale rl`.",
    "--grpo": "GRPO is planned by `dscale rl --algorithm grpo`.",
    "--kernels": "Kernel times of your own device are given by --profile FILE.",
    "--spread": "How a TP degree beyond the KV heads splits the KV cache is said by --kv-split.",
    "--capacity": "The largest rate that a fleet holds is asked for by --max-rate.",
    "--mode": "What a compiler runs through is said by --passes canonical or full.",
    "--program": "A model is printed as named einsums by --einsums.",
    "--reward": "What `dscale run rl` rewards is said by --rule.",
    "--weights": "A folder of weights is given by --load-weights FOLDER.",
    "--warmup": "Steps until the learning rate is at its peak are given by --warmup-steps.",
    "--jobs": "A part of the rows is asked for by --limit N.",
    "--from": "The chip that sends is given by --from-chip.",
    "--to": "A plan of --save FILE is written for a trainer or an engine by `dscale export FILE --to NAME`; the chip "
    "that receives a message is given by --to-chip.",
    "--log": "Lines on stderr are asked for by --verbose, or their interval by --log-every.",
    "--stack": "Whole steps are timed by --whole-steps.",
    "--tokens": "Tokens of an iteration are given by --token-budget.",
    "--memory": "The memory that may be used is given by --memory-limit or --memory-fraction.",
    "--params": "`dscale estimate --params 7B` counts with parameters alone; elsewhere a model is a preset, "
    "an org/name, a config.json or a .toml of sizes.",
    "--spot": "Spot chips, with the times that they are taken away, are asked for by --pricing spot.",
}
"""What people ask for that is not here, by the flag that was typed, whatever the command: what comes nearest."""


def read_arguments(fields: Fields, arguments: Sequence[str], command: str) -> dict[str, Any]:
    """The values that were given, by the names of their fields.

    >>> from dragonscale.commands.questions.flag import fields_of
    >>> from dragonscale.commands.questions.shared import Output
    >>> from dragonscale.commands.questions.shared import MODEL
    >>> read_arguments([MODEL, *fields_of(Output)], ["llama3-8b", "--save=a.toml", "--json"], "train")
    {'model': 'llama3-8b', 'save': 'a.toml', 'json': True}
    """
    spelled = {spelling: field for field in fields if not field.place for spelling in field.spellings}
    places = [field for field in fields if field.place]
    # `--model llama3-8b` is what other commands are used to
    spelled |= {field.flag: field for field in places if field.flag not in spelled and not field.gathers}
    given: dict[str, Any] = {}
    words = list(arguments)
    ended, flag = False, None
    while words:
        word = words.pop(0)
        if word == "--" and not ended:
            ended = True
        elif not ended and word.startswith("-") and len(word) > 1 and not _is_number(word):
            name, equals, value = word.partition("=")
            typed = value if equals else next(iter(words), "")
            field, negated = _flag(name, spelled, command, typed)
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
    missing = [field for field in fields if field.required and field.name not in given]
    if missing:
        first, rest = missing[0], [one.value if one.place else one.flag for one in missing[1:]]
        more = f" So are {', '.join(rest)}." if len(rest) > 1 else f" So is {rest[0]}." if rest else ""
        name = first.value if first.place else f"{first.flag} {first.value}"
        raise InputError(f"{name} is missing: {first.about}{more} See `dscale {command} --help`.")
    return given


def _is_number(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."


def _flag(name: str, spelled: dict[str, Field[Any, Any]], command: str, value: str) -> tuple[Field[Any, Any], bool]:
    """The field of a spelling, and whether it is denied; `value` is the word after it."""
    written = name.replace("_", "-")
    if written in spelled:
        return spelled[written], False
    denied = "--" + written.removeprefix("--no-")
    if written.startswith("--no-") and denied in spelled and spelled[denied].switch:
        return spelled[denied], True
    if written in ABSENT:
        raise InputError(ABSENT[written])
    same = flag_of_other_software(written, spelled, value)
    explained = same or explained_flag(written, spelled, value)
    close = "" if explained else nearest(written, spelled)
    guess = "."
    if same:
        guess = f"; here it is {same}."
    elif explained:
        guess = f"; {explained}."
    elif close:
        guess = f"; did you mean {close}?"
    raise InputError(f"`dscale {command}` has no flag {shorten(name)}{guess} See `dscale {command} --help`.")


def flag_of_other_software(name: str, spelled: Collection[str], value: str) -> str:
    """What is typed here for a flag that other software has, with its value; empty where nothing is known.

    >>> flag_of_other_software("--qps", ["--rate"], "30"), flag_of_other_software("--qps", ["--batch"], "30")
    ('--rate 30/s', '')
    """
    value = other_words()["values"].get(name, {}).get(value.lower(), value)
    for written in other_words()["flags"].get(name, ()):
        flag, _, form = written.partition(" ")
        if flag in spelled:
            if flag == CHIPS and value.isdigit():
                return ""  # a number of chips without the chip: `explained_flag`
            usable = value and not value.startswith("-")
            return f"{flag} {form.format(value)}" if usable or "{}" not in form else flag
    return ""


CHIPS = "--on"
"""The flag that takes chips: which and how many, so a number alone is none of its values."""


def explained_flag(name: str, spelled: Collection[str], value: str) -> str:
    """What is said of a flag of other software that no flag here says in the same way; empty where nothing is known.

    >>> explained_flag("--steps", ["--tokens"], "1000"), explained_flag("--gpus", ["--on"], "8")
    ("a run's length is given in tokens, such as --tokens 15T", '--on takes the chip as well, such as h100:8')
    """
    for flag, sentence in other_words()["explained"].get(name, ()):
        if flag in spelled:
            return str(sentence)
    takes_chips = any(written.startswith(f"{CHIPS} ") for written in other_words()["flags"].get(name, ()))
    if takes_chips and CHIPS in spelled and value.isdigit():
        return f"{CHIPS} takes the chip as well, such as h100:{value}"
    return ""


@functools.cache
def other_words() -> dict[str, dict[str, Any]]:
    """What people type who know other software: flags and commands, with what says it here."""
    return tomllib.loads(Path(__file__).with_name("other_words.toml").read_text(encoding="utf-8"))


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
