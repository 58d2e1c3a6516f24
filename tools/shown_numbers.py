"""Numbers that a text shows, whatever their units: whether a result can be read off a page or an answer."""

import re

ROUNDING = 0.006
"""How far a printed number may be from the exact one: three digits."""

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?\$?((?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE]([-+]?\d+))?\s?([A-Za-zµμ%]*)"
)
_SCALES = {
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "B": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "m": 1e-3,
    "u": 1e-6,
    "µ": 1e-6,
    "μ": 1e-6,
    "n": 1e-9,
}
_TIMES = {"min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0, "%": 0.01}


def numbers_of(text: str) -> list[float]:
    """Every value that a text may be read to show: bare, and in base units where a unit with a prefix follows.

    >>> numbers_of("1.09ms of 16GiB"), numbers_of("about 2,550 (40%)")
    ([1.09, 0.00109, 16.0, 17179869184.0], [2550.0, 40.0, 0.4])
    """
    found: list[float] = []
    for digits, exponent, unit in _NUMBER.findall(text):
        value = float(digits.replace(",", "")) * 10.0 ** int(exponent or 0)
        found.append(value)
        scale = _TIMES.get(unit) or next((_SCALES[unit[:n]] for n in (2, 1) if unit[:n] in _SCALES), None)
        if scale is not None:
            found.append(value * scale)
    return found


def shows(text: str, value: float, tolerance: float = 0.0) -> bool:
    """Whether a text shows a number, as a number of that size or with a decimal prefix cut off (`1.1` for 1.1 ms)."""
    room = max(tolerance, ROUNDING) * abs(value) + 1e-15
    return any(abs(one - abs(value)) <= room for one in numbers_of(text))
