"""Numbers as the page shows them: the value, its unit, its text, and the name under which its derivation is asked.

>>> amount(0.00307, "s", "step_s")
{'value': 0.00307, 'unit': 's', 'text': '3.07ms', 'why': 'step_s'}
"""

import math
from collections.abc import Callable, Mapping
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


def amount(value: float | None, unit: str, why: str = "", text: str = "") -> Amount:
    """A number with its text; `why` is what `views/why.py` is asked to derive it."""
    if value is None or not math.isfinite(value):
        return {"value": None, "unit": unit, "text": text or "–", "why": ""}
    return {"value": float(value), "unit": unit, "text": text or render(float(value), unit), "why": why}


def share(value: float | None, why: str = "") -> Amount:
    """A part of one as a percentage.

    >>> share(0.652)["text"]
    '65.2%'
    """
    return amount(value, "share", why, "" if value is None else f"{value:.1%}")


def count(value: float | None, why: str = "") -> Amount:
    """A number of things.

    >>> count(2048)["text"]
    '2,048'
    """
    return amount(value, "count", why, "" if value is None else f"{value:,.0f}")


def dollars(value: float | None, why: str = "") -> Amount:
    """Dollars and cents."""
    return amount(value, "USD", why, "" if value is None else f"${value:,.2f}")


def hour_text(usd: float | None) -> str:
    """Dollars of an hour; cents where they matter.

    >>> hour_text(367.2), hour_text(7.98)
    ('$367', '$7.98')
    """
    if usd is None:
        return ""
    return f"${usd:,.0f}" if usd >= 100 else f"${usd:,.2f}"


def money(value: float | None) -> str:
    """Dollars with three significant digits, as nobody knows a bill more exactly beforehand.

    >>> [money(usd) for usd in (14_671_113, 84_511, 1_234, 31.92, 0.98437, None)]
    ['$14.7M', '$84.5k', '$1.23k', '$31.9', '$0.984', '']
    """
    if value is None:
        return ""
    if value >= 1000:
        return f"${render(value, 'count')}"
    return f"${value:,.3g}"


def length_text(days: float) -> str:
    """How long a run takes, with three significant digits: hours where it is done within a day.

    >>> [length_text(days) for days in (0.133, 1.5, 151.2, 2343.4)]
    ['3.19 hours', '1.5 days', '151 days', '2,343 days']
    """
    if days < 1:
        return f"{24 * days:.3g} hours"
    return f"{days:,.0f} days" if days >= 1000 else f"{days:.3g} days"


_ENDINGS = {
    "FLOP/byte": ("flops_per_byte",),
    "FLOP/s": ("flops_per_s",),
    "bytes/s": ("bytes_per_s",),
    "bytes": ("bytes_per_chip", "bytes_per_token", "bytes_per_sequence", "bytes"),
    "FLOP": ("flops_per_chip", "flops_per_token", "flops"),
    "USD/h": ("usd_per_h",),
    "USD": ("usd_per_mtok", "cost_usd"),
    "share": ("mfu", "_share"),
    "W": ("power_w",),
    "s": ("_s", "seconds"),
}
"""Units by how the keys of records end, the first that fits; what ends otherwise is counted."""


def quantity(key: str, value: float | str | None, why: str = "") -> Amount:
    """A field of a record in the unit that its name ends in; a text is a formula whose sizes are open.

    >>> quantity("link_bytes_per_s", 9e10)["text"], quantity("hosts", 16)["text"], quantity("flops", "2*B*D")["text"]
    ('90GB/s', '16', '2*B*D')
    """
    unit = next((unit for unit, endings in _ENDINGS.items() if key.endswith(endings)), "count")
    if isinstance(value, str):
        return amount(None, unit, text=value)
    if unit == "FLOP/byte":  # what says so beside it needs no unit
        return amount(value, unit, why, "" if value is None else f"{value:,.4g}")
    if unit in ("count", "share"):
        return (count if unit == "count" else share)(value, why)
    return amount(value, unit, why)


def quantities(record: object, fields: Mapping[str, str], why: str | Callable[[str], str]) -> dict[str, Amount]:
    """Fields of a record under names of the page's own. A `why` that ends in a colon goes on with the field's name, and
    one that is a function is asked by it."""

    def id_of(field: str) -> str:
        if not isinstance(why, str):
            return why(field)
        return f"{why}{field}" if why.endswith(":") else why

    return {name: quantity(field, getattr(record, field), id_of(field)) for name, field in fields.items()}
