"""The error for a part of a plan that is not a setting, with what to write instead."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dragonscale.errors import InputError, nearest, shorten


@dataclass(frozen=True)
class PlanWords:
    """The vocabulary of a kind of plan: `examples` has a value of every setting, `short` maps short names to settings,
    `degrees` are the names that a number may follow, `alone` the values that need no name."""

    examples: Mapping[str, object]
    short: Mapping[str, str]
    degrees: Collection[str]
    alone: Collection[str]
    usage: str
    """How a plan is written, in a sentence."""


def unknown_setting(part: str, whole: str, vocabulary: PlanWords) -> InputError:
    """The error for a part of a plan that names no setting, or names one without its value."""
    start = f"In the plan {shorten(whole)} the part {shorten(part)} is not a setting"
    numbered = re.fullmatch(r"([a-z]+)(\d+)", part)
    name, number = part, ""
    if numbered:  # tp8: a setting and its degree
        name, number = numbered.groups()
    setting = vocabulary.short.get(name, name)
    if setting in vocabulary.examples:
        example = vocabulary.examples[setting]
        if isinstance(example, bool):
            return InputError(f"{start}; {name} is on or off, write {name}=true.")
        return InputError(f"{start} by itself; give its value, such as {name}={example}.")
    close = nearest(name, vocabulary.degrees if numbered else vocabulary.alone)
    if close:
        return InputError(f"{start}; did you mean {close + number!r}?")
    return InputError(f"{start}. {vocabulary.usage}")
