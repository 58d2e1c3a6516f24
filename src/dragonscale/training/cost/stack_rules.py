"""How a stack turns the expected time of a term into what the step waits for: the rule in words and its constants."""

import functools
import tomllib
from pathlib import Path

import msgspec

from dragonscale.tables import Strict


class StackRule(Strict, frozen=True):
    """A rule, and the paths of the stack's constants in it (`overlap.tensor`)."""

    rule: str
    constants: tuple[str, ...]


@functools.cache
def stack_rules() -> dict[str, StackRule]:
    """The rules by term; a term that no constant of the stack is in has none."""
    text = Path(__file__).with_name("stack_rules.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, StackRule])
