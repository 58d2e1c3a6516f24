"""The view `chips`: every chip in a table, one with its facts and sources, a slice drawn, and what can be changed of a chip."""

from collections.abc import Callable
from typing import Any

from dragonscale.web.views.knobs import knobs_panel

PANELS: dict[str, Callable[[Any], Any]] = {"knobs": knobs_panel}
