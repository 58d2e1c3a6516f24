"""Views: what the page can ask for. A view is a module with a table `PANELS` of functions from what was asked to plain
data.

A view that stands for a command has its record (`record`: what `--json` prints) and its sheet (`sheet`: what the
terminal shows, as blocks) as panels too, without a line of its own.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

OF_FIELDS = ("train", "serve", "simulate", "roofline", "shard", "collective", "chips", "models")
"""Views whose record is the answer of the command of their name to the request's fields."""
_COMMANDS = (*OF_FIELDS, "compare")
"""Views that show the record of the command of their name."""
_OTHERS = ("catalogue", "why", "copied", "judge", "export", "learn")
"""Views that are put together otherwise."""

SLOW = {"train": frozenset({"best_batches", "scaling", "against"})}
"""Panels that search: a server keeps them apart from what is judged at once, so that sliders go on."""


def view_names() -> tuple[str, ...]:
    """Every view."""
    return (*_COMMANDS, *_OTHERS)


def panels_of(view: str) -> dict[str, Callable[[Any], Any]]:
    """The panels of a view by name, in the order they are drawn."""
    from dragonscale.web.views.sheets import record_panel, sheet_panel

    own: dict[str, Any] = dict(import_module(f"dragonscale.web.views.{view}").PANELS)
    return own | ({"sheet": sheet_panel, "record": record_panel} if view in _COMMANDS else {})
