"""Numbers of a view derived by its table (`numbers.toml`): what each is called, what it is put together from, its
formula over letters, how sure it is and where it comes from.

A row of the table names values by where they stand (`one.step_s`), and texts are templates over the same names, in
which a unit renders a quantity (`{one.step_s:s}`). What is made of the lines of a ledger is a method of the view's
class, which the table names too: what a path ends at is called where it is one.
"""

import functools
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.amounts import Amount, amount, count, share
from dragonscale.commands.explain.formulas import LETTER, FormulaLine, letters_in
from dragonscale.commands.explain.numbers.records import DerivationStep, LineTable, NumberFacts, NumberFormulas, Part
from dragonscale.errors import unknown
from dragonscale.physics.provenance import Citation, fact_sources
from dragonscale.physics.units import UNITS, render
from dragonscale.plan.letter_meanings import Letter
from dragonscale.tables import Strict


class RowSpec(Strict, frozen=True, array_like=True):
    """A value beside its name; `why` is the id of its own derivation."""

    name: str
    value: str
    unit: str = "count"
    why: str = ""
    note: str = ""
    text: str = ""


class FormulaSpec(Strict, frozen=True, array_like=True):
    """A formula over letters of the view's table, and the value that it gives."""

    name: str
    formula: str
    value: str
    unit: str = "count"
    text: str = ""


class LetterSpec(Strict, frozen=True, array_like=True):
    """What a letter stands for."""

    value: str
    what: str
    unit: str = ""
    origin: str = ""


class NumberSpec(Strict, frozen=True):
    """A number: `rows` are given or named, `tables` and `compared` and `lettered` name what is made of a ledger."""

    title: str
    sentence: str
    value: str
    docs: tuple[str, str] | str
    unit: str = "count"
    text: str = ""
    step: str = "Put together from"
    rows: tuple[RowSpec, ...] | str = ()
    known: bool = False
    """Rows without a value are left out."""
    total: bool = True
    about: str = ""
    tables: str = ""
    compared: str = ""
    error: str = ""
    chip: tuple[str, ...] | str = ()
    sources: tuple[str, ...] | str = ()
    more: bool = True
    formulas: tuple[FormulaSpec, ...] = ()
    lettered: str = ""
    notes: tuple[str, ...] = ()
    otherwise: str = ""
    """What is said where there is no formula."""
    explained: str = ""
    """How the line of `dscale explain` begins that gives it."""


class ViewTable(Strict, frozen=True):
    """The numbers of a view, and the letters of their formulas."""

    numbers: dict[str, NumberSpec]
    letters: dict[str, LetterSpec] = {}


@functools.cache
def number_tables() -> dict[str, ViewTable]:
    """The tables by view; a view's `usual` holds for all its numbers that do not say otherwise."""
    raw: dict[str, Any] = tomllib.loads(Path(__file__).with_name("numbers.toml").read_text(encoding="utf-8"))
    for view in raw.values():
        usual = view.pop("usual", {})
        view["numbers"] = {name: usual | spec for name, spec in view["numbers"].items()}
    return msgspec.convert(raw, dict[str, ViewTable])


class _Template(string.Formatter):
    """Texts in which a unit is a format: `{one.step_s:s}`."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value, first = super().get_field(field_name, args, kwargs)
        return _called(value), first  # the pair that `string.Formatter` asks for

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in UNITS:
            return render(value, format_spec)
        return super().format_field(value, format_spec)


_TEMPLATE = _Template()


def _called(value: Any) -> Any:
    """What stands at a path; a method is called."""
    return value() if callable(value) else value


def shown(value: float | str | None, unit: str, why: str = "", text: str = "") -> Amount:
    """A number in the way of its unit: whole counts, shares, FLOPs per byte; `size` is a count in short. A text is a
    formula whose sizes are open."""
    if isinstance(value, str):
        return amount(None, unit, text=value)
    if value is None or text:
        return amount(value, unit, why, text)
    if unit == "count":
        return count(value, why)
    if unit == "share":
        return share(value, why)
    if unit == "FLOP/byte":
        return amount(value, unit, why, f"{value:,.4g} FLOP/byte")
    # a size is a count that is written short: 8.03B, where a count is written in full
    return amount(value, unit.replace("size", "count"), why)


class Numbers:
    """The numbers of one answer. A subclass names its table, gives the objects that paths start from, and for numbers
    with a part in their id (`term:mlp matmuls`) the object of that part, which paths call `it`."""

    view: ClassVar[str]
    what: ClassVar[str]

    @property
    def table(self) -> ViewTable:
        """The table of the view."""
        return number_tables()[self.view]

    def names(self) -> dict[str, Any]:
        """What the paths of the table start from."""
        raise NotImplementedError

    def key(self, number: str) -> str:
        """The number's name in the table."""
        return number

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        """The object of a part by its name, for each kind of number that has parts."""
        return {}

    def facts(self, number: str) -> NumberFacts:
        """The half of a derivation that is there at once."""
        return self.derived(number).facts()

    def formula(self, number: str) -> NumberFormulas:
        """The half that takes algebra."""
        return self.derived(number).formula()

    def crossovers(self, number: str) -> list[str]:  # noqa: ARG002 - most numbers have none
        """Where the answer changes, in words."""
        return []

    def derived(self, number: str) -> "Derived":
        """The row of the table that a number's id names, with the objects it is about."""
        table, parts, key = self.table, self.parts(), self.key(number)
        kind, colon, name = key.partition(":")
        if key in table.numbers and key not in parts:
            return Derived(number, table.numbers[key], table.letters, self.names())
        if kind in parts and colon:
            return Derived(number, table.numbers[kind], table.letters, self.names() | {"it": parts[kind](name)})
        prefix = number.removesuffix(key)
        # kinds with parts are listed as `term:…`
        raise unknown(self.what, number, [f"{prefix}{name}{':…' * (name in parts)}" for name in table.numbers])


@dataclass(frozen=True)
class Derived:
    """A row of a table with the objects that it is about."""

    number: str
    spec: NumberSpec
    letters: Mapping[str, LetterSpec]
    names: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """What stands at a path (`one.step_s`)."""
        first, _, rest = path.partition(".")
        value = self.names[first]
        if rest:
            value = attrgetter(rest)(value)
        return _called(value)

    def filled(self, template: str, **more: Any) -> str:
        """A template with its values put in."""
        if "{" not in template:  # most texts are plain, and formatting them costs more than this look
            return template
        return _TEMPLATE.vformat(template, (), {**self.names, **more})

    def facts(self) -> NumberFacts:
        """The number, what it is put together from, how sure it is, and its sources."""
        spec = self.spec
        number = self._amount(self.at(spec.value), self.filled(spec.unit), self.number, spec.text)
        steps: list[DerivationStep | LineTable] = []
        if rows := self._rows():
            steps.append(DerivationStep(spec.step, rows, number if spec.total else None, self.filled(spec.about)))
        if spec.tables:
            steps += self.at(spec.tables)
        sources, compared, error, docs = self._sources(), None, "", spec.docs
        if spec.compared:
            compared = self.at(spec.compared)
            sources = [*compared.sources, *sources]
        if spec.error:
            error = self.at(spec.error)
        if isinstance(docs, str):
            docs = self.at(docs)
        return NumberFacts(
            self.filled(spec.title),
            self.filled(spec.sentence),
            number,
            steps=steps,
            compared=compared,
            error=error,
            sources=list(dict.fromkeys(sources)),  # a source that two facts cite is listed once
            docs=docs,
            more=spec.more,
        )

    def _amount(self, value: Any, unit: str, why: str, text: str) -> Amount:
        if value is None or isinstance(value, str):
            return shown(value, unit, why)
        return shown(float(value), unit, why, self.filled(text, value=value))

    def _rows(self) -> list[Part]:
        """The parts that are named in the table, or that a method gives."""
        if isinstance(self.spec.rows, str):
            return self.at(self.spec.rows)
        rows = []
        for part in self.spec.rows:
            value = self._part_value(part.value)
            if value is not None or not self.spec.known:
                number = self._amount(value, part.unit, self.filled(part.why), part.text)
                rows.append(Part(part.name, number, self.filled(part.note)))
        return rows

    def _part_value(self, path: str) -> Any:
        """What stands at the path of a part; None where records of several kinds share a row and this one has no such
        field."""
        try:
            return self.at(path)
        except AttributeError:
            if self.spec.known:
                return None
            raise

    def _sources(self) -> list[Citation]:
        """The sources of the chip's facts, then the number's own."""
        sources: list[Citation] = []
        # paths of the chip's facts, written in the table or given by a method that it names
        paths = self._listed(self.spec.chip)
        if paths:
            sources = fact_sources(self.at("of.chip"), map(self.filled, paths))
        for source in self._listed(self.spec.sources):
            if isinstance(source, str):
                source = Citation(self.filled(source))
            sources.append(source)
        return sources

    def _listed(self, entry: tuple[str, ...] | str) -> Sequence[Any]:
        """A list of the table, or what the method gives whose path stands in its place."""
        if isinstance(entry, str):
            return self.at(entry)
        return entry

    def formula(self) -> NumberFormulas:
        """The formulas of the table with the numbers put in, or those of the ledger that `lettered` names."""
        spec = self.spec
        if spec.lettered:
            return self.at(spec.lettered)
        lines = []
        for formula in spec.formulas:
            value = self.at(formula.value)
            if value is not None:
                lines.append(self._line(formula, float(value)))
        notes = [*map(self.filled, spec.notes)]
        if spec.otherwise and not lines:
            notes.append(spec.otherwise)
        # each letter once, in the order in which the formulas use them
        used = dict.fromkeys(name for line in lines for name in letters_in(line.formula))
        return NumberFormulas(lines, [self._letter(name) for name in used], notes=notes)

    def _line(self, spec: FormulaSpec, value: float) -> FormulaLine:
        """The formula, and the same with its letters' numbers in."""
        put_in = LETTER.sub(lambda letter: f"{float(self.at(self.letters[letter[0]].value)):.6g}", spec.formula)
        text = self.filled(spec.text)
        if not text and spec.unit == "count":
            text = f"{value:,.4g}"
        elif not text:
            text = render(value, spec.unit, 4)
        return FormulaLine(spec.name, spec.formula, put_in, text, value, spec.unit)

    def _letter(self, name: str) -> Letter:
        spec = self.letters[name]
        value = float(self.at(spec.value))
        text = f"{value:,.6g}"
        if spec.unit:
            text = render(value, spec.unit)
        return Letter(name, text, spec.what, spec.origin)
