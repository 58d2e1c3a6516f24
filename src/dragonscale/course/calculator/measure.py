"""A number with a dimension: exponents of second, byte, FLOP, dollar and watt. Everything else that is counted is a
bare number.

A formula of the book counts in bare numbers: `2*B*D*F / v5e.bf16` is a time although nobody wrote FLOP behind the
product. So a count divided by a rate of FLOPs or of bytes is read as that many FLOPs or bytes (`settled`), wherever the
dimension matters.

>>> SECOND, BYTE = Measure.of(1.0, "s"), Measure.of(1.0, "bytes")
>>> (BYTE / SECOND).unit, (Measure(1.0) / (BYTE / SECOND)).settled().unit
('bytes/s', 's')
>>> BYTE + SECOND
Traceback (most recent call last):
    ...
dragonscale.course.calculator.measure.UnlikeUnits: 1B + 1s adds bytes and s, which are not alike; over a rate they are a
time: 1B / h100.hbm_bandwidth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dragonscale.course.calculator.shown import exponents_of, shown, unit_name
from dragonscale.errors import InputError

Exponents = tuple[Fraction | int, ...]
NONE: Exponents = (0, 0, 0, 0, 0)
INTENSITY: Exponents = (0, -1, 1, 0, 0)
_SIGNS = {"+": "adds", "-": "subtracts", "max": "compares", "=": "equates"}
TOO_LONG = "The formula is too long to write out; give some of its letters values."
MOST_NODES = 400
"""Parts (letters, numbers, signs) that a formula may have."""
LARGEST = 1e300
LARGEST_POWER = 1000
LARGEST_OF_LETTERS = 32
"""The largest exponents: of numbers, and of formulas, which are written out."""


class UnlikeUnits(InputError):
    """Two sides whose dimensions differ."""


@dataclass(frozen=True)
class Measure:
    """A number, or a formula in letters, and the exponents of its dimension."""

    number: Any
    exponents: Exponents = NONE

    @classmethod
    def of(cls, number: Any, unit: str) -> "Measure":
        """A number of base units such as `bytes/s`; an hourly price is kept per second."""
        return cls(number / 3600 if unit == "USD/h" else number, exponents_of(unit))

    @property
    def unit(self) -> str:
        return unit_name(self.exponents)

    @property
    def letters(self) -> bool:
        """Whether letters are left in it."""
        return not isinstance(self.number, int | float)

    def __str__(self) -> str:
        return shown(self.number, self.exponents)

    def settled(self) -> "Measure":
        """With bare counts read as the FLOPs or bytes that they are divided by."""
        second, byte, flop, *rest = self.exponents
        alone = (byte, flop) in ((-1, 0), (0, -1)) and second in (0, 1) and not any(rest)
        return Measure(self.number, (second, 0, 0, 0, 0)) if alone else self

    def __add__(self, other: "Measure") -> "Measure":
        return _together(self, other, "+", lambda a, b: a + b)

    def __sub__(self, other: "Measure") -> "Measure":
        return _together(self, other, "-", lambda a, b: a - b)

    def __neg__(self) -> "Measure":
        return Measure(checked(-self.number), self.exponents)

    def __mul__(self, other: "Measure") -> "Measure":
        joined = tuple(a + b for a, b in zip(self.exponents, other.exponents, strict=True))
        return Measure(checked(self.number * other.number), joined)

    def __truediv__(self, other: "Measure") -> "Measure":
        if not other.letters and other.number == 0:
            raise InputError(f"{self} / {other} divides by zero.")
        left = tuple(a - b for a, b in zip(self.exponents, other.exponents, strict=True))
        return Measure(checked(self.number / other.number), left)

    def __pow__(self, other: "Measure") -> "Measure":
        power = plain(other, "an exponent")
        fixed = isinstance(power, int | float)
        most = LARGEST_OF_LETTERS if self.letters else LARGEST_POWER
        if fixed and abs(power) > most:
            raise InputError(f"The exponent {power:g} is too large; {most} is the largest.")
        if any(self.exponents) and not fixed:
            raise InputError(f"{self} has a unit, so its exponent is a number and no formula.")
        if (
            not self.letters
            and fixed
            and ((self.number < 0 and power != int(power)) or (self.number == 0 and power < 0))
        ):
            raise InputError(f"{self} ^ {power:g} is not a number.")
        raised = tuple(e * Fraction(power).limit_denominator(12) for e in self.exponents) if fixed else self.exponents
        try:
            return Measure(checked(self.number**power), raised)
        except OverflowError:
            raise InputError(f"{self} ^ {power:g} is too large a number.") from None


def aligned(first: Measure, second: Measure, sign: str) -> tuple[Measure, Measure]:
    """Two measures with the same dimension, or the sentence that they have not; a zero has any."""
    one, two = first.settled(), second.settled()
    if one.exponents == two.exponents:
        return one, two
    if {one.exponents, two.exponents} == {NONE, INTENSITY}:  # tokens are what an intensity is compared with
        return Measure(one.number), Measure(two.number)
    for zero, other in ((one, two), (two, one)):
        if not zero.letters and zero.number == 0:
            return (Measure(0.0, other.exponents), two) if zero is one else (one, Measure(0.0, other.exponents))
    words = [one.unit or "a bare number", two.unit or "a bare number"]
    hint = ""
    if NONE in (one.exponents, two.exponents):
        unit = (one if one.unit else two).unit
        hint = f"; say what the number counts, as in 2 {'s' if unit == 's' else unit.split('/')[0]}"
    elif "s" in words and (amount := {"bytes": "hbm_bandwidth", "FLOP": "bf16"}.keys() & {*words}):
        moved, rate = (one if one.unit in amount else two), "hbm_bandwidth" if "bytes" in amount else "bf16"
        hint = f"; over a rate they are a time: {moved} / h100.{rate}"
    raise UnlikeUnits(
        f"{one} {sign} {two} {_SIGNS.get(sign, 'compares')} {' and '.join(words)}, which are not alike{hint}."
    )


def _together(first: Measure, second: Measure, sign: str, what: Callable[[Any, Any], Any]) -> Measure:
    one, two = aligned(first, second, sign)
    return Measure(checked(what(one.number, two.number)), one.exponents)


def checked(number: Any) -> Any:
    """A number that is not too large; a formula that is not too long, and a number where its letters have cancelled."""
    if isinstance(number, int | float | complex):
        if isinstance(number, complex) or not abs(number) < LARGEST:
            raise InputError("The result is too large a number, or none.")
        return number + 0  # -0.0 is 0
    if not number.free_symbols:
        if not (number.is_real and number.is_finite):
            raise InputError("The result is no number: it divides by zero, or has no real value.")
        return checked(float(number))
    if nodes(number) > MOST_NODES:
        raise InputError(TOO_LONG)
    return number


@lru_cache(maxsize=4096)
def nodes(formula: Any) -> int:
    """Parts of a formula, those that it repeats counted each time."""
    return 1 + sum(nodes(part) for part in formula.args)


def plain(value: Measure, what: str) -> Any:
    """The number of a measure that must have no unit."""
    bare = value.settled()
    if bare.exponents not in (NONE, INTENSITY):
        raise InputError(f"{value} is {what}, which has no unit.")
    return bare.number
