"""The formula behind a number, the numbers put in, and where the answer changes.

Explanations are made by running the very functions that computed the number, on symbols instead of floats: they can
never disagree with it. Rates stay letters (`C`, `W`, `W_leaf`), so that a formula can be read.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import sympy

from dragonscale.commands.record import Record
from dragonscale.errors import unknown
from dragonscale.physics.formula import expression
from dragonscale.physics.units import render
from dragonscale.plan.ledger import LedgerLine
from dragonscale.plan.letters import Letters

# What a line of a ledger counts, in words and in its unit.
QUANTITIES = (("flops", "FLOPs", "FLOP"), ("hbm_bytes", "bytes of HBM", "bytes"), ("wire_bytes", "bytes sent", "bytes"))
LETTER = re.compile(r"(?<![\w.])[A-Za-z]\w*(?!\w*\()")
# Whole numbers above and below a fraction bar that are still written out; others are rounded to four digits.
LONGEST = 10**5


class FormulaLine(msgspec.Struct):
    """One quantity: its formula, the formula with numbers in, the value as text, and the exact value in its unit."""

    name: str
    formula: str
    numbers: str
    value: str
    value_si: float | None = None
    unit: str = ""
    sides: str = ""
    """Of a crossover, what binds on either side of it."""


class ExpectedTerm(msgspec.Struct):
    """A term of a step from datasheet rates to what is expected: at best, through the profile, what of it the step
    waits for, and why it is not the formula's."""

    name: str
    bound_s: float
    expected_s: float
    exposed_s: float
    why: str


class Explanation(Record):
    """Formulas, the crossovers in words and (`solutions`) in numbers, and notes."""

    ROWS: ClassVar[str] = "lines"
    CHARTS: ClassVar[tuple[str, ...]] = ("times",)

    subject: str
    lines: list[FormulaLine]
    crossovers: list[str]
    notes: list[str]
    solutions: list[FormulaLine] = []
    terms: list[ExpectedTerm] = []
    """Of a step: its terms, whose exposed parts add up to it."""

    def __getitem__(self, name: str) -> FormulaLine:
        """A line, or what was solved for, by its name."""
        by_name = {line.name: line for line in (*self.lines, *self.solutions)}
        if name not in by_name:
            raise unknown("line of this explanation called", name, by_name)
        return by_name[name]

    def headline(self) -> str:
        return f"{self.subject}: {len(self.lines)} formulas"


def formula_text(expression: Any) -> str:
    """An expression as a person writes it: halves and thirds as fractions, other decimals as they are, long numbers to
    four digits.

    >>> import sympy
    >>> v = sympy.Symbol("V")
    >>> formula_text(0.875 * v), formula_text(v / 4e11), formula_text(v * 1.23456789e-7), formula_text(7.2 * v)
    ('7*V/8', 'V/4e+11', '1.235e-07*V', '7.2*V')
    """
    if not isinstance(expression, sympy.Basic):
        return str(expression)
    exact = expression.replace(lambda part: part.is_Float, _plain)
    rounded = exact.replace(lambda part: part.is_Rational and max(abs(part.p), part.q) >= LONGEST, _rounded)
    return str(rounded).replace("**", "^")


def _plain(number: Any) -> Any:
    """A decimal as a fraction of halves or thirds, or as the symbol that it is written as: 1.2 is a measured number and
    not 6/5."""
    exact = sympy.nsimplify(number, rational=True)
    # halves and thirds are exact, such as 7/8 of a ring
    whole = all(prime in (2, 3) for prime in sympy.factorint(exact.q))
    if whole or exact.q >= LONGEST:
        return exact
    return sympy.Symbol(f"{float(number):.4g}", positive=True)


def _rounded(number: Any) -> Any:
    """A symbol that prints as the number to four digits; 1/n keeps its fraction bar."""
    if abs(number.p) == 1:
        return number.p / sympy.Symbol(f"{float(number.q):.4g}", positive=True)
    return sympy.sign(number) * sympy.Symbol(f"{abs(float(number)):.4g}", positive=True)


def tidy(expression: Any) -> Any:
    """A solution without a minus sign above and below its fraction bar."""
    # numerator and denominator
    above, below = sympy.fraction(sympy.together(sympy.simplify(expression)))
    if above.could_extract_minus_sign():
        return (-above) / (-below)
    return above / below


def value_of(expression: Any, values: dict[Any, float]) -> float | None:
    """The number that a formula gives, or None while some letter has none."""
    result = sympy.sympify(expression).subs(values)
    if result.is_number:
        return float(result)
    return None


def formula_line(name: str, formula: Any, values: dict[Any, float], dimension: str) -> FormulaLine:
    """Put values into a formula; where some symbol has none, the value stays open."""
    formula = sympy.sympify(formula)
    text = with_numbers = formula_text(formula)
    # long names first: `W_leaf` before `W`
    for key, value in sorted(values.items(), key=lambda item: -len(str(item[0]))):
        with_numbers = re.sub(rf"(?<![A-Za-z0-9_]){re.escape(str(key))}(?![A-Za-z0-9_])", f"{value:.6g}", with_numbers)
    result = value_of(formula, values)
    if result is None:
        missing = ", ".join(sorted(map(str, formula.free_symbols - set(values))))
        shown = f"depends on {missing}"
    else:
        shown = render(result, dimension, digits=4)
    return FormulaLine(name, text, with_numbers, shown, result, dimension)


class Lettered:
    """Something whose numbers are formulas over letters."""

    letters: Letters

    def say(self, name: str, number: Any, unit: str) -> FormulaLine:
        """A quantity as it is for these numbers, common factors taken out."""
        values = {sympy.Symbol(letter, positive=True): value for letter, value in self.letters.values.items()}
        return formula_line(name, sympy.factor_terms(expression(number)), values, unit)

    def say_line(self, line: LedgerLine, label: str, often: str) -> Iterator[FormulaLine]:
        """What one line of a ledger counts, its bound, and how often it runs."""
        for key, label_of, unit in (*QUANTITIES, ("bound_s", "at datasheet rates", "s")):
            if float(getattr(line, key)):
                yield self.say(f"{label}, {label_of}", getattr(line, key), unit)
        yield self.say(f"{label}, {often}", line.times, "count")


def letters_in(formula: str) -> list[str]:
    """The letters of a formula in their order: names that are no functions, and no exponents of numbers.

    >>> letters_in("ceiling(N_tokens/(B*T))*t_step*1e6")
    ['N_tokens', 'B', 'T', 't_step']
    """
    return list(dict.fromkeys(LETTER.findall(formula)))


def solution_sentence(line: FormulaLine) -> str:
    """A solution as a sentence: what it is, its formula, its value."""
    shown = ""
    if line.value_si is not None and line.unit == "count":
        shown = f" = {line.value_si:,.6g}"  # the size that was solved for, with more digits than a table has
    elif line.value_si is not None:
        shown = f" = {line.value}"
    if line.sides:
        shown += f" ({line.sides})"
    if line.formula != line.value:
        return f"{line.name} = {line.formula}{shown}"
    return f"{line.name}{shown}"
