"""Quantities as a picture shows them: `3.58 s`, `94.8 GB`, and axes whose ticks say the same.

Text uses a space before the unit and a real `µ`; otherwise it is what `dragonscale.physics.units.render` prints. An
axis needs its labels from the picture's own renderer, so the same rule is given as a Vega expression too.

>>> amount(3.577, "s"), amount(9.48e10, "bytes"), amount(2.4e-5, "s"), amount(0.534, "share")
('3.58 s', '94.8 GB', '24 µs', '53%')
"""

import math
import re

from dragonscale.physics.units import render

_SPLIT = re.compile(r"([\d.,]+)([^\d.,].*)?")
_STEPS = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns")),
    "bytes": ((1e15, " PB"), (1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")),
    "FLOP": ((1e18, " EFLOP"), (1e15, " PFLOP"), (1e12, " TFLOP"), (1e9, " GFLOP"), (1e6, " MFLOP"), (1.0, " FLOP")),
    "count": ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "")),
}
"""Units of ticks, largest first; the smallest is used for everything below it too. Round numbers of seconds are no
round numbers of minutes, so no tick is in those."""


def amount(value: float, dimension: str, digits: int = 3) -> str:
    """A quantity as text.

    >>> (
    ...     amount(9.89e14, "FLOP/s"),
    ...     amount(4.2, "USD"),
    ...     amount(70.6e9, "count"),
    ...     amount(295.2, "number"),
    ...     amount(256, "degree"),
    ... )
    ('989 TFLOP/s', '$4.2', '70.6B', '295', '256')
    """
    if dimension == "share":
        percent = value * 100
        if 0 < percent < 0.05:
            return "<0.1%"
        return f"{percent:.0f}%" if percent >= 9.5 or percent == 0 else f"{percent:.1f}%"
    if dimension in ("number", "degree"):
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.{digits}g}"
    text = render(value, dimension, digits)
    if dimension.startswith(("USD", "count")):
        return text
    match = _SPLIT.fullmatch(text)
    unit = (match[2] or "").replace("us", "µs") if match else ""
    return f"{match[1]} {unit}" if match and unit else text


def tick_expression(dimension: str, largest: float = 0.0) -> str:
    """The Vega expression that labels a tick of an axis in this dimension, all in one unit where the largest value is
    given.

    >>> tick_expression("share")
    "format(datum.value, '~%')"
    >>> tick_expression("number")
    "format(datum.value, ',~g')"
    """
    if dimension == "share":
        return "format(datum.value, '~%')"
    if dimension in ("number", "degree"):
        # ~g would print 1e+3; whole numbers get their commas and small ones their digits.
        return "format(datum.value, ',~g')" if dimension == "number" else "format(datum.value, ',d')"
    if dimension.startswith("USD"):
        return "'$' + format(datum.value, ',~r')"
    base, _, per = dimension.partition("/")
    after = f"/{per}" if per else ""
    steps = _STEPS[base]
    if largest:
        steps = [next((step for step in steps if largest >= step[0]), steps[-1])]
    text = "'0'"
    for size, unit in reversed(steps):
        shown = f"format(datum.value / {size:g}, ',.3~r') + '{unit}{after}'"
        text = shown if text == "'0'" else f"abs(datum.value) >= {size * 0.9995:g} ? {shown} : {text}"
    return f"datum.value == 0 ? '0' : {text}"


def log_domain(values: list[float], margin: float = 0.06) -> tuple[float, float]:
    """A logarithmic axis that holds these values with a little room at both ends, and no empty decade.

    >>> low, high = log_domain([3.0, 700.0])
    >>> 1 < low < 3, 700 < high < 1000
    (True, True)
    """
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive:
        return 0.1, 10.0
    low, high = math.log10(min(positive)), math.log10(max(positive))
    if high - low < 0.3:  # a span of less than a factor of two gets at least that
        middle = (low + high) / 2
        low, high = middle - 0.15, middle + 0.15
    edge = (high - low) * margin
    return 10 ** (low - edge), 10 ** (high + edge)


def log_ticks(low: float, high: float, max_ticks: int = 9) -> list[float]:
    """Ticks of a logarithmic axis: decades, and 2 and 5 (or 1 to 9) between them where there is room.

    >>> log_ticks(80, 1200, max_ticks=4), log_ticks(1, 1e6)
    ([100.0, 200.0, 500.0, 1000.0], [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside: list[float] = []
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1,)):
        inside = [float(f"{step}e{power}") for power in decades for step in steps]
        inside = [tick for tick in inside if low * 0.999 <= tick <= high * 1.001]
        if len(inside) <= max_ticks:
            return inside
    return inside[:: -(-len(inside) // max_ticks)]


def linear_ceiling(largest: float, margin: float = 0.04) -> float:
    """The end of a linear axis that starts at zero and holds the largest value with a little room."""
    return largest * (1 + margin) if largest > 0 else 1.0
