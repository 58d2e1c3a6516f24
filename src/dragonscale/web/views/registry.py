"""The panels of each view by name.

A view that stands for a command has its record (`record`: what `--json` prints) and its sheet (`sheet`: what the
terminal shows, as blocks) as panels too, without a line of its own.

Any answer as it is: the blocks of its sheet, and the record that `--json` prints.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from dragonscale.blocks.sheet import Block, Grid, Sheet, cell_text
from dragonscale.web.page_request import PageRequest
from dragonscale.web.view_names import COMMANDS


def sheet_panel(request: PageRequest) -> dict[str, Any]:
    """The sheet of the answer, with everything that stands behind it where `detail` is asked."""
    return sheet_data(request.record, request.more.get("detail") is True)


def sheet_data(record: Any, detail: bool) -> dict[str, Any]:
    """The blocks of an answer's sheet, and how its question was read."""
    notes = [text for text in record.notes_beside if text not in getattr(record, "notes", ())]
    return {"blocks": blocks_of(record.sheet(detail)), "notes": notes}


def record_panel(request: PageRequest) -> dict[str, Any]:
    """What `--json` prints."""
    record = request.record.to_dict()
    return record if isinstance(record, dict) else {"answers": record}


def blocks_of(sheet: Sheet) -> list[dict[str, Any]]:
    """The blocks of a sheet, each with its kind.

    >>> from dragonscale.blocks.sheet import Prose, Sheet
    >>> blocks_of(Sheet((Prose("Bound by compute."),)))
    [{'kind': 'Prose', 'text': 'Bound by compute.', 'tone': '', 'level': 'brief'}]
    """
    return [{"kind": type(block).__name__, **_told(block)} for block in sheet.blocks]


def _told(block: Block) -> dict[str, Any]:
    """A block as plain data; the cells of a table as the text that a reader sees, shares for a bar as numbers."""
    if not isinstance(block, Grid):
        return asdict(block)
    bars = [column.bar for column in block.columns]
    rows = [[value if bar else cell_text(value) for value, bar in zip(row, bars, strict=True)] for row in block.rows]
    columns = [asdict(column) for column in block.columns]
    return {"columns": columns, "rows": rows, "title": block.title, "foot": block.foot}


def refitted(request: PageRequest) -> PageRequest:
    """The request, where it says `near`, about a plan next to the given one that runs at its sizes."""
    if request.view != "train" or request.more.get("near") is not True:
        return request
    from dragonscale.web.views.train_near import near_fields

    return replace(request, fields=near_fields(request))


def panels_of(view: str) -> dict[str, Callable[[Any], Any]]:
    """The panels of a view by name, in the order they are drawn."""
    panels = dict(_own_panels(view))
    return panels | ({"sheet": sheet_panel, "record": record_panel} if view in COMMANDS else {})


def _own_panels(view: str) -> Mapping[str, Callable[[Any], Any]]:
    """A view is imported when it is first asked for: in a browser, packages that few views need come late."""
    match view:
        case "train":
            from dragonscale.web.views import train as module
        case "serve":
            from dragonscale.web.views import serve as module
        case "simulate":
            from dragonscale.web.views import simulate as module
        case "rl":
            from dragonscale.web.views import rl as module
        case "roofline":
            from dragonscale.web.views import roofline as module
        case "shard":
            from dragonscale.web.views import shard as module
        case "collective":
            from dragonscale.web.views import collective as module
        case "chips":
            from dragonscale.web.views import chips as module
        case "models":
            from dragonscale.web.views import models as module
        case "compare":
            from dragonscale.web.views import compare as module
        case "catalogue":
            from dragonscale.web.views import catalogue as module
        case "why":
            from dragonscale.web.views import why as module
        case "copied":
            from dragonscale.web.views import copied as module
        case "judge":
            from dragonscale.web.views import judge as module
        case "export":
            from dragonscale.web.views import export as module
        case _:
            from dragonscale.web.views import learn as module
    return module.PANELS
