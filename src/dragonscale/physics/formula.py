"""A number together with the formula that it was computed by.

Cost code has branches: which tier of switches binds, whether heads are shared, what fits into a node. A bare symbol
cannot decide them; a `Formula` can, because it has a value too. It supports `+ - * /`, builds up the SymPy expression
of what was computed, and compares by its value. So the same functions that compute a plan's numbers give their
formulas, with the branches that this plan takes.

>>> batch, width = Formula.named("B", 4096), Formula.named("D", 8192)
>>> seconds = 2 * batch * width / max(batch, 240)
>>> seconds.value, str(seconds.expr)
(16384.0, '2*D')
"""

import math
import operator
from collections.abc import Callable
from typing import Any

MAX_DENOMINATOR = 64
"""Fractions with larger denominators are written as decimals."""


def _arithmetic(operation: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[..., Any]:
    """A method that applies an operator to the values and to the expressions; `swapped` for `__radd__` and the like."""

    def method(self: Any, other: Any) -> Any:
        try:
            value, expr = float(other), expression(other)
        except (TypeError, ValueError):
            return NotImplemented
        if swapped:
            return Formula(operation(value, self.value), operation(expr, self.expr))
        return Formula(operation(self.value, value), operation(self.expr, expr))

    return method


def _comparison(operation: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """A method that compares by value."""

    def method(self: Any, other: Any) -> Any:
        try:
            return operation(self.value, float(other))
        except (TypeError, ValueError):
            return NotImplemented

    return method


class Formula:
    """A value, and the expression it came from."""

    __slots__ = ("expr", "value")
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to this class

    __add__, __radd__ = _arithmetic(operator.add), _arithmetic(operator.add, swapped=True)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(operator.sub, swapped=True)
    __mul__, __rmul__ = _arithmetic(operator.mul), _arithmetic(operator.mul, swapped=True)
    __truediv__, __rtruediv__ = _arithmetic(operator.truediv), _arithmetic(operator.truediv, swapped=True)
    __pow__, __rpow__ = _arithmetic(operator.pow), _arithmetic(operator.pow, swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_comparison, (operator.lt, operator.le, operator.gt, operator.ge))
    __eq__, __ne__ = map(_comparison, (operator.eq, operator.ne))

    def __init__(self, value: Any, expr: Any) -> None:
        self.value = float(value)
        self.expr = expr

    @classmethod
    def named(cls, name: str, value: Any) -> "Formula":
        """A letter of a formula, which stands for a value."""
        import sympy

        return cls(value, sympy.Symbol(name, positive=True))

    def __repr__(self) -> str:
        return f"Formula({self.value!r}, {self.expr})"

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __neg__(self) -> "Formula":
        return Formula(-self.value, -self.expr)

    def __mod__(self, other: Any) -> float:
        return self.value % float(other)

    def __rmod__(self, other: Any) -> float:
        return float(other) % self.value

    def __ceil__(self) -> Any:
        return self._rounded(math.ceil(self.value), "ceiling")

    def __floor__(self) -> Any:
        return self._rounded(math.floor(self.value), "floor")

    def _rounded(self, value: int, name: str) -> "Formula":
        """This number rounded; one that is whole already stays as it is, without a rounding in its formula."""
        import sympy

        if math.isclose(value, self.value, rel_tol=1e-12):
            return self
        return Formula(value, getattr(sympy, name)(self.expr))

    def log2(self) -> "Formula":
        import sympy

        return Formula(math.log2(self.value), sympy.log(self.expr, 2))

    def sqrt(self) -> "Formula":
        return self**0.5

    def exp(self) -> "Formula":
        import sympy

        return Formula(math.exp(self.value), sympy.exp(self.expr))


def written(value: Any) -> Any:
    """A plain number in a formula: whole and simple fractions exactly, others as decimals."""
    import sympy

    number = float(value)
    if not math.isfinite(number):
        return sympy.Float(number)
    numerator, denominator = number.as_integer_ratio()
    if denominator == 1:
        return sympy.Integer(numerator)
    if denominator <= MAX_DENOMINATOR:
        return sympy.Rational(numerator, denominator)
    return sympy.Float(number)


def expression(number: Any) -> Any:
    """The formula of a number, or the plain number as a constant of one."""
    if isinstance(number, Formula):
        return number.expr
    return written(number)
