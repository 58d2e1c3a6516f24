"""Calls of tools, read out of what a model writes while it writes it.

Models write calls as JSON between marks of their own; which marks, their chat template tells: it writes earlier calls
the same way. Text before and between calls is passed on at once; what may be the beginning of a mark is held back until
it is one or cannot be. What stands between marks and is no call stays text.
"""

import json
import uuid
from collections.abc import Iterable
from typing import Any

MARKS = {
    "<tool_call>": "</tool_call>",  # Hermes, Qwen 2.5 and 3
    "[TOOL_CALLS]": "",  # Mistral: a list, to the end of the text
    "<|python_tag|>": "",  # LLaMA 3
}
"""How a call begins, and how it ends."""


def marks_of(templates: Iterable[str]) -> str:
    """The mark before a call in some chat templates; empty where they know none."""
    return next((mark for mark in MARKS if any(mark in one for one in templates)), "")


def calls_of(text: str) -> list[dict[str, Any]]:
    """The calls that are written as JSON, in OpenAI's form; none where it is something else.

    >>> calls_of('{"name": "f", "arguments": {"x": 1}}')[0]["function"]
    {'name': 'f', 'arguments': '{"x": 1}'}
    >>> calls_of("f(1)"), calls_of('{"name": 5}')
    ([], [])
    """
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return []
    calls = []
    for one in read if isinstance(read, list) else [read]:
        given = one.get("arguments", one.get("parameters", {})) if isinstance(one, dict) else None
        if given is None or not isinstance(one.get("name"), str):
            return []
        said = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        function = {"name": one["name"], "arguments": said}
        calls.append({"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function})
    return calls


class CallReader:
    """The text of one choice with its calls taken out; `count` are those that were found."""

    def __init__(self, mark: str) -> None:
        self.mark, self.end = mark, MARKS[mark]
        self.held, self.count = "", 0

    def add(self, text: str, last: bool) -> tuple[str, list[dict[str, Any]]]:
        """What of the text and of calls is new and sure; with the `last` piece, all of it."""
        self.held, shown, calls = self.held + text, [], []
        while (at := self.held.find(self.mark)) >= 0:
            stop = self.held.find(self.end, at) if self.end else -1
            if stop < 0 and not last:
                break
            until = stop + len(self.end) if stop >= 0 else len(self.held)
            found = calls_of(self.held[at + len(self.mark) : stop if stop >= 0 else until])
            shown.append(self.held[: at if found else until])
            calls += [{"index": self.count + place, **one} for place, one in enumerate(found)]
            self.count += len(found)
            self.held = self.held[until:]
        begins = range(max(len(self.held) - len(self.mark) + 1, 0), len(self.held))
        sure = at if at >= 0 else next((one for one in begins if self.mark.startswith(self.held[one:])), len(self.held))
        sure = len(self.held) if last else sure
        shown.append(self.held[:sure])
        self.held = self.held[sure:]
        return "".join(shown), calls
