"""A number that remembers its formula.

Cost code decides as it goes: which tier of switches binds, whether heads are shared, what fits into a node. A bare
symbol cannot decide; a `Formula` can, because it has a value too. It takes part in `+ - * /`, keeps the SymPy
expression of what was done, and answers every comparison by its value. So the very functions that give a plan's numbers
give their formulas, with the branches that this plan takes.

>>> batch, width = Formula.named("B", 4096), Formula.named("D", 8192)
>>> seconds = 2 * batch * width / max(batch, 240)
>>> seconds.value, str(seconds.expr)
(16384.0, '2*D')
"""

import math
import operator
from collections.abc import Callable
from typing import Any

MOST_PARTS = 64
"""Fractions with larger denominators are written as decimals."""


def _arithmetic(operation: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[..., Any]:
    def done(self: Any, other: Any) -> Any:
        try:
            value, expr = _both(other)
        except (TypeError, ValueError):
            return NotImplemented
        if swapped:
            return Formula(operation(value, self.value), operation(expr, self.expr))
        return Formula(operation(self.value, value), operation(self.expr, expr))

    return done


def _comparison(operation: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def asked(self: Any, other: Any) -> Any:
        try:
            return operation(self.value, float(other))
        except (TypeError, ValueError):
            return NotImplemented

    return asked


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
        """What is whole already stays as it is: sizes that divide need no rounding in a formula."""
        import sympy

        whole = math.isclose(value, self.value, rel_tol=1e-12)
        return self if whole else Formula(value, getattr(sympy, name)(self.expr))

    def log2(self) -> "Formula":
        import sympy

        return Formula(math.log2(self.value), sympy.log(self.expr, 2))

    def sqrt(self) -> "Formula":
        return self**0.5

    def exp(self) -> "Formula":
        import sympy

        return Formula(math.exp(self.value), sympy.exp(self.expr))


def _both(value: Any) -> tuple[float, Any]:
    return (value.value, value.expr) if isinstance(value, Formula) else (float(value), written(value))


def written(value: Any) -> Any:
    """A plain number in a formula: whole and simple fractions exactly, others as decimals."""
    import sympy

    number = float(value)
    if number == int(number) if math.isfinite(number) else False:
        return sympy.Integer(int(number))
    top, bottom = number.as_integer_ratio() if math.isfinite(number) else (0, MOST_PARTS + 1)
    return sympy.Rational(top, bottom) if bottom <= MOST_PARTS else sympy.Float(number)


def expression(number: Any) -> Any:
    """A number's formula: its own, or itself written down."""
    return number.expr if isinstance(number, Formula) else written(number)
