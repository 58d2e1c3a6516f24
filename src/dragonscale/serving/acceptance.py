"""How often drafts are right: one chance for all of them, or one for each position.

A chance is that of a draft whose forerunners were all right. Later drafts are right less often: DeepSeek-V3 reports
0.85 to
0.9 for the second token, and heads that go on from there lose about a tenth with every further one. (vLLM logs how
often a position was reached *and* right: each of its numbers over the one before it is the chance meant here.)

>>> read_acceptance("0.85,0.7,0.5")
(0.85, 0.7, 0.5)
>>> round(tokens_per_loop(0.75, 3), 3), round(tokens_per_loop((0.85, 0.7, 0.5), 3), 4)
(2.734, 2.7425)
"""

from dragonscale.errors import InputError, shorten
from dragonscale.physics.numbers import Number

Acceptance = float | tuple[float, ...]


def read_acceptance(text: str, flag: str = "--accept") -> tuple[float, ...]:
    """`0.8` or `0.85,0.7,0.5`: the chance of every draft, or of each in turn (the last of them for all
    further ones)."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{flag} is {shorten(text)}; write the probability that a draft is right, or one for each: 0.85,0.7,0.5."
        ) from None
    check_acceptance(found, flag)
    return found


def check_acceptance(acceptance: Acceptance, what: str = "The acceptance of a draft") -> None:
    """Refuse what are no probabilities."""
    for chance in acceptance if isinstance(acceptance, tuple) else (acceptance,):
        if not 0 <= chance <= 1:
            raise InputError(f"{what} is {chance}; it is a probability between 0 and 1.")


def chance_at(acceptance: Acceptance | Number, place: int) -> Number:
    """The chance of one draft, counted from 0, those before it right."""
    if isinstance(acceptance, tuple):
        return acceptance[min(place, len(acceptance) - 1)]
    return acceptance


def reached(acceptance: Acceptance | Number, drafts: int) -> list[Number]:
    """How often each draft and all before it are right."""
    found: list[Number] = []
    for place in range(drafts):
        found.append(chance_at(acceptance, place) * (found[-1] if found else 1))
    return found


def tokens_per_loop(acceptance: Acceptance | Number, drafts: int) -> Number:
    """Tokens of one loop, on average: drafts up to the first wrong one, and the one that the model itself adds."""
    return 1 + sum(reached(acceptance, drafts))
