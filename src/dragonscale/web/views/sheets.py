"""Any answer as it is: the blocks of its sheet, and the record that `--json` prints."""

from dataclasses import asdict
from typing import Any

from dragonscale.sheets.sheet import Sheet
from dragonscale.web.asked import Asked


def sheet_panel(asked: Asked) -> dict[str, Any]:
    """The sheet of the answer, with everything that stands behind it where `detail` is asked."""
    record = asked.record
    notes = [text for text in record.notes_beside if text not in getattr(record, "notes", ())]
    return {"blocks": blocks_of(record.sheet(asked.more.get("detail") is True)), "notes": notes}


def record_panel(asked: Asked) -> dict[str, Any]:
    """What `--json` prints."""
    found = asked.record.to_dict()
    return found if isinstance(found, dict) else {"answers": found}


def blocks_of(sheet: Sheet) -> list[dict[str, Any]]:
    """The blocks of a sheet, each with its kind.

    >>> from dragonscale.sheets.sheet import Prose, Sheet
    >>> blocks_of(Sheet((Prose("Bound by compute."),)))
    [{'kind': 'Prose', 'text': 'Bound by compute.', 'tone': ''}]
    """
    return [{"kind": type(block).__name__, **asdict(block)} for block in sheet.blocks]
