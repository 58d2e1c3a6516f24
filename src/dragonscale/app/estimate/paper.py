"""The paper that an estimate is worked out on: letters, lines, and how a formula is written down.

The functions that give the planner's numbers run here on letters (`dragonscale.physics.formula`): a line's
formula is what they did, and can never disagree with its value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.app.estimate.records import EstimateLine
from dragonscale.models.program import Section
from dragonscale.physics.formula import Formula, expression
from dragonscale.physics.numbers import Number
from dragonscale.plan.letters import Letters, lettered_section

Parts = Mapping[str, Number]

LONGEST = 110
"""Characters of a formula in a model's own sizes; longer ones are written as sums of parts."""


@dataclass
class Paper:
    """The lines so far, and the letters in them."""

    letters: Letters = field(default_factory=Letters)
    lines: list[EstimateLine] = field(default_factory=list)
    group: str = ""

    def let(self, name: str, value: float) -> Any:
        """A letter for a number that is given, or that a line above has worked out."""
        return self.letters.new(name, value)

    def write(self, name: str, number: Number, unit: str, note: str = "") -> float:
        """Write down a line; returns its value."""
        formula = formula_of(number)
        line = EstimateLine(name, float(number), unit, formula, put_in(formula, self.letters), self.group, note)
        self.lines.append(line)
        return line.value

    def count(
        self, name: str, sections: Sequence[Section], read: Callable[[Sequence[Section]], Parts], unit: str, sign: str
    ) -> float:
        """Write down what is read off a program: in the letters of its sizes where that is short, else as a sum
        of its parts, each of which gets the letter `sign` and its name."""
        spare = Letters(dict(self.letters.values))
        parts = read([lettered(section, spare) for section in sections])
        formula = formula_of(sum(parts.values()))
        if len(formula) <= LONGEST:
            self.letters.values.update(spare.values)
            return self.write(name, sum(parts.values()), unit)
        return self.write(name, sum(self.let(f"{sign}_{part}", float(size)) for part, size in parts.items()), unit)


def lettered(section: Section, letters: Letters) -> Section:
    """A section with letters for its dims and for how often it comes."""
    many: Any = letters.new("L", section.repeat) if section.repeat > 1 else 1
    return replace(lettered_section(section, letters), repeat=many)


def formula_of(number: Number) -> str:
    """The formula of a number as a person writes it; common factors stand before the brackets."""
    import sympy

    from dragonscale.app.explain.formulas import formula_text

    if not isinstance(number, Formula):
        return _tidy(formula_text(expression(number)))
    terms = sympy.expand(number.expr)
    layers = sorted((letter for letter in terms.free_symbols if re.fullmatch(r"L\d*", str(letter))), key=str)
    return _tidy(formula_text(sympy.factor_terms(sympy.collect(terms, layers))))


def put_in(formula: str, letters: Letters) -> str:
    """A formula with the numbers of its letters.

    >>> put_in("6*P*tokens", Letters({"P": 70e9, "tokens": 15e12}))
    '6*7e10*1.5e13'
    """

    def number(match: re.Match[str]) -> str:
        value = letters.values.get(match[0])
        return match[0] if value is None else _tidy(f"{value:.6g}")

    return re.sub(r"(?<![\w.])[A-Za-z]\w*", number, formula)


def _tidy(text: str) -> str:
    """Powers of ten as people write them: 7e10 for 7e+10."""
    return re.sub(r"(?<=\de)\+0*", "", text)
