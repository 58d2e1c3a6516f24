"""Files of measurements: CSV, plain or gzipped, whose columns tell in which form they state a row.

A row becomes something that can be predicted, or a reason why it cannot (`Skip`); nothing is
guessed. Typed files have one explicit column for every setting and need no reading of remarks;
`tools.convert_measured` writes them."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.tables import read_regular

Row = dict[str, str]
A = TypeVar("A")
T = TypeVar("T")
MAX_CSV_BYTES = 100_000_000
LEAST, MOST = 1e-15, 1e18
"""Between these lies everything that is measured: seconds, bytes, counts and rates."""


class Skip(Exception):
    """A row that cannot be scored; the message is the reason."""


def skip_if(lacking: object, reason: str) -> None:
    """Leave a row out for a reason, where something is wrong with it."""
    if lacking:
        raise Skip(reason)


@dataclass(frozen=True)
class Form(Generic[T]):
    """Columns that a file may have, and what reads its rows; a row comes with the line it stands
    in."""

    columns: Sequence[str]
    read: Callable[[Row, int], T]


def typed(struct: type[T], columns: Sequence[str]) -> Form[T]:
    """The form of files with a column for every field of a record, told by some of its columns."""

    def read(row: Row, place: int) -> T:
        stated = {name: cell for name, cell in row.items() if cell}
        try:
            record = msgspec.convert({"id": f"row {place}"} | stated, struct, strict=False)
        except msgspec.ValidationError as error:
            raise Skip(f"not a typed row: {error}") from None
        for field in msgspec.structs.fields(struct):  # pyright: ignore[reportArgumentType]  all are Structs
            value = getattr(record, field.name)
            stated = isinstance(value, float) and field.required  # what was measured is not nothing
            if isinstance(value, int | float) and not isinstance(value, bool) and (value or stated):
                skip_if(number(str(value)) is None, f"{field.name} is no number that anything measured has")
        return record

    return Form(columns, read)


def read_measured(path: str | Path, kind: str, forms: Sequence[Form[T]]) -> tuple[list[T], list[str]]:
    """What the rows of a file say, and a reason for each row left out."""
    header, rows = read_table(path)
    form = next((form for form in forms if set(form.columns) <= set(header)), None)
    if form is None:
        wanted = max(forms, key=lambda form: len(set(form.columns) & set(header))).columns
        missing = [name for name in wanted if name not in header]
        lacks = f"has no column {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}"
        raise InputError(f"The file {shorten(str(path))} {lacks}; measured {kind} need {', '.join(wanted)}.")
    if not rows:
        raise InputError(f"The file {shorten(str(path))} has column names but no rows.")
    reasons: list[str] = []
    records = attempt(enumerate(rows, start=2), lambda placed: form.read(placed[1], placed[0]), reasons)
    return [record for _, record in records], reasons


def read_cases(
    path: str | Path, kind: str, forms: Sequence[Form[A]], build: Callable[[A], T]
) -> tuple[list[T], list[str]]:
    """What `build` makes of the rows of a file, and a reason for each row left out."""
    rows, reasons = read_measured(path, kind, forms)
    return [case for _, case in attempt(rows, build, reasons)], reasons


def attempt(given: Iterable[A], do: Callable[[A], T], reasons: list[str]) -> list[tuple[A, T]]:
    """Each thing with what `do` makes of it; where it cannot, the reason is added to `reasons`."""
    found = []
    for one in given:
        try:
            found.append((one, do(one)))
        except Skip as reason:
            reasons.append(str(reason))
        except InputError as error:
            reasons.append(f"not a possible run: {error}")
        except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
            # One bad row must not lose a file of thousands.
            reasons.append(f"not a possible run: no answer for its numbers ({type(error).__name__})")
    return found


def sound(seconds: Any) -> float:
    """A prediction that can be scored: a row whose numbers are beyond all models is left out.

    >>> sound(2)
    2.0
    """
    value = float(seconds)
    skip_if(not LEAST <= value <= MOST, "the prediction is no number that anything measured has")
    return value


def read_table(path: str | Path) -> tuple[list[str], list[Row]]:
    """The columns and rows of a CSV file, every cell as stripped text, or one sentence about why
    not."""
    file, shown = Path(path), shorten(str(path))
    try:
        content = read_regular(file, "File of measurements", MAX_CSV_BYTES)
        content = _unzipped(content, shown) if file.suffix == ".gz" else content
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        header = [name.strip() for name in next(lines, [])]
        cells = [line for line in lines if any(cell.strip() for cell in line)]
    except UnicodeDecodeError:
        raise InputError(f"The file {shown} is not text; give a CSV file of measurements.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"The file {shown} is not gzipped; drop the .gz or compress it again.") from None
    except OSError as error:
        raise InputError(f"The file {shown} cannot be read: {error.strerror}.") from None
    except csv.Error as error:
        raise InputError(f"The file {shown} is not CSV: {error}.") from None
    if not any(header):
        raise InputError(f"The file {shown} is empty; give a CSV file of measurements with a line of column names.")
    blank = [""] * len(header)
    return header, [dict(zip(header, [cell.strip() for cell in line] + blank, strict=False)) for line in cells]


def _unzipped(content: bytes, shown: str) -> bytes:
    """What a gzipped file holds, if it is not far more than a file of measurements can."""
    with gzip.open(io.BytesIO(content)) as file:
        found = file.read(MAX_CSV_BYTES + 1)
    if len(found) > MAX_CSV_BYTES:
        raise InputError(f"The file {shown} is larger than {MAX_CSV_BYTES // 10**6} MB; split it into parts.")
    return found


def number(cell: str | None) -> float | None:
    """A cell as a positive number of a size that anything measured has, or None."""
    try:
        value = float((cell or "").replace(",", ""))
    except ValueError:
        return None
    return value if LEAST <= value <= MOST else None


def stated(cell: str | None, reason: str) -> float:
    """A cell as such a number, where a prediction cannot do without; the row is left out for the reason if it is
    none."""
    value = number(cell)
    if value is None:
        raise Skip(reason)
    return value


def readable(read: Callable[[str], T], text: str, reason: str) -> T:
    """What a text stands for; the row is left out for the reason if it is nothing that is known."""
    try:
        return read(text)
    except InputError:
        raise Skip(reason) from None


def count(row: Row, column: str) -> int:
    """A cell as a positive whole number; 0 if it is none.

    >>> count({"tp": "8.0"}, "tp"), count({"tp": "many"}, "tp"), count({}, "tp")
    (8, 0, 0)
    """
    value = number(row.get(column))
    return int(value) if value is not None and value == int(value) else 0


def needed(row: Row, column: str) -> int:
    """A whole number that a prediction cannot do without."""
    value = count(row, column)
    skip_if(not value, f"{column} not stated")
    return value
