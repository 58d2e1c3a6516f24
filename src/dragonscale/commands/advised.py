"""Advice of an answer: what it says, and the flags that do it, so that it can be tried."""

import msgspec

# What a change brings: a plan that fits, one that meets the targets, more tokens a second of each chip.
FITS, MEETS, TOKENS = "fits", "meets targets", "tokens_per_chip"


class Advice(msgspec.Struct, frozen=True):
    """A sentence, the flags with which the same question has the change (empty: it names none), and what they bring:
    with a `gain`, so much more of it."""

    text: str
    flags: dict[str, str] = {}
    effect: str = ""
    gain: float | None = None
