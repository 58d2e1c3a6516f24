"""A request understood: which view and panels, the command's question, and its record, worked out once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.listener import Listener
from dragonscale.web.kept import Remembered, given, record_key
from dragonscale.web.view_names import view_names
from dragonscale.web.words import question_of

KEPT = Remembered[str, Any](48)
"""Records that this process remembers."""
KEPT_BRIEF = Remembered[str, Any](16)
"""The same for positions of a slider, which are many and cheap: they must not push a search out."""
WATCHED = 64
"""Replicas of a simulated fleet that are watched one by one."""
OFTEN = 100
"""Steps of progress that are told, at most."""


class PageListener(Listener):
    """Sends how far an answer is."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.send, self.reached = send, -1

    def step(self, done: int, total: int) -> None:
        reached = int(OFTEN * min(done / total, 1.0)) if total > 0 else 0
        # an empty message is not sent on, but whoever sends looks whether anybody waits or something else comes first
        self.send({"progress": reached / OFTEN} if reached > self.reached else {})
        self.reached = max(reached, self.reached)

    def wait(self, text: str) -> None:
        self.send({"note": text})


@dataclass(frozen=True)
class PageRequest:
    """A request. `brief` is asked while a slider moves: what would help is left out. `more` is the rest of the request,
    for the view."""

    view: str
    fields: Mapping[str, Any]
    panels: tuple[str, ...]
    dropped: Mapping[str, str]
    brief: bool
    more: Mapping[str, Any]
    send: Callable[[dict[str, Any]], None] = field(compare=False)

    @classmethod
    def read(cls, request: Mapping[str, Any], send: Callable[[dict[str, Any]], None]) -> "PageRequest":
        view, fields = request.get("view"), request.get("fields", {})
        if view not in view_names():
            raise unknown("view", view, view_names())
        panels, dropped = request.get("panels", ()), request.get("dropped", {})
        texts = isinstance(dropped, Mapping) and all(isinstance(text, str) for pair in dropped.items() for text in pair)
        if not isinstance(fields, Mapping) or not texts or not isinstance(panels, list | tuple):
            raise InputError("A request has `fields` and `dropped`, objects, and `panels`, a list of names.")
        used = ("view", "fields", "panels", "dropped", "brief")
        rest = {name: value for name, value in request.items() if name not in used}
        return cls(view, given(fields), tuple(map(str, panels)), dropped, request.get("brief") is True, rest, send)

    @property
    def record(self) -> Any:
        """The answer of the view's command to the fields."""
        return self.ask(self.view, self.fields)

    def ask(self, command: str, fields: Mapping[str, Any], brief: bool | None = None) -> Any:
        """The record of any command, from memory where this process has answered the same."""
        short = self.brief if brief is None else brief
        memory = KEPT_BRIEF if short else KEPT
        key = record_key(command, fields, self.dropped, short)
        record = memory.get(key)
        if record is None:
            question = question_of(command, fields, self.dropped)
            record = _answered(command, question, PageListener(self.send), short)
            memory.put(key, record)
        return record

    @property
    def listener(self) -> Listener:
        """Tells the reader how far something is; it ends the work where nobody waits for it any more."""
        return PageListener(self.send)

    def text(self, name: str, default: str = "") -> str:
        """A word of the request beyond its fields."""
        value = self.more.get(name, default)
        if not isinstance(value, str):
            raise InputError(f"{name} is {shorten(value)}; it takes text.")
        return value


def _answered(command: str, question: Any, listener: Listener, brief: bool) -> Any:
    if brief and command in ("train", "serve"):
        return _brief(command, question, listener)
    if command == "simulate":
        return _watched(question, listener)
    return tools()[command.replace(" ", "_")].command.answer(question, listener)


def _brief(command: str, question: Any, listener: Listener) -> Any:
    """A plan judged without what would help."""
    if command == "serve":
        from dragonscale.commands.serve.ask_serve import ask
    else:
        from dragonscale.commands.compare.ask_training import ask
    return ask(question, listener, brief=True)


def _watched(question: Any, listener: Listener) -> Any:
    """A simulation that keeps what its replicas do over time, as the page draws them; it looks for what would hold,
    which takes many runs, only where that is asked."""
    from dragonscale.commands.simulate.ask_simulate import ask

    return ask(replace(question, max_rate=bool(question.max_rate)), listener, WATCHED)
