"""Formulas in several letters: made exact, solved for one letter, and written with readable numbers again."""

from typing import Any

from dragonscale.course.calculator.measure import TOO_LONG, checked, nodes
from dragonscale.errors import InputError


def solved(first: Any, second: Any, sign: str, unknown: str) -> tuple[list[Any], str]:
    """The values of a letter for which two formulas are equal, and the side of them on which an inequality holds."""
    import sympy

    wanted = sympy.Symbol(unknown, positive=True)
    above, below = sympy.fraction(sympy.together(exact(first) - exact(second)))
    whole = sympy.expand(above)
    above = without_factors(whole)
    if wanted not in above.free_symbols:
        raise InputError(
            f"{unknown} cancels out of the equation; open is "
            f"{', '.join(sorted(map(str, above.free_symbols))) or 'nothing'}."
        )
    try:
        poly = sympy.Poly(above, wanted)
    except sympy.PolynomialError:
        poly = None
    if poly is None or not 1 <= poly.degree() <= 2:
        raise InputError(f"The equation cannot be solved for {unknown} as a formula; give the other letters values.")
    found = [root for root in map(_shorter, _roots(poly)) if root.is_positive is not False]
    if not found:
        raise InputError(f"No value of {unknown} above zero makes both sides equal.")
    return [rounded(root) for root in found], sign if sign == "=" else _side(poly, below, sign, unknown)


def _roots(poly: Any) -> list[Any]:
    """Roots of a line or a parabola."""
    import sympy

    first, *middle, last = poly.all_coeffs()
    if not middle:
        return [-last / first]
    root = sympy.sqrt(sympy.expand(middle[0] ** 2 - 4 * first * last))
    return list(dict.fromkeys((-middle[0] + way * root) / (2 * first) for way in (-1, 1)))


def _shorter(root: Any) -> Any:
    import sympy

    # simplify draws a large number into a logarithm as its power
    plain = nodes(root) <= MOST_SIMPLIFIED and not root.has(sympy.log, sympy.exp)
    return sympy.simplify(root) if plain else sympy.together(root)


def _side(poly: Any, below: Any, sign: str, unknown: str) -> str:
    """The side of the only root above zero: that of the highest term's sign, where the sign is known of all letters
    above zero."""
    import sympy

    first, *_, last = poly.all_coeffs()
    lead = sympy.factor(first / below)
    alone = poly.degree() == 1 or sympy.factor(last / first).is_negative
    if not alone or not (lead.is_positive or lead.is_negative):
        raise InputError(
            f"On which side of a value of {unknown} it holds depends on the other letters; give them values."
        )
    greater = bool(lead.is_positive) == (sign[0] == ">")
    return (">" if greater else "<") + sign[1:]


def without_factors(above: Any) -> Any:
    """A sum without the letters that all of its terms have: they are above zero, so they cancel."""
    import sympy

    letters = sorted(above.free_symbols, key=str)
    try:
        return sympy.Poly(above, *letters).terms_gcd()[1].as_expr() if letters else above
    except sympy.PolynomialError:
        return above


MOST_PLAIN = 1000
"""Whole numbers up to here stay in a formula as they are; larger ones are divided out."""
MOST_TERMS = 2000
"""Terms that a formula may have when it is multiplied out, counted from above."""


MOST_SIMPLIFIED = 80
"""Parts of a formula up to which SymPy looks for its shortest form."""


def exact(number: Any) -> Any:
    """A formula with its decimals as fractions, so that letters cancel; one that would grow too long is refused."""
    import sympy

    formula = sympy.sympify(number)
    terms = 1.0
    for part in sympy.preorder_traversal(formula):
        if part.is_Add:
            terms *= len(part.args)
        elif isinstance(part, sympy.Pow) and part.base.is_Add and part.exp.is_number:
            terms *= len(part.base.args) ** min(abs(float(part.exp)), 64.0)
        if terms > MOST_TERMS:
            raise InputError(TOO_LONG)
    return sympy.nsimplify(formula, rational=True)


def rounded(formula: Any) -> Any:
    """A formula with its long numbers as decimals again; a number where no letter is left."""
    import sympy

    if not formula.free_symbols:
        return checked(formula)
    above, below = sympy.fraction(sympy.together(formula))
    if below.free_symbols and below.is_polynomial():
        lead = sympy.Poly(below).LC()
        if not (lead.is_Integer and abs(lead) < MOST_PLAIN):
            formula = sympy.expand(above / lead) / sympy.expand(below / lead)
    return formula.replace(
        lambda part: part.is_Rational and not (abs(part.p) < 10**6 and part.q < 1000), lambda part: sympy.Float(part, 6)
    )
