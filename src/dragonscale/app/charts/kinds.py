"""Which chart was asked for, and what is said where there is nothing to draw."""

from collections.abc import Sequence

from dragonscale.errors import InputError, unknown


def chosen_kind(kind: str, kinds: Sequence[str]) -> str:
    """A kind of chart by its name; the first without one.

    >>> chosen_kind("", ("time", "memory"))
    'time'
    """
    if kind and kind not in kinds:
        raise unknown("chart", kind, kinds)
    return kind or kinds[0]


def nothing_to_draw(why: str) -> InputError:
    """The error where an answer has nothing that a picture could show."""
    return InputError(f"There is nothing to draw: {why}.")
