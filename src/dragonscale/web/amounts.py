"""Numbers as the page shows them: the value, its unit, its text, and the name under which its derivation is asked.

>>> amount(0.00307, "s", "step_s")
{'value': 0.00307, 'unit': 's', 'text': '3.07ms', 'why': 'step_s'}
"""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from dragonscale.physics.units import render

Amount = dict[str, Any]
ELSEWHERE = "at?"
"""How the id of a number begins that is derived for the same question with other fields."""


def elsewhere(changes: Mapping[str, Any], why: str) -> str:
    """The id of a number of another plan, slice or batch than the answer's.

    >>> elsewhere({"on": "h100:64", "plan": "tp8 pp4"}, "step_s")
    'at?on=h100%3A64&plan=tp8+pp4|step_s'
    """
    return f"{ELSEWHERE}{urlencode(changes)}|{why}"


def amount(value: float | None, unit: str, why: str = "", text: str = "", digits: int = 3) -> Amount:
    """A number with its text; `why` is what `views/why.py` is asked to derive it."""
    if value is None or not math.isfinite(value):
        return {"value": None, "unit": unit, "text": text or "–", "why": ""}
    return {"value": float(value), "unit": unit, "text": text or render(float(value), unit, digits), "why": why}


def share(value: float, why: str = "", digits: int = 1) -> Amount:
    """A part of one as a percentage.

    >>> share(0.652)["text"]
    '65.2%'
    """
    return amount(value, "share", why, f"{value:.{digits}%}")


def count(value: float, why: str = "", binary: bool = False) -> Amount:
    """A number of things; with `binary`, tokens as people say them (4Mi).

    >>> count(2048)["text"], count(4194304, binary=True)["text"]
    ('2,048', '4Mi')
    """
    return amount(value, "count", why, render(value, "count", binary=True) if binary else f"{value:,.0f}")


_ENDINGS = {
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "bytes/s",
    "bytes": "bytes",
    "usd_per_h": "USD/h",
    "power_w": "W",
    "_usd": "USD",
    "_s": "s",
}
"""Units by how the keys of records end; what ends otherwise is counted."""


def quantity(key: str, value: float | None, why: str = "") -> Amount:
    """A field of a record in the unit that its name ends in.

    >>> quantity("link_bytes_per_s", 9e10)["text"], quantity("hosts", 16)["text"]
    ('90GB/s', '16')
    """
    unit = next((unit for ending, unit in _ENDINGS.items() if key.endswith(ending)), "count")
    return count(value, why) if unit == "count" and value is not None else amount(value, unit, why)
