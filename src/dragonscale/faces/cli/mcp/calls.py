"""A call of a tool: its answer, or the one sentence on what is wrong with it. A fault of the planner ends the call, not
the session."""

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError, printable, unknown
from dragonscale.faces.cli.mcp.results import structured_result, text_result
from dragonscale.faces.cli.mcp.tools import DETAIL, WHOLE, PlannerTool
from dragonscale.listener import Listener


@dataclass(frozen=True)
class ToolReply:
    """What a call gives back: the text, and the record; of one that failed there is none."""

    text: str
    record: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        return self.record is None


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
        return ToolReply(text, structured_result(report, given.get(WHOLE) is True))
    except InputError as error:
        sentence = str(error)
    except RecursionError:
        sentence = "The input is nested too deeply to be read."
    except MemoryError:
        sentence = "This machine's memory is too small for the question."
    except OSError as error:
        sentence = f"{error.filename or 'A file'} cannot be used: {error.strerror or error}."
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        sentence = (
            f"The planner failed at this question, which is a fault of its own ({type(error).__name__}: {error})."
        )
    return ToolReply(printable(sentence))
