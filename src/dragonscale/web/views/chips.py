"""The view `chips`."""

from collections.abc import Callable
from typing import Any

PANELS: dict[str, Callable[[Any], Any]] = {}
