"""Any answer as it is: the blocks of its sheet, and the record that `--json` prints."""

from dataclasses import asdict
from typing import Any

from dragonscale.sheets.sheet import Block, Grid, Sheet
from dragonscale.web.page_request import PageRequest


def sheet_panel(asked: PageRequest) -> dict[str, Any]:
    """The sheet of the answer, with everything that stands behind it where `detail` is asked."""
    record = asked.record
    notes = [text for text in record.notes_beside if text not in getattr(record, "notes", ())]
    return {"blocks": blocks_of(record.sheet(asked.more.get("detail") is True)), "notes": notes}


def record_panel(asked: PageRequest) -> dict[str, Any]:
    """What `--json` prints."""
    found = asked.record.to_dict()
    return found if isinstance(found, dict) else {"answers": found}


def blocks_of(sheet: Sheet) -> list[dict[str, Any]]:
    """The blocks of a sheet, each with its kind.

    >>> from dragonscale.sheets.sheet import Prose, Sheet
    >>> blocks_of(Sheet((Prose("Bound by compute."),)))
    [{'kind': 'Prose', 'text': 'Bound by compute.', 'tone': ''}]
    """
    return [{"kind": type(block).__name__, **_told(block)} for block in sheet.blocks]


def _told(block: Block) -> dict[str, Any]:
    """A block as plain data; the cells of a table as the text that a reader sees, shares for a bar as numbers."""
    if not isinstance(block, Grid):
        return asdict(block)
    bars = [column.bar for column in block.columns]
    rows = [[value if bar else _cell(value) for value, bar in zip(row, bars, strict=True)] for row in block.rows]
    columns = [asdict(column) for column in block.columns]
    return {"columns": columns, "rows": rows, "title": block.title, "foot": block.foot}


def _cell(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return "–" if value is None else f"{value:,}" if whole else str(value)
