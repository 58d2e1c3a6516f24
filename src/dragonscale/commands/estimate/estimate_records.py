"""The records that `dscale estimate` answers with (`--json` prints them as they are), and the paper that it is worked
out on."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.sheet import amount
from dragonscale.commands.record import Record
from dragonscale.errors import unknown
from dragonscale.models.program import Section
from dragonscale.physics.formula import Formula, expression
from dragonscale.physics.numbers import Number
from dragonscale.plan.letters import Letters, lettered_section


class EstimateLine(msgspec.Struct):
    """A quantity in its unit, the formula it comes from, and the formula with the numbers put in."""

    name: str
    value: float
    unit: str
    formula: str
    numbers: str
    group: str = ""
    note: str = ""

    @property
    def shown(self) -> str:
        """The value with its unit, as a person would say it."""
        if self.unit == "USD":
            if self.value >= 1e6:
                return f"${self.value / 1e6:,.2f}M"
            return f"${self.value:,.2f}"
        if self.unit == "FLOP" and self.value >= 1e18:
            return f"{self.value:.3g} FLOP".replace("e+", "e")
        if self.unit == "count/s":  # its name says tokens/s
            return amount(self.value, "count")
        whole = self.unit == "count" and self.value < 1e5 and self.value == int(self.value)
        if whole:
            return f"{int(self.value):,}"
        return amount(self.value, self.unit)


class EstimateReport(Record):
    """The lines in the order of the groups; `letters` is what each letter of the formulas stands for."""

    ROWS: ClassVar[str] = "lines"

    model: str
    on: str
    parameters: float
    active_parameters: float
    tokens: float
    seq: int
    context: int
    mfu: float
    lines: list[EstimateLine]
    letters: dict[str, float]
    notes: list[str]
    weights: str
    """The format of the weights that are served."""

    def line(self, name: str) -> EstimateLine:
        """The line of a name, such as `run time`."""
        for line in self.lines:
            if line.name == name:
                return line
        raise unknown("line of the estimate called", name, [line.name for line in self.lines])

    def __getitem__(self, name: str) -> float:
        """The value of a line: `estimate["training FLOPs"]`."""
        return self.line(name).value

    def find(self, name: str) -> EstimateLine | None:
        """The line of a name where the estimate has it."""
        return next((line for line in self.lines if line.name == name), None)

    def headline(self) -> str:
        parts = [f"{amount(self.parameters, 'count')} parameters"]
        for name, template in (("run time", "{} for the run"), ("decode step", "{} a decode step")):
            line = self.find(name)
            if line:
                parts += [template.format(line.shown)]
        return f"{self.model}{f' on {self.on}' if self.on else ''}: {', '.join(parts)}"


# The paper that an estimate is worked out on: letters, lines, and how a formula is written down.
#
# The functions that give the planner's numbers run here on letters (`dragonscale.physics.formula`): a line's formula is
# what they did, and can never disagree with its value.


Parts = Mapping[str, Number]

# Characters of a formula in a model's own sizes; longer ones are written as sums of parts.
LONGEST = 110


@dataclass
class Paper:
    """The lines so far, and the letters in them."""

    sections: Sequence[Section] = ()
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
        self, name: str, unit: str, sign: str, read: Callable[[Sequence[Section]], Parts], blocks: bool = False
    ) -> float:
        """Write down what is read off the model's program, or its blocks alone: in the letters of its sizes where that
        is short, else as a sum of its parts, each of which gets the letter `sign` and its name."""
        spare = Letters(dict(self.letters.values))
        parts = read([lettered(section, spare) for section in (self.sections[1:-1] if blocks else self.sections)])
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

    from dragonscale.commands.explain.formulas import formula_text

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
        if value is None:
            return match[0]
        return _tidy(f"{value:.6g}")

    return re.sub(r"(?<![\w.])[A-Za-z]\w*", number, formula)


def _tidy(text: str) -> str:
    """Powers of ten as people write them: 7e10 for 7e+10."""
    return re.sub(r"(?<=\de)\+0*", "", text)
