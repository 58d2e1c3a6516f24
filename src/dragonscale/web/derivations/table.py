"""Numbers of a view derived by its table (`numbers.toml`): what each is called, what it is put together from, its
formula over letters, how sure it is and where it comes from.

A row of the table names values by where they stand (`one.step_s`), and texts are templates over the same names, in
which a unit renders a quantity (`{one.step_s:s}`). What is made of the lines of a ledger is a method of the view's
class, which the table names too: what a path ends at is called where it is one.
"""

import contextlib
import functools
import string
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.explain.formulas import LETTER, FormulaLine, letters_in
from dragonscale.errors import unknown
from dragonscale.physics.units import UNITS, render
from dragonscale.tables import Strict
from dragonscale.web.amounts import Amount, amount, count, share
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, letter, row, step


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


def _value(at_path: Any) -> Any:
    return at_path() if callable(at_path) else at_path


class _Template(string.Formatter):
    """Texts in which a unit is a format: `{one.step_s:s}`."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        at_path, first = super().get_field(field_name, args, kwargs)
        return _value(at_path), first

    def format_field(self, value: Any, format_spec: str) -> str:
        return render(value, format_spec) if format_spec in UNITS else super().format_field(value, format_spec)


_TEMPLATE = _Template()


def shown(value: float | str | None, unit: str, why: str = "", text: str = "") -> Amount:
    """A number in the way of its unit: whole counts, shares, FLOPs per byte; `size` is a count in short. A text is a
    formula whose sizes are open."""
    if isinstance(value, str):
        return amount(None, unit, text=value)
    if value is None or text:
        return amount(value, unit, why, text)
    if unit in ("count", "share"):
        return (count if unit == "count" else share)(value, why)
    if unit == "FLOP/byte":
        return amount(value, unit, why, f"{value:,.4g} FLOP/byte")
    return amount(value, "count" if unit == "size" else unit, why)


class Numbers:
    """The numbers of one answer. A subclass names its table, gives the objects that paths start from, and for numbers
    with a part in their id (`term:mlp matmuls`) the object of that part, which is `it`."""

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

    def facts(self, number: str) -> Piece:
        """The half of a derivation that is there at once."""
        return self.derived(number).facts()

    def formula(self, number: str) -> Piece:
        """The half that takes algebra."""
        return self.derived(number).formula()

    def crossovers(self, number: str) -> list[str]:  # noqa: ARG002 - most numbers have none
        """Where the answer changes, in words."""
        return []

    def derived(self, number: str) -> "Derived":
        """The row of the table that a number's id names, with the objects it is about."""
        table, parts, key = self.table, self.parts(), self.key(number)
        kind, parted, rest = key.partition(":")
        if key in table.numbers and key not in parts:
            return Derived(number, table.numbers[key], table.letters, self.names())
        if kind not in parts or not parted:
            every = [f"{name}:…" if name in parts else name for name in table.numbers]
            raise unknown(self.what, number, [number.removesuffix(key) + name for name in every])
        return Derived(number, table.numbers[kind], table.letters, self.names() | {"it": parts[kind](rest)})


@dataclass(frozen=True)
class Derived:
    """A row of a table with the objects that it is about."""

    number: str
    spec: NumberSpec
    letters: Mapping[str, LetterSpec]
    names: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """What stands at a path."""
        first, _, rest = path.partition(".")
        return _value(attrgetter(rest)(self.names[first]) if rest else self.names[first])

    def told(self, text: str, **more: Any) -> str:
        return _TEMPLATE.vformat(text, (), {**self.names, **more}) if "{" in text else text

    def _shown(self, value: Any, unit: str, why: str, text: str) -> Amount:
        text = self.told(text, value=value) if value is not None else ""
        return shown(value if value is None or isinstance(value, str) else float(value), unit, why, text)

    def facts(self) -> Piece:
        spec = self.spec
        number = self._shown(self.at(spec.value), self.told(spec.unit), self.number, spec.text)
        compared, sources = self.at(spec.compared) if spec.compared else (None, [])
        rows = self._rows()
        steps = [step(spec.step, rows, number if spec.total else None, self.told(spec.about))] if rows else []
        steps += self.at(spec.tables) if spec.tables else []
        return facts(
            self.told(spec.title),
            self.told(spec.sentence),
            number,
            steps=steps,
            compared=compared,
            error=self.at(spec.error) if spec.error else "",
            sources=[*sources, *self._sources()],
            docs=self.at(spec.docs) if isinstance(spec.docs, str) else spec.docs,
            more=spec.more,
        )

    def _rows(self) -> list[Piece]:
        if isinstance(self.spec.rows, str):
            return self.at(self.spec.rows)
        values = [(one, self._row_value(one.value)) for one in self.spec.rows]
        return [
            row(one.name, self._shown(value, one.unit, self.told(one.why), one.text), self.told(one.note))
            for one, value in values
            if not (self.spec.known and value is None)
        ]

    def _row_value(self, path: str) -> Any:
        """Of records of several kinds, some have no such field."""
        with contextlib.suppress(AttributeError) if self.spec.known else contextlib.nullcontext():
            return self.at(path)
        return None

    def _sources(self) -> list[Piece]:
        """The sources of the chip's facts, then the number's own."""
        paths, own = (self.at(it) if isinstance(it, str) else it for it in (self.spec.chip, self.spec.sources))
        of_chip = chip_sources(self.at("of.chip"), map(self.told, paths)) if paths else []
        return [*of_chip, *({"text": self.told(text), "url": ""} if isinstance(text, str) else text for text in own)]

    def formula(self) -> Piece:
        if self.spec.lettered:
            return self.at(self.spec.lettered)
        values = [(one, self.at(one.value)) for one in self.spec.formulas]
        lines = [self._line(one, float(value)) for one, value in values if value is not None]
        notes = [*map(self.told, self.spec.notes)]
        notes += [self.spec.otherwise] if self.spec.otherwise and not lines else []
        used = [name for line in lines for name in letters_in(line.formula)]
        return formulas(lines, (self._letter(name) for name in dict.fromkeys(used)), notes=notes)

    def _line(self, spec: FormulaSpec, value: float) -> FormulaLine:
        """The formula, and the same with its letters' numbers in."""
        known = {name: self.at(self.letters[name].value) for name in letters_in(spec.formula)}
        numbers = {name: f"{float(number):.6g}" for name, number in known.items()}
        put_in = LETTER.sub(lambda name: numbers.get(name[0], name[0]), spec.formula)
        text = self.told(spec.text) or (f"{value:,.4g}" if spec.unit == "count" else render(value, spec.unit, 4))
        return FormulaLine(spec.name, spec.formula, put_in, text, value, spec.unit)

    def _letter(self, name: str) -> Piece:
        spec = self.letters[name]
        value = float(self.at(spec.value))
        return letter(name, render(value, spec.unit) if spec.unit else f"{value:,.6g}", spec.what, spec.origin)
