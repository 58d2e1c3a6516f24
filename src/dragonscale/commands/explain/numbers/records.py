"""The parts of a derivation as records: what a number is put together from, its formulas, its sources.

A derivation has two halves. `NumberFacts` are there at once. `NumberFormulas` take algebra: the plan's own ledger over
letters, the numbers put in, and what each letter stands for. Nothing is worked out here that the planner has not worked
out already.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragonscale.blocks.amounts import Amount, amount
from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.price_rows import PriceRow
from dragonscale.physics.numbers import Number
from dragonscale.physics.provenance import Citation, ProfileBasis
from dragonscale.plan.letter_meanings import Letter

_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Part:
    """A part of a sum, or a number put into a formula; `note` stands beside it."""

    name: str
    number: Amount
    note: str = ""


@dataclass(frozen=True)
class DerivationStep:
    """One step of how a number is put together: parts, and what they add up to."""

    title: str
    rows: Sequence[Part]
    total: Amount | None = None
    text: str = ""


@dataclass(frozen=True)
class LineTable:
    """Lines of a ledger as texts and amounts by column; `text` says what is left out."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[object]]
    text: str = ""
    total: Amount | None = None


@dataclass(frozen=True)
class Comparison:
    """Bound and expectation in rows, why they differ, and the sources of that."""

    text: str
    sources: Sequence[Citation]
    rows: Sequence[Part] = ()

    @classmethod
    def of(cls, measured: ProfileBasis, rows: Sequence[Part] = (), more: str = "") -> "Comparison":
        """What measurements say of the numbers in the rows, and `more` after it."""
        return cls(f"{measured.text}{more}", measured.sources, rows)


@dataclass(frozen=True)
class NumberFacts:
    """The half of a derivation that is there at once; `docs` are a page of the documentation and a place on it, `more`
    says that formulas follow."""

    title: str
    sentence: str
    number: Amount
    steps: Sequence[DerivationStep | LineTable] = ()
    compared: Comparison | None = None
    error: str = ""
    sources: Sequence[Citation] = ()
    docs: tuple[str, str] | None = None
    more: bool = True


@dataclass(frozen=True)
class NumberFormulas:
    """The half that takes algebra: formulas with the numbers put in, their letters, where the answer changes."""

    lines: Sequence[FormulaLine] = ()
    letters: Sequence[Letter] = ()
    crossovers: Sequence[str] = ()
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, lines: Iterable[FormulaLine], letters: Iterable[Letter], otherwise: str = "") -> "NumberFormulas":
        """Lines with those of the letters that occur in them; `otherwise` is said where there are no lines."""
        formula_lines = tuple(lines)
        used = {name for line in formula_lines for name in _NAME.findall(line.formula)}
        notes = (otherwise,) if otherwise and not formula_lines else ()
        return cls(formula_lines, tuple(letter for letter in letters if letter.letter in used), notes=notes)


class Derivation(Protocol):
    """What derives the numbers of an answer by their ids."""

    def facts(self, number: str) -> NumberFacts: ...

    def formula(self, number: str) -> NumberFormulas: ...

    def crossovers(self, number: str) -> list[str]: ...


def term_rows(kind: str, terms: Iterable[tuple[str, Number]]) -> list[Part]:
    """Terms that take any seconds, each with the id of its own derivation (`term:mlp matmuls`)."""
    rows: list[Part] = []
    for name, seconds in terms:
        if float(seconds) > 0:
            rows.append(Part(name, amount(float(seconds), "s", f"{kind}:{name}")))
    return rows


def price_text(prices: Iterable[PriceRow], chip: Chip) -> str:
    """Where the price of a chip is from; empty where it has none."""
    return next((price.text for price in prices if price.chip == chip.name), "")


def titled(name: str) -> str:
    """A term's name as a title: short names of methods in capitals.

    >>> titled("fsdp collectives"), titled("weights")
    ('FSDP collectives', 'Weights')
    """
    first, _, rest = name.partition(" ")
    capital = first.upper() if first in ("mlp", "fsdp", "kv", "hbm") else first[:1].upper() + first[1:]
    return f"{capital} {rest}".strip()


def plural(many: int, word: str) -> str:
    """A count of things.

    >>> plural(1, "line"), plural(3, "line")
    ('1 line', '3 lines')
    """
    return f"{many} {word}{'s' * (many != 1)}"
