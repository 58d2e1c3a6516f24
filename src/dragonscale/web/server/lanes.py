"""Quick, slow or behind: which questions are answered at once, which need a search, a simulation or a sweep, and which
search for every point of a curve that the page draws meanwhile.

Quick work must not wait for slow work, or a slider would stand still while a search runs; so a worker is always kept
free of the slow. A question is quick where it judges what is given; it is slow where it looks for something. Which
panels of a view search behind the page, the table of views says (`SLOW`): those wait for what their own asker wants
now, and are interrupted by it.
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.web.view_names import SLOW as SLOW_PANELS

QUICK, SLOW, BEHIND = "quick", "slow", "behind"
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
    'behind'
    """
    view, fields, panels = request.get("view"), request.get("fields"), request.get("panels")
    if not isinstance(view, str) or has_slow_panel(view, panels):
        if not isinstance(view, str):
            return QUICK  # nonsense is refused at once
        return BEHIND if panels else SLOW  # no list asks for all, the answer too
    if view in _FACTS:
        return QUICK
    question = fields if isinstance(fields, Mapping) else {}
    if view not in _SEARCHED or not question.get("plan"):
        return SLOW
    full = (
        view == "train" and not question.get("alone") and request.get("brief") is not True
    )  # what would help is looked for
    return SLOW if full else QUICK


def has_slow_panel(view: str, panels: Any) -> bool:
    """Whether a panel is asked for that takes long even where the record is there; no list asks for all."""
    slow = SLOW_PANELS.get(view, frozenset())
    if not isinstance(panels, list) or not panels:
        return bool(slow)
    return any(isinstance(name, str) and name in slow for name in panels)
