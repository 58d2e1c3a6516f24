"""The view `models`: every preset in a table, one model by part; and what the field for a model asks as it is filled."""

from collections.abc import Callable
from typing import Any

from dragonscale.web.views.model_field import config_panel, line_panel

PANELS: dict[str, Callable[[Any], Any]] = {"line": line_panel, "config": config_panel}
