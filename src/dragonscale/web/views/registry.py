"""The panels of each view by name.

A view that stands for a command has its record (`record`: what `--json` prints) and its sheet (`sheet`: what the
terminal shows, as blocks) as panels too, without a line of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dragonscale.web.view_names import COMMANDS
from dragonscale.web.views.sheets import record_panel, sheet_panel


def panels_of(view: str) -> dict[str, Callable[[Any], Any]]:
    """The panels of a view by name, in the order they are drawn."""
    own = dict(_own_panels(view))
    return own | ({"sheet": sheet_panel, "record": record_panel} if view in COMMANDS else {})


def _own_panels(view: str) -> Mapping[str, Callable[[Any], Any]]:
    """A view is imported when it is first asked for: in a browser, packages that few views need come late."""
    match view:
        case "train":
            from dragonscale.web.views import train as module
        case "serve":
            from dragonscale.web.views import serve as module
        case "simulate":
            from dragonscale.web.views import simulate as module
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
