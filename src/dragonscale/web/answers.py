"""A request of the page answered: a message for each panel, as soon as it is there.

A request is plain JSON:

    {"view": "train", "fields": {"model": "llama3-70b", "on": "v5p:8x16x16", …}, "panels": ["answer", "time"],
     "dropped": {"my-model": "{…config.json…}"}, "brief": true, …}

`send` is called with messages: `{"progress": 0.4}`, `{"note": "…"}`, `{"panel": "time", "data": {…}}`, and at last
`{"done": true}` or `{"error": {"kind": …, "text": …}}`, never both. What the same process was asked before is kept for
a while, so that a second panel of one question costs its own work only.

>>> messages = []
>>> answer({"view": "chips", "fields": {"name": "h10"}, "panels": ["sheet"]}, messages.append)
>>> messages[-1]["error"]["kind"], messages[-1]["error"]["text"][:41]
('input', "There is no chip 'h10'; did you mean 'h10")
"""

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dragonscale.errors import REFUSED, Infeasible, printable, sentence_of, shorten, unknown
from dragonscale.faces.cli.mcp.results import plain
from dragonscale.listener import without_numeric_warnings
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.registry import panels_of, refitted

Send = Callable[[dict[str, Any]], None]


class Unwanted(BaseException):
    """Raised by `send` where nobody waits for the answer any more; it ends the work, whatever that
    would go on after."""


def answer(request: Mapping[str, Any], send: Send) -> None:
    """Answer a request by messages; whatever is wrong with it is the last of them. Only `Unwanted` comes out."""
    begun = time.perf_counter()
    try:
        page_request = refitted(PageRequest.read(request, send))
        panels = panels_of(page_request.view)
        for name in page_request.panels or tuple(panels):
            if name not in panels:
                raise unknown(f"panel of {page_request.view}", name, panels)
            with without_numeric_warnings():
                shown = plain(panels[name](page_request))
            send({"panel": name, "data": shown})
        send({"done": True, "seconds": time.perf_counter() - begun})
    except REFUSED as error:
        kinds = {Infeasible: "infeasible", MemoryError: "limit"}
        send(failed(kinds.get(type(error), "input"), sentence_of(error)))
    except OSError as error:
        send(failed("limit", f"Something that the question needs cannot be had here: {error.strerror or error}."))
    except Exception as error:
        fault = shorten(f"{type(error).__name__}: {error}", 200)
        # sent first: what is interrupted inside of NumPy comes out as another error, and then nobody is told of it
        send(failed("fault", f"The planner failed at this question, which is a fault of its own ({fault})."))
        traceback.print_exc(file=sys.stderr)


def failed(kind: str, sentence: str) -> dict[str, Any]:
    """The last message of an answer that failed."""
    return {"error": {"kind": kind, "text": printable(sentence)}}
