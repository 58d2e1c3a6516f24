"""The committed sweep: what its table must show, and that the page shows that table."""

import csv
from pathlib import Path
from typing import Any

import pytest

from dragonscale.commands.sweep.sweep_rows import COLUMNS, shown
from dragonscale.commands.sweep.sweep_tables import BEGIN, END
from dragonscale.evidence.verify.records import SweepScore, VerifyRow, score

DOCS = Path(__file__).parents[2] / "docs"
TABLE = DOCS / "data" / "verify_sweep.csv"
_BOOLEAN = {"True": True, "False": False}


def read_rows() -> list[dict[str, Any]]:
    """The rows of the table that have an answer."""
    if not TABLE.exists():
        pytest.skip("the sweep has not been run; docs/verify.md says how")
    with TABLE.open(encoding="utf-8") as file:
        return [_typed(row) for row in csv.DictReader(file) if not row["failed"]]


def _typed(row: dict[str, str]) -> dict[str, Any]:
    numbers = {name for name in row if name.endswith(("_error", "_s", "_bytes"))}
    typed: dict[str, Any] = {
        name: (float(text) if text else None) if name in numbers else text for name, text in row.items()
    }
    typed |= {name: int(row[name]) for name in ("chips", "batch", "seq")}
    return typed | {name: _BOOLEAN[row[name]] for name in ("fits_planned", "fits_compiled")}


@pytest.fixture(scope="module")
def found() -> SweepScore:
    names = VerifyRow.__struct_fields__
    return score([VerifyRow(**{name: row[name] for name in names}) for row in read_rows()])


def test_the_plan_and_the_compilers_agree(found: SweepScore) -> None:
    spreads = {one.name: one for one in found.spreads}
    assert (spreads["argument bytes"].worst or 0) <= 0.002
    assert (spreads["peak memory"].median or 0) <= 0.07
    assert (spreads["FLOPs"].median or 0) <= 0.01
    assert (found.wire_ok or 0) >= 0.95
    assert found.wrongly_accepted == 0


def test_the_page_shows_the_table() -> None:
    page = (DOCS / "verify.md").read_text(encoding="utf-8")
    inside = page.partition(BEGIN)[2].partition(END)[0]
    rows = read_rows()
    assert rows
    for row in rows:
        line = " | ".join(shown(name, row[name]).replace("|", "\\|") for name in COLUMNS["shown"]["verify"])
        assert f"| {line} |" in inside
