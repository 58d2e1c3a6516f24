"""What is wrong with a word of a plan that is not a setting, in one sentence with what to write instead."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dragonscale.errors import InputError, nearest, shorten


@dataclass(frozen=True)
class PlanWords:
    """What a kind of plan is written with: `examples` has a value of every setting, `short` the settings that have a
    shorter name by that, `degrees` the names that a number may follow, `alone` the words that need no name."""

    examples: Mapping[str, object]
    short: Mapping[str, str]
    degrees: Collection[str]
    alone: Collection[str]
    usage: str
    """What a plan is made of, in a sentence."""


def unknown_setting(part: str, whole: str, words: PlanWords) -> InputError:
    """The error for a part of a plan that names no setting, or names one without its value."""
    start = f"In the plan {shorten(whole)} the part {shorten(part)} is not a setting"
    numbered = re.fullmatch(r"([a-z]+)(\d+)", part)
    name = part
    number = ""
    if numbered:
        name, number = numbered[1], numbered[2]
    setting = words.short.get(name, name)
    if setting in words.examples:
        example = words.examples[setting]
        if isinstance(example, bool):
            return InputError(f"{start}; {name} is on or off, write {name}=true.")
        return InputError(f"{start} by itself; give its value, such as {name}={example}.")
    close = nearest(name, words.degrees if numbered else words.alone)
    if close:
        return InputError(f"{start}; did you mean {close + number!r}?")
    return InputError(f"{start}. {words.usage}")
