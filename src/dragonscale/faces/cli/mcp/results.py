"""Answers as tool results: the text that a terminal shows; where it is asked for the record too, without what would
flood a conversation; or the one sentence on what is wrong with a call. A fault of the planner ends the call, not the
session.

>>> shortened({"plans": [{"step_s": 1.0}] * 9, "notes": ["a"]}, 2)
{'plans': [{'step_s': 1.0}, {'step_s': 1.0}], 'plans_left_out': 7, 'notes': ['a']}
"""

import json
import math
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.blocks.sheet import Prose, Sheet
from dragonscale.blocks.terminal import text_of
from dragonscale.errors import INFEASIBLE, MISSED, REFUSED, printable, sentence_of, unknown
from dragonscale.faces.cli.mcp.tools import DETAIL, RECORD, WHOLE, PlannerTool
from dragonscale.listener import Listener

WIDTH = 110
ENDS = {INFEASIBLE: "infeasible", MISSED: "a target is missed"}
"""What a text says of an exit code beside 0."""
LISTS = (8, 3, 1)
"""Entries that a list keeps, the most that lets the record be short enough."""
LARGEST = 40_000
"""Characters of a record that is not asked for in full."""


def text_result(report: Any, detail: bool) -> str:
    """The answer in words, with how the question was read."""
    sheet = report.printed(detail)
    notes = [text for text in report.notes_beside if text not in getattr(report, "notes", ())]
    notes += [f"exit_code {report.exit_code}: {ENDS[report.exit_code]}."] if report.exit_code else []
    blocks = (*sheet.blocks, Prose(" ".join(notes))) if notes else sheet.blocks
    return text_of(Sheet(blocks), WIDTH, False)


def structured_result(report: Any, whole: bool) -> dict[str, Any]:
    """The record, with the command's exit code; lists are cut until it is short enough, or not at all."""
    found = report.to_dict()
    record = plain(found if isinstance(found, dict) else {"answers": found})
    record["exit_code"] = report.exit_code
    if whole:
        return record
    for most in LISTS:
        short = shortened(record, most)
        if len(json.dumps(short)) <= LARGEST:
            return short
    return shortened(record, LISTS[-1])


def plain(value: Any) -> Any:
    """Numbers that JSON does not have are null."""
    kind = type(value)  # `isinstance` of a Mapping is slow, and most of a record is these
    if kind in (str, int, bool):
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, dict | Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shortened(value: Any, most: int) -> Any:
    """A record whose lists of records keep so many entries, with how many were left out beside them."""
    if isinstance(value, list):
        return [shortened(one, most) for one in value[:most]]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, one in value.items():
        found[name] = shortened(one, most)
        if isinstance(one, list) and len(one) > most:
            found[f"{name}_left_out"] = len(one) - most
    return found


@dataclass(frozen=True)
class ToolReply:
    """What a call gives back: the text, and the record where it is asked for."""

    text: str
    record: dict[str, Any] | None = None
    failed: bool = False


def answered(every: Mapping[str, PlannerTool], name: str, given: Mapping[str, Any], listener: Listener) -> ToolReply:
    """The reply to a call.

    >>> from dragonscale.faces.cli.mcp.tools import tools
    >>> answered(tools(), "chips", {"name": "h10"}, Listener()).text[:41]
    "There is no chip 'h10'; did you mean 'h10"
    """
    try:
        if name not in every:
            raise unknown("tool", name, every)
        report = every[name].call(given, listener)
        text = text_result(report, given.get(DETAIL) is True)
        whole = given.get(WHOLE) is True
        return ToolReply(text, structured_result(report, whole) if whole or given.get(RECORD) is True else None)
    except REFUSED as error:
        sentence = sentence_of(error)
    except OSError as error:
        sentence = f"{error.filename or 'A file'} cannot be used: {error.strerror or error}."
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        fault = f"{type(error).__name__}: {error}"
        sentence = f"The planner failed at this question, which is a fault of its own ({fault})."
    return ToolReply(printable(sentence), failed=True)
