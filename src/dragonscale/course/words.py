"""Numbers as problems write them."""

from dragonscale.units import render


def amount(value: float, dimension: str, digits: int = 4) -> str:
    """A quantity with its unit, to four digits.

    >>> amount(1.97e14, "FLOP/s"), amount(0.00125, "s"), amount(2**24, "bytes")
    ('197TFLOP/s', '1.25ms', '16.78MB')
    """
    return render(value, dimension, digits)


def count(value: float) -> str:
    """A whole number with its digits grouped.

    >>> count(4194304)
    '4,194,304'
    """
    return f"{round(value):,}"


def number(value: float, digits: int = 4) -> str:
    """A bare number to some digits, in the exponent form that formulas use where it is large or small.

    >>> number(3.14159), number(6.3e24), number(28672), number(0.00025)
    ('3.142', '6.3e24', '28,672', '2.5e-4')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if value == int(value) else f"{float(f'{value:.{digits}g}'):,g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(exponent)}"
