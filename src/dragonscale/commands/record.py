"""What every answer can do: a short `repr`, a sheet for the terminal and for notebooks, a table, a chart, JSON.

An answer is a record (a msgspec `Struct`): its fields are the keys of `--json`. What it was made from stays with
it outside of those fields (`asked`), so that files, charts and the ledger can be had from the answer alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import msgspec

from dragonscale.blocks.html import html_of
from dragonscale.blocks.sheet import Prose, Sheet
from dragonscale.blocks.terminal import text_of
from dragonscale.errors import InputError, unknown

if TYPE_CHECKING:
    import pandas

    from dragonscale.blocks.charts.chart import Chart


Answered = TypeVar("Answered", bound="Record")
Value = TypeVar("Value")


class Beside(Generic[Value]):
    """An attribute that an answer carries along without making it a field: no encoder sees it, copies keep it."""

    def __init__(self, default: Value) -> None:
        self.default, self.name = default, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, answer: "Record | None", owner: type) -> Value:
        if answer is None:
            return self.default
        return _attributes(answer).get(self.name, self.default)

    def __set__(self, answer: "Record", value: Value) -> None:
        _attributes(answer)[self.name] = value


@dataclass(frozen=True)
class Face(Generic[Answered]):
    """What is made of an answer: free functions of it, bound to its class (`bind`) by the module that answers.

    So a record knows nothing of what lays it out, draws it or writes its files, and none of them is imported back.
    """

    sheet: Callable[[Answered, bool], Sheet]
    draw: "Callable[[Answered, str], Chart] | None" = None
    save: Callable[[Answered, str], str | None] | None = None
    timeline: Callable[[Answered, str], str | None] | None = None
    rows: Callable[[Answered, str], str | None] | None = None
    page: Callable[[Answered, str], str | None] | None = None
    table: Callable[[Answered, str], str | None] | None = None
    verify: "Callable[[Answered], Record] | None" = None
    ledger: Callable[[Answered], Any] | None = None


_FACES: dict[type, Face[Any]] = {}


def bind(kind: type[Answered], face: Face[Answered]) -> None:
    """Say what is made of answers of this kind."""
    _FACES[kind] = face


class Record(msgspec.Struct, dict=True):
    """The base of all answers. A subclass gives `headline`; what else it can do is its `Face`."""

    ROWS: ClassVar[str] = ""
    """The field that `to_frame` makes rows of; none: the answer itself is one row."""
    CHARTS: ClassVar[tuple[str, ...]] = ()
    """What `plot` can draw, the default first."""
    asked = Beside[Any](None)
    """The question as it was understood, where the answer came from one."""
    notes_beside = Beside[list[str]]([])
    """How the question was read, where that needs a note."""

    def headline(self) -> str:
        """The answer in a line."""
        raise NotImplementedError

    def sheet(self, detail: bool = False) -> Sheet:
        """The answer laid out; `detail` adds what stands behind it (`--explain`)."""
        return _FACES[type(self)].sheet(self, detail)

    def printed(self, detail: bool = False) -> Sheet:
        """The answer as a terminal shows it: short, or with all that stands behind it."""
        sheet = self.sheet(detail)
        return sheet if detail else sheet.brief()

    @property
    def exit_code(self) -> int:
        """What the command returns: 0 ok, 3 infeasible, 4 target missed."""
        return 0

    def came_from(self, asked: Any, notes: list[str]) -> Self:
        """The answer, which remembers what it answers and how that was read."""
        self.asked, self.notes_beside = asked, notes
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles keep the attributes beside the fields."""
        return _with_fields, (type(self), msgspec.structs.asdict(self)), dict(_attributes(self))

    def __copy__(self) -> Self:
        copied = type(self)(**msgspec.structs.asdict(self))
        _attributes(copied).update(_attributes(self))
        return copied

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain dicts and lists: what `--json` prints."""
        return msgspec.to_builtins(self)

    def rows(self) -> list[dict[str, Any]]:
        """The answer as flat rows, one for each plan, configuration or term: what `to_frame` and `--table` hold."""
        records = [self] if not self.ROWS else getattr(self, self.ROWS)
        return [_flat(msgspec.to_builtins(record)) for record in records]

    def to_frame(self) -> "pandas.DataFrame":
        """`rows` as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise InputError("A DataFrame needs pandas: pip install pandas. `.rows()` needs nothing.") from None
        return pandas.DataFrame(self.rows())

    def plot(self, kind: str = "") -> "Chart":
        """A chart of the answer; `CHARTS` names the kinds, and the first is the usual one."""
        if not self.CHARTS:
            raise InputError(f"A {type(self).__name__} has no chart.")
        chosen = kind or self.CHARTS[0]
        if chosen not in self.CHARTS:
            raise unknown("chart", chosen, self.CHARTS)
        return self.draw(chosen)

    def draw(self, kind: str) -> "Chart":
        """The chart of one of the kinds in `CHARTS`."""
        return self._can("draw", f"a chart called {kind}")(self, kind)

    def save(self, path: str) -> str | None:
        """Write what the answer recommends; returns what the command adds to `Wrote …`."""
        return self._can("save", f"a plan to save to {path}")(self, path)

    def save_timeline(self, path: str) -> str | None:
        """Write what is predicted as a timeline for ui.perfetto.dev."""
        return self._can("timeline", f"a timeline for {path}")(self, path)

    def save_rows(self, path: str) -> str | None:
        """Write the rows, as the file's ending says."""
        return self._can("rows", f"rows for {path}")(self, path)

    def save_page(self, path: str) -> str | None:
        """Write the answer as a page of its own."""
        return self._can("page", f"a page for {path}")(self, path)

    def save_table(self, path: str) -> str | None:
        """Write the answer as a table."""
        return self._can("table", f"a table for {path}")(self, path)

    def _can(self, what: str, wish: str) -> Callable[..., Any]:
        """A function of the answer's face, or a sentence where it has none."""
        function = getattr(_FACES.get(type(self)), what, None)
        if function is None:
            raise InputError(f"A {type(self).__name__} has not {wish}.")
        return function

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def __str__(self) -> str:
        return text_of(self._told().brief())

    def _repr_html_(self) -> str:
        return html_of(self._told())

    def _told(self) -> Sheet:
        """The sheet with how the question was read at its end; the command says that on stderr."""
        # a note that the answer shows itself is not repeated
        notes = [text for text in self.notes_beside if text not in getattr(self, "notes", ())]
        sheet = self.sheet()
        if notes:
            return Sheet((*sheet.blocks, Prose(" ".join(notes), "dim")))
        return sheet


def _attributes(answer: Record) -> dict[str, Any]:
    """What an answer carries beside its fields."""
    return cast("dict[str, Any]", answer.__dict__)


def shared(kind: type[msgspec.Struct], *sources: Any, **changed: Any) -> dict[str, Any]:
    """The fields of a record that domain objects have by the same names; of several objects the first counts, and
    before all of them what is given."""
    sources_by_name = {
        name: source for source in reversed(sources) for name in kind.__struct_fields__ if hasattr(source, name)
    }
    return {name: getattr(source, name) for name, source in sources_by_name.items() if name not in changed} | changed


def _with_fields(kind: type[Record], values: dict[str, Any]) -> Record:
    """A record from its fields; pickles name this function."""
    return kind(**values)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Nested dicts with their keys joined by dots; lists are left out, they are tables of their own.

    >>> _flat({"plan": {"tensor": 8}, "step_s": 1.0, "terms": []})
    {'plan.tensor': 8, 'step_s': 1.0}
    """
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            # nested names are joined by a dot
            row |= {f"{name}.{inner}": cell for inner, cell in _flat(value).items()}
        elif not isinstance(value, list):
            row[name] = value
    return row
