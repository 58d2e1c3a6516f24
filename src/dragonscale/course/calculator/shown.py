"""Dimensions as exponents, as names of units and as text."""

import math
from fractions import Fraction
from typing import Any

from dragonscale.course.calculator.tables import TABLES
from dragonscale.physics.units import render

BASES = ("s", "bytes", "FLOP", "USD", "W")
_RENDERED = ("s", "bytes", "bytes/s", "FLOP", "FLOP/s", "USD", "USD/h", "W")
_LARGEST = 1e21
"""From here on a power of ten says more than a prefix."""
_YEAR = 31556952.0
_FAST = 1e8
"""What happens more often in a second is a clock's cycle."""


def exponents_of(unit: str) -> tuple[int, ...]:
    """The exponents of a base unit such as `bytes/s`."""
    return TABLES.dimensions[unit]


def unit_name(exponents: tuple[Fraction | int, ...]) -> str:
    """The name of a dimension: empty for a bare number.

    >>> unit_name((0, -1, 1, 0, 0)), unit_name((2, 0, 0, 1, 0))
    ('FLOP/byte', 's^2*USD')
    """
    for name, known in TABLES.dimensions.items():
        if known == exponents and name != "count":
            return name
    over = "*".join(_raised(base, e) for base, e in zip(BASES, exponents, strict=True) if e > 0)
    under = "".join(f"/{_raised(base, -e)}" for base, e in zip(BASES, exponents, strict=True) if e < 0)
    return (over or "1") + under


def _raised(base: str, exponent: Fraction | int) -> str:
    return base if exponent == 1 else f"{base}^{exponent}"


def shown(number: Any, exponents: tuple[Fraction | int, ...]) -> str:
    """A number with a prefix and its unit, to three digits; counts below a million to six.

    >>> shown(0.00108932, (1, 0, 0, 0, 0)), shown(242.926, (0,) * 5), shown(6.3e24, (0, 0, 1, 0, 0))
    ('1.09ms', '242.926', '6.3e24 FLOP')
    """
    unit = unit_name(exponents)
    if not isinstance(number, int | float):
        return f"({number}) {unit}".strip() if unit else str(number)
    if unit == "USD/h":
        number *= 3600
    if not math.isfinite(number) or abs(number) >= _LARGEST or (unit and 0 < abs(number) < 1e-18):
        return f"{_exponent(number)} {unit}".strip()
    if unit in ("USD", "USD/h") and abs(number) >= 1e6:
        return f"${render(number, 'count')}{unit[3:]}"
    if unit == "s" and abs(number) >= 2 * _YEAR:
        return f"{number / _YEAR:,.3g} years"
    if unit in _RENDERED:
        return render(number, unit)
    if unit == "/s":
        return render(number, "Hz" if abs(number) >= _FAST else "count/s")
    if not unit and number and not 1e-4 <= abs(number) < 1e6:
        return render(number, "count", 4) if abs(number) > 1 else _exponent(number)
    text = f"{number:,.0f}" if number == int(number) and abs(number) < 1e6 else f"{number:,.6g}"
    text = _exponent(number) if "e" in text else text
    return f"{text} {unit}".strip()


def in_base(number: float, exponents: tuple[Fraction | int, ...]) -> str:
    """The same in base units, whole numbers in full and others to six digits.

    >>> in_base(0.00108932123, (1, 0, 0, 0, 0)), in_base(17179869184.0, (0, 1, 0, 0, 0))
    ('0.00108932 s', '17,179,869,184 bytes')
    """
    unit = unit_name(exponents)
    if unit == "USD/h":
        number *= 3600
    whole = abs(number) < 1e15 and (number == int(number) or abs(number) >= 1e6)
    return f"{f'{number:,.0f}' if whole else six_digits(number)} {unit}".strip()


def six_digits(number: float) -> str:
    """To six digits, with commas, or as a power of ten: 1,234.5 and 5.91e17."""
    return f"{number:,.6g}" if 1e-4 <= abs(number) < 1e6 or number == 0 else _exponent(number)


def _exponent(number: float) -> str:
    """`6.3e24` instead of `6.3e+24`."""
    head, mark, power = f"{number:.6g}".partition("e")
    return f"{head}e{int(power)}" if mark else head
