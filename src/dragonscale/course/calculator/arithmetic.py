"""Functions of numbers: `max`, `ceil`, `sqrt`, `log2` and their like; of letters they give formulas."""

import math
from typing import Any

from dragonscale.course.calculator.measure import Measure, aligned, checked, plain
from dragonscale.errors import InputError

ARITHMETIC = ("max", "min", "ceil", "floor", "round", "sqrt", "log2", "ln", "log10", "exp", "abs", "sum")


def arithmetic(name: str, given: list[Any]) -> Measure:
    """Functions of numbers; of letters they give formulas."""
    values = [one for value in given for one in (value if isinstance(value, tuple) else (value,))]
    if not values or not all(isinstance(one, Measure) for one in values):
        raise InputError(f"{name} takes numbers, such as {name}(3{', 5' if name in ('max', 'min', 'sum') else ''}).")
    if name == "sum":
        return sum(values[1:], values[0])
    if name in ("max", "min"):
        return _extreme(name, values)
    digits = 0
    if name == "round" and len(values) == 2:
        last = values.pop()
        digits = plain(last, "a number of digits")
        if last.letters or digits != int(digits):
            raise InputError(f"round takes a whole number of digits, and {last} is none.")
    if len(values) != 1:
        raise InputError(f"{name} takes one number, and {len(values)} are given.")
    value = values[0]
    if name == "sqrt":
        return value ** Measure(0.5)
    if name == "abs":
        return Measure(checked(abs(value.number)), value.exponents)
    settled = value.settled()
    if name in ("ceil", "floor", "round"):
        return Measure(checked(_whole(name, settled.number, int(digits))), settled.exponents)
    number = plain(value, f"what {name} takes")
    if isinstance(number, int | float):
        if name != "exp" and number <= 0:
            raise InputError(f"{name}({number:g}) is not a number.")
        if name == "exp" and abs(number) > 700:
            raise InputError(f"exp({number:g}) is too large a number.")
        return Measure(float(getattr(math, "log" if name == "ln" else name)(number)))
    import sympy

    bases = {"ln": (), "log2": (2,), "log10": (10,)}
    return Measure(checked(sympy.exp(number) if name == "exp" else sympy.log(number, *bases[name])))


def _extreme(name: str, values: list[Measure]) -> Measure:
    first, *rest = values
    for other in rest:
        one, two = aligned(first, other, name)
        if one.letters or two.letters:
            import sympy

            larger = (sympy.Max if name == "max" else sympy.Min)(one.number, two.number)
            first = Measure(checked(larger), one.exponents)
        else:
            first = Measure((max if name == "max" else min)(one.number, two.number), one.exponents)
    return first.settled()


def _whole(name: str, number: Any, digits: int) -> Any:
    if not isinstance(number, int | float):
        import sympy

        if digits:
            raise InputError("round takes a formula to whole numbers only; give its letters values.")
        return (sympy.ceiling if name == "ceil" else sympy.floor)(number if name != "round" else number + 0.5)
    # 16.000000000000004 chips are 16: what is whole but for rounding stays so
    near = round(number)
    if name != "round" and abs(number - near) <= 1e-9 * max(1.0, abs(number)):
        return float(near)
    return float(round(number, digits) if name == "round" else getattr(math, name)(number))
