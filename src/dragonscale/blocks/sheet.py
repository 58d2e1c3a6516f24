"""The blocks that an answer is laid out in.

A tone says what a text means, never how it looks: `good`, `warn`, `bad`, `key` (what to take away), `dim`
(what may be skipped). Words in backticks are commands or names to type.

A block is `brief` where the short answer of a terminal has it, and `explained` where only `--explain`, notebooks and
pages do. A line of the summary may have a shorter text for the short answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dragonscale.physics.units import render

# Levels of a block: in the short answer too, or only where everything is explained.
BRIEF, EXPLAINED = "brief", "explained"


@dataclass(frozen=True)
class Title:
    """What the answer is about; `aside` is the question as it was read (`brief`: as the short answer repeats it; empty:
    the same). `verdict` answers it in a line and stands first, in a tone."""

    text: str
    aside: str = ""
    verdict: str = ""
    tone: str = ""
    brief: str = ""


@dataclass(frozen=True)
class FactLine:
    """A line of the summary: `step  4.1 s expected (3.8 to 4.6 s)`. `brief` is what the short answer says in its
    place; empty: the same."""

    label: str
    text: str
    tone: str = ""
    brief: str = ""
    level: str = BRIEF


@dataclass(frozen=True)
class Facts:
    rows: tuple[FactLine, ...]
    level: str = BRIEF


@dataclass(frozen=True)
class BarPart:
    """A stretch of a bar, and its line in the legend: `text` is its amount, `note` what else is to say of it."""

    name: str
    value: float
    text: str
    note: str = ""


@dataclass(frozen=True)
class StackedBar:
    """A bar of parts against a total (a limit that may be passed). `legend` lists the parts under it, in the
    order of the stack: `list` a line for each with its share, `line` side by side, `none` not at all."""

    label: str
    parts: tuple[BarPart, ...]
    total: float
    text: str
    legend: str = "list"
    tone: str = ""
    level: str = BRIEF


@dataclass(frozen=True)
class Column:
    """A column of a table. `keep`: where the width is short, columns of a lower number go first (9: never).
    `bar`: its cells are shares between 0 and 1, drawn. `wrap`: its text may take several lines."""

    title: str
    right: bool = False
    keep: int = 9
    wrap: bool = False
    bar: bool = False
    tone: str = ""


@dataclass(frozen=True)
class Grid:
    """A table. The short answer has its first `brief_rows` without title and foot (0: all of it)."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    foot: str = ""
    level: str = BRIEF
    brief_rows: int = 0


@dataclass(frozen=True)
class Prose:
    """A sentence or two."""

    text: str
    tone: str = ""
    level: str = BRIEF


@dataclass(frozen=True)
class Verbatim:
    """Lines to be left as they are: a formula, a drawing of the mesh."""

    text: str
    level: str = BRIEF


@dataclass(frozen=True)
class NextStep:
    """What to type next, and why."""

    text: str
    why: str = ""


Block = Title | Facts | StackedBar | Grid | Prose | Verbatim | NextStep


@dataclass(frozen=True)
class Sheet:
    """The blocks of an answer, in order."""

    blocks: tuple[Block, ...]

    def brief(self) -> "Sheet":
        """The short answer: the blocks of that level, with the shorter texts of their lines.

        >>> cost = FactLine("cost", "$3 in all, $2 of it chips", brief="$3")
        >>> [block.rows[0].text for block in Sheet((Facts((cost,)), Prose("why", "", EXPLAINED))).brief().blocks]
        ['$3']
        """
        blocks: list[Block] = []
        for block in self.blocks:
            if getattr(block, "level", BRIEF) == EXPLAINED:
                continue
            if isinstance(block, Title):
                block = replace(block, aside=block.brief or block.aside, brief="")
            if isinstance(block, Grid) and block.brief_rows:
                block = replace(block, rows=block.rows[: block.brief_rows], title="", foot="")
            if isinstance(block, Facts):
                rows = [row for row in block.rows if row.level == BRIEF]
                block = Facts(tuple(replace(row, text=row.brief or row.text, brief="") for row in rows))
            blocks.append(block)
        return Sheet(tuple(blocks))


Leveled = TypeVar("Leveled", bound="Block | FactLine")


def explained(block: Leveled) -> Leveled:
    """A block, or a line of a summary, that the short answer leaves out."""
    return replace(block, level=EXPLAINED)


def sheet(*blocks: Block | None) -> Sheet:
    """A sheet of these blocks; those that are None or have no text and no rows are left out.

    >>> len(sheet(Title("a"), None, Prose("b"), Prose("")).blocks)
    2
    """
    return Sheet(tuple(block for block in blocks if block is not None and not _is_empty(block)))


def _is_empty(block: Block) -> bool:
    """Whether there is nothing to show."""
    if isinstance(block, Grid | Facts):
        return not block.rows
    return isinstance(block, Prose | Verbatim | NextStep) and not block.text


def facts(*rows: FactLine | tuple[str, str] | tuple[str, str, str] | None) -> Facts:
    """Facts from lines or (label, text[, tone]); rows that are None or empty are left out.

    >>> [row.label for row in facts(("step", "4.1s"), None, ("note", "")).rows]
    ['step']
    """
    lines = [row if isinstance(row, FactLine) else FactLine(*row) for row in rows if row is not None]
    return Facts(tuple(line for line in lines if line.text))


def table(columns: Sequence[str | Column], rows: Iterable[Sequence[Any]], title: str = "", foot: str = "") -> Grid:
    """A table of cells; a column whose cells are all numbers is set flush right.

    >>> [column.right for column in table(["chip", "HBM"], [["v5e", 16]]).columns]
    [False, True]
    """
    cells = tuple(tuple(row) for row in rows)
    described = []
    for index, column in enumerate(columns):
        if isinstance(column, str):
            values = [row[index] for row in cells if row[index] not in (None, "")]
            right = bool(values) and all(isinstance(value, int | float) for value in values)
            column = Column(column, right=right)
        described.append(column)
    return Grid(tuple(described), cells, title, foot)


def records(
    rows: Sequence[Any],
    columns: Mapping[str, Any],
    title: str = "",
    foot: str = "",
    how: Mapping[str, Mapping[str, Any]] | None = None,
) -> Grid:
    """A table of records: each column's title, and a field or a function of the record, alone or in a tuple with
    the dimension to print it in ("" for text that should stand flush right). `how` gives columns further words
    by their titles: `{"plan": {"wrap": True}}`.

    >>> from types import SimpleNamespace as Row
    >>> records([Row(name="v5e", hbm=16e9)], {"chip": "name", "HBM": ("hbm", "bytes")}).rows
    (('v5e', '16GB'),)
    """

    def shown(row: Any, column: Any) -> Any:
        if isinstance(column, tuple):
            return amount(shown(row, column[0]), column[1])
        return column(row) if isinstance(column, Callable) else getattr(row, column)

    cells = [[shown(row, column) for column in columns.values()] for row in rows]
    columns_made = []
    for index, (name, column) in enumerate(columns.items()):
        number = isinstance(column, tuple) or any(isinstance(row[index], int) for row in cells[:1])
        options: dict[str, Any] = {"right": number} | dict((how or {}).get(name, {}))
        columns_made.append(Column(name, **options))
    return table(columns_made, cells, title, foot)


def signed_percent(change: float, digits: int = 0) -> str:
    """A change in percent with its sign; empty where that rounds to nothing.

    >>> signed_percent(0.183), signed_percent(-0.002), signed_percent(-0.055, 1), signed_percent(0.0, 1)
    ('+18%', '', '-5.5%', '')
    """
    text = f"{change:+.{digits}%}"
    return text if any(digit in text for digit in "123456789") else ""


def amount(value: Any, dimension: str) -> str:
    """A quantity with its unit; text (a formula, a word) as it is; a dash for what is not known.

    >>> amount(0.0125, "s"), amount(None, "s"), amount("no fit", "s")
    ('12.5ms', '–', 'no fit')
    """
    if value is None:
        return "–"
    return value if isinstance(value, str) or not dimension else render(float(value), dimension)


def several(count: int, noun: str) -> str:
    """A number of things, one of them without an s.

    >>> several(1, "chip"), several(2048, "chip")
    ('1 chip', '2,048 chips')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def cell_text(value: Any) -> str:
    """A cell as a reader sees it.

    >>> cell_text(12345), cell_text(None), cell_text("fsdp8")
    ('12,345', '–', 'fsdp8')
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is None:
        return "–"
    return f"{value:,}" if whole else str(value)


def folded(parts: Sequence[BarPart], dimension: str, max_parts: int = 8) -> tuple[BarPart, ...]:
    """At most so many parts, so that each has a look of its own: the smallest become the rest.

    >>> [part.name for part in folded([BarPart(name, 1.0, "1s") for name in "abc"], "s", 2)]
    ['a', 'the rest']
    """
    if len(parts) <= max_parts:
        return tuple(parts)
    large = set(sorted(range(len(parts)), key=lambda index: -parts[index].value)[: max_parts - 1])
    rest = sum(part.value for index, part in enumerate(parts) if index not in large)
    shown = [part for index, part in enumerate(parts) if index in large]
    return (*shown, BarPart("the rest", rest, amount(rest, dimension)))
