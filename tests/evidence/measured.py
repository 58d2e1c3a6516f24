"""Rows of measurements for the tests: facts copied from their sources, two or three dozen of each kind."""

import csv
from pathlib import Path

DATA = Path(__file__).parent / "data"


def rows_of(kind: str) -> list[dict[str, str]]:
    """The rows of a kind, as the file has them."""
    with open(DATA / f"{kind}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_id(kind: str) -> dict[str, dict[str, str]]:
    """The same by their ids."""
    return {row["id"]: row for row in rows_of(kind)}


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    """A file of some rows."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
