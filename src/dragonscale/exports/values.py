"""Values of other software's options, checked: whole numbers, fractions, yes and no.

>>> whole("8", "--tp"), whole("1_000", "--steps"), fraction("0.9", "--share"), truth("Yes", "--flag")
(8, 1000, 0.9, True)
>>> whole("eight", "--tp")
Traceback (most recent call last):
dragonscale.errors.InputError: --tp is 'eight'; it takes a whole number from 1 to 1,000,000,000,000.
"""

import re
from typing import Any

from dragonscale.errors import InputError, shorten

MOST = 10**12
_TRUE, _FALSE = ("true", "1", "yes", "on", "enable", "enabled"), ("false", "0", "no", "off", "none", "null", "")


def whole(value: Any, name: str, least: int = 1, most: int = MOST) -> int:
    """A whole number, written as one (`8`, `8.0`, `1_000`)."""
    text = str(value).strip()
    plain = re.fullmatch(r"[+-]?[0-9](?:_?[0-9]){0,14}(?:\.0{1,6})?", text, re.ASCII)
    number = int(text.replace("_", "").partition(".")[0]) if plain and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise InputError(f"{name} is {shorten(value)}; it takes a whole number from {least:,} to {most:,}.")
    return number


def fraction(value: Any, name: str) -> float:
    """A share above 0 and at most 1."""
    try:
        number = float(str(value).strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise InputError(f"{name} is {shorten(value)}; it is above 0 and at most 1.")
    return number


def truth(value: Any, name: str) -> bool:
    """Yes or no, in any of the ways that configs write it."""
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise InputError(f"{name} is {shorten(value)}; write true or false.")
    return text in _TRUE
