"""Arithmetic on three kinds of number: floats, NumPy arrays and SymPy symbols.

Cost code is written once with `+ - * /` and the functions of this module. Given floats it returns the cost of one plan;
given NumPy arrays, of a whole space of plans in one call; given SymPy symbols, a formula that a person can read,
differentiate and solve. Neither NumPy nor SymPy is imported here until a value of theirs arrives.

>>> maximum(2, 3.0)
3.0
>>> import numpy, sympy
>>> maximum(numpy.array([1, 5]), 3).tolist()
[3, 5]
>>> maximum(sympy.Symbol("B", positive=True), 240)
Max(240, B)
"""

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Number: TypeAlias = Any
"""A float, a NumPy array, a SymPy expression, or a value with its formula (`dragonscale.physics.formula`): whatever
supports the operators `+ - * /`."""


@functools.lru_cache(maxsize=256)
def _module(kind: type) -> Any:
    """The module that computes with values of a class: sympy, numpy or None for plain floats."""
    # A class of these modules exists only once they are imported, so the answer for a class never changes.
    numpy, sympy = sys.modules.get("numpy"), sys.modules.get("sympy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return numpy
    if sympy is not None and issubclass(kind, sympy.Basic):
        return sympy
    return None


def is_symbolic(value: Number) -> bool:
    """Whether a value is a SymPy expression (without importing SymPy)."""
    module = _module(type(value))
    return module is not None and module.__name__ == "sympy"


def is_array(value: Number) -> bool:
    """Whether a value is a NumPy array (without importing NumPy)."""
    module = _module(type(value))
    return module is not None and module.__name__ == "numpy"


def _domain(values: tuple[Number, ...]) -> Any:
    """The module that computes with these values: sympy, numpy or None for plain floats."""
    for value in values:
        module = _module(type(value))
        if module is not None:
            return module
    return None


def _extreme(values: tuple[Number, ...], plain: Callable[[Any], Number], symbolic: str, by_element: str) -> Number:
    domain = _domain(values)
    if domain is None:
        return plain(values)
    if domain.__name__ == "sympy":
        return getattr(domain, symbolic)(*values)
    return functools.reduce(getattr(domain, by_element), values)


def maximum(first: Number, *rest: Number) -> Number:
    """The largest value, element by element."""
    return _extreme((first, *rest), max, "Max", "maximum")


def minimum(first: Number, *rest: Number) -> Number:
    """The smallest value, element by element."""
    return _extreme((first, *rest), min, "Min", "minimum")


def ceil(value: Number) -> Number:
    """The value rounded up to a whole number."""
    domain = _domain((value,))
    if domain is None:
        return math.ceil(value)
    if domain.__name__ == "sympy":
        return domain.ceiling(value)
    return domain.ceil(value)


def floor(value: Number) -> Number:
    """The value rounded down to a whole number."""
    domain = _domain((value,))
    if domain is None:
        return math.floor(value)
    return domain.floor(value)


def _function(name: str, value: Number) -> Number:
    """A function by name, of NumPy, SymPy, the value's class (`Formula` has methods) or the standard library."""
    domain = _domain((value,))
    if domain is None:
        if hasattr(value, name):
            return getattr(value, name)()
        return getattr(math, name)(value)
    if name == "log2" and domain.__name__ == "sympy":
        return domain.log(value, 2)
    return getattr(domain, name)(value)


def sqrt(value: Number) -> Number:
    """The square root."""
    return _function("sqrt", value)


def exp(value: Number) -> Number:
    """The exponential."""
    return _function("exp", value)


def log2(value: Number) -> Number:
    """The logarithm to base two."""
    return _function("log2", value)


def where(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds and `no` elsewhere; a SymPy relation gives a `Piecewise`.

    >>> where(True, 1, 2)
    1
    """
    domain = _domain((condition, yes, no))
    if domain is None:
        return yes if condition else no
    if domain.__name__ == "sympy":
        return domain.Piecewise((yes, condition), (no, True))
    return domain.where(condition, yes, no)


def ceil_to(value: Number, multiple: Number) -> Number:
    """The value rounded up to a multiple, as hardware pads it to its tiles.

    >>> ceil_to(100, 128)
    128
    """
    return ceil(value / multiple) * multiple


def product(values: Any) -> Number:
    """The product of the values, of whatever kind; 1 without any."""
    factors = iter(values)
    result: Number = next(factors, 1)
    for factor in factors:
        result = result * factor
    return result


def first_number(value: Number) -> float:
    """A number as a float: itself, or the first element of an array (one of many plans)."""
    if is_array(value):
        value = value.ravel()[0]
    return float(value)


def widened(value: Number) -> Number:
    """An array of integers as floats, so that products of large sizes cannot overflow; other values unchanged."""
    if is_array(value) and value.dtype.kind in "iu":
        return value.astype(float)
    return value


def alone(values: dict[str, Number]) -> dict[str, Number]:
    """Arrays of one number as plain numbers, with which the same formulas take half the time."""
    return {name: value.item() if is_array(value) else value for name, value in values.items()}
