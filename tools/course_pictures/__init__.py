"""Pictures of the course, one module for each chapter with a table `PICTURES` of its own; `tools.draw_docs` draws them
all.

A chapter's names begin with its slug (`rooflines-roof`), so that `python -m tools.draw_docs rooflines` draws its
pictures alone.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from dragonscale.blocks.charts import Chart


def course_pictures() -> dict[str, Callable[[], Chart]]:
    """Every chapter's pictures by name."""
    found: dict[str, Callable[[], Chart]] = {}
    for module in sorted(one.name for one in iter_modules(__path__)):
        found |= import_module(f"{__name__}.{module}").PICTURES
    return found
