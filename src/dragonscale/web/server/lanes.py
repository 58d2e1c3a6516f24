"""Quick or slow: which questions are answered at once, and which need a search, a simulation or a sweep.

Quick work must not wait for slow work, or a slider would stand still while a search runs; so a worker is always kept
free of the slow. A question is quick where it judges what is given; it is slow where it looks for something. Which
panels of a view take longer than a moment, the table of views says (`SLOW`).
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.web.view_names import SLOW as SLOW_PANELS

QUICK, SLOW = "quick", "slow"
_FACTS = frozenset({"catalogue", "chips", "models", "roofline", "shard", "collective", "copied", "judge", "learn"})
"""Views that look something up, or work out a formula."""
_SEARCHED = frozenset({"train", "serve", "why", "export"})
"""Views that judge a plan where one is given, and look for one otherwise."""


def lane_of(request: Mapping[str, Any]) -> str:
    """The lane of a request.

    >>> plan = {"model": "llama3-8b", "on": "h100:8", "plan": "fsdp8", "alone": True}
    >>> (
    ...     lane_of({"view": "train", "fields": plan, "panels": ["answer", "time"]}),
    ...     lane_of({"view": "train", "fields": {}}),
    ... )
    ('quick', 'slow')
    >>> lane_of({"view": "train", "fields": plan, "panels": ["scaling"]})
    'slow'
    """
    view, fields, panels = request.get("view"), request.get("fields"), request.get("panels")
    if not isinstance(view, str) or has_slow_panel(view, panels):
        return SLOW if isinstance(view, str) else QUICK  # nonsense is refused at once
    if view in _FACTS:
        return QUICK
    given = fields if isinstance(fields, Mapping) else {}
    if view not in _SEARCHED or not given.get("plan"):
        return SLOW
    full = (
        view == "train" and not given.get("alone") and request.get("brief") is not True
    )  # what would help is looked for
    return SLOW if full else QUICK


def has_slow_panel(view: str, panels: Any) -> bool:
    """Whether a panel is asked for that takes long even where the record is there; no list asks for all."""
    slow = SLOW_PANELS.get(view, frozenset())
    if not isinstance(panels, list) or not panels:
        return bool(slow)
    return any(isinstance(name, str) and name in slow for name in panels)
