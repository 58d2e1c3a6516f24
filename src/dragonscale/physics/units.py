"""Quantities as text: `16GiB`, `4M`, `900GB/s`, `2us` or `$1.2/h`, parsed and printed.

Inside, times are seconds, sizes bytes, rates per second and money US dollars, always plain numbers. A quantity with a
dimension must say its unit; plain counts (tokens, chips, requests) may be bare. Decimal and binary multiples are never
confused: `16GB` is 16·10⁹ bytes and `16GiB` is 16·2³⁰.

>>> parse("16GiB", "bytes"), parse("900GB/s", "bytes/s"), parse("4M", "count")
(17179869184.0, 900000000000.0, 4000000.0)
>>> render(17179869184, "bytes"), render(9e11, "bytes/s"), render(2e-6, "s")
('17.2GB', '900GB/s', '2us')
"""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, nearest, shorten

DAY = 86400.0
"""Seconds of a day."""

_FILE = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))
_DIMENSIONS: dict[str, dict[str, Any]] = _FILE["dimensions"]
DTYPE_BYTES: dict[str, float] = _FILE["dtypes"]
COMPUTED_AS: dict[str, str] = _FILE["computed_as"]

# Scales by prefix. Only counts know B (billions) and small letters, as in the names of models (8b, 350m); only bytes
# and counts know the binary ones.
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_LOWER = {"b": 1e9, "m": 1e6, "t": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SI = dict(_DECIMAL)
del _SI["B"]  # which is the byte in every other unit


def _table(bases: dict[str, float], prefixes: dict[str, float]) -> dict[str, float]:
    """The size of every unit that is made of a prefix and a base."""
    units: dict[str, float] = {}
    for base, size in bases.items():
        for prefix, scale in prefixes.items():
            units[prefix + base] = scale * size
    return units


def _per_second(units: dict[str, float]) -> dict[str, float]:
    """The rates of some units."""
    rates: dict[str, float] = {}
    for unit, scale in units.items():
        if not unit.endswith("bps"):  # Gbps is a rate already
            unit += "/s"
        rates[unit] = scale
    return rates


_BYTES = _table({"B": 1.0, "byte": 1.0, "bytes": 1.0}, _SI | _BINARY)
_BITS = _table({"b": 1 / 8, "bit": 1 / 8, "bps": 1 / 8}, _SI)
_FLOPS = _table({"FLOP": 1.0, "FLOPs": 1.0, "OP": 1.0, "OPs": 1.0, "FLOPS": 1.0}, _SI)
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_MONEY = _table({"$": 1.0, "USD": 1.0}, {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9})

UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes/s": _per_second(_BYTES | _BITS),
    "FLOP": _FLOPS,
    "FLOP/s": _per_second(_FLOPS) | {"TFLOPS": 1e12, "PFLOPS": 1e15, "TOPS": 1e12},
    "s": _SECONDS | _FILE["times"],
    "Hz": _table({"Hz": 1.0}, _SI),
    # "$4M" is parsed as the unit "$M"
    "USD": _MONEY | {f"${unit[:-1]}": scale for unit, scale in _MONEY.items() if unit.endswith("$")},
    "USD/h": {"$/h": 1.0, "USD/h": 1.0, "$/hour": 1.0},
    "W": _table({"W": 1.0}, _SI),
    "count": _DECIMAL | _LOWER | _BINARY,
    "count/s": _per_second(_SI) | {"/min": 1 / 60, "/h": 1 / 3600},
}
_TEXT = re.compile(
    r"\s*(?P<money>\$)?\s*(?P<number>[-+]?(?:[0-9][0-9_,]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(?P<unit>\S*)\s*"
)
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+([.eE].*)?")
# Nothing that is built or asked about is smaller; below it products of quantities underflow to zero.
_SMALLEST = 1e-30


def is_grouped(text: str) -> bool:
    """Whether commas group the digits of a number by threes."""
    return _GROUPED.fullmatch(text.strip()) is not None


def parse(text: str | float, dimension: str, what: str = "value") -> float:
    """Read a quantity of the given dimension; `what` names it in the error.

    >>> parse("400Gbps", "bytes/s")
    50000000000.0
    >>> parse("$1.2/h", "USD/h")
    1.2
    >>> parse("2", "s", "the deadline")
    Traceback (most recent call last):
        ...
    dragonscale.errors.InputError: The deadline is '2', which has no unit; write 2ms or 2s.
    >>> parse("1,5GB", "bytes", "the size")
    Traceback (most recent call last):
        ...
    dragonscale.errors.InputError: The size is '1,5GB', and a comma only groups digits by threes; write 1.5GB.
    """
    units, rules, written = UNITS[dimension], _DIMENSIONS[dimension], _written(text)
    match = whole_match(_TEXT, written)
    if match is None:
        raise _refused(text, dimension, what, "is not a number with a unit")
    number, unit = _number(match, text, what), match["unit"]
    if match["money"]:
        unit = "$" + unit
    if number < 0:
        raise _refused(text, dimension, what, "is negative")
    if not unit and unit not in units:
        examples = " or ".join(form.format(match["number"]) for form in rules["bare"])
        raise InputError(f"{_subject(what)} is {shorten(text)}, which has no unit; write {examples}.")
    if unit not in units:
        problem = f"has the unit {shorten(unit)}, which is no unit of {rules['name'].split(' ', 1)[1]}"
        if close := nearest(unit, units):
            problem += f" (did you mean {close!r}?)"
        raise _refused(text, dimension, what, problem)
    value = number * units[unit]
    if not math.isfinite(value):
        raise _refused(text, dimension, what, "is not finite")
    if value > rules["most"]:
        raise _refused(text, dimension, what, f"cannot be reckoned with (at most {rules['most']:g})")
    if 0 < value < _SMALLEST:
        raise _refused(text, dimension, what, f"cannot be reckoned with (at least {_SMALLEST:g})")
    return value


def whole_match(pattern: re.Pattern[str], text: str, limit: int = 100) -> re.Match[str] | None:
    """The match of a pattern with all of a text. None for a text of `limit` characters or more: it is nothing that
    someone writes, and a pattern may take very long over it."""
    if len(text) >= limit:
        return None
    return pattern.fullmatch(text)


def _written(text: str | float) -> str:
    """A value as text; an integer of thousands of digits, which Python refuses to print, as one that is too large."""
    if isinstance(text, int) and abs(text) > 10**40:
        return "1e99"
    return str(text)


def _number(match: re.Match[str], text: object, what: str) -> float:
    """The number before the unit; commas group digits by threes, and are no decimal points."""
    number = match["number"]
    if "," in number and not _GROUPED.fullmatch(number):
        point = f"{number.replace(',', '.')}{match['unit']}"
        is_list = number.count(",") > 1 or "." in number
        advice = "ask of one value at a time" if is_list else f"write {(match['money'] or '') + point}"
        raise InputError(f"{_subject(what)} is {shorten(text)}, and a comma only groups digits by threes; {advice}.")
    return float(number.replace(",", "").replace("_", ""))


def _subject(what: str) -> str:
    return what[:1].upper() + what[1:]


def _refused(text: object, dimension: str, what: str, problem: str) -> InputError:
    rules = _DIMENSIONS[dimension]
    advice = f"write {rules['name']} such as {rules['example']!r}"
    return InputError(f"{_subject(what)} is {shorten(text)}, which {problem}; {advice}.")


def parse_count(text: str | float, what: str = "count") -> int:
    """Read a whole number: `4M`, `8192`, `4Mi`, `1e6`.

    >>> parse_count("4Mi"), parse_count("8,192"), parse_count("1.5b")
    (4194304, 8192, 1500000000)
    """
    value = parse(text, "count", what)
    if value != int(value):
        example = "4M" if abs(value) > 1000 else f"{round(value)}"
        raise InputError(f"{_subject(what)} is {shorten(text)}, which is not a whole number; write e.g. {example!r}.")
    return int(value)


MAX_SEQUENCE_TOKENS = 10**8
"""Tokens of a sequence, a prompt or an output, at most."""


def parse_length(text: str | float, what: str = "the length") -> tuple[int, str]:
    """Read the length of a sequence, a prompt or an output in tokens, and a note where its reading needs one.

    Lengths are counted in powers of two: the 32k of a model's name are 32,768 tokens, while a plain count of 32k is
    32,000.

    >>> parse_length("32k"), parse_length("8,192")
    ((32768, '32k is read as 32,768 tokens.'), (8192, ''))
    """
    written = _written(text).strip()
    is_binary = written[-1:] in ("k", "K")
    length = parse_count(written[:-1].rstrip() + "Ki" if is_binary else written, what)
    if not 1 <= length <= MAX_SEQUENCE_TOKENS:
        raise InputError(
            f"{_subject(what)} is {shorten(text)}; it is at least one token and at most {MAX_SEQUENCE_TOKENS:,}."
        )
    if is_binary:
        return length, f"{written} is read as {length:,} tokens."
    if written.endswith("M"):
        return length, f"{written} is read as {length:,} tokens; write {written}i for {length / 1e6 * 2**20:,.0f}."
    return length, ""


# Scales with their prefixes, largest first.
_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BINARY_STEPS = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))


def render(value: float, dimension: str, digits: int = 3, binary: bool = False) -> str:
    """Print a quantity so that `parse` reads it back, to the given number of significant digits.

    >>> render(4.59e14, "FLOP/s"), render(7.7e6, "count"), render(0.0125, "s"), render(4.2, "USD/h")
    ('459TFLOP/s', '7.7M', '12.5ms', '$4.2/h')
    >>> render(2**34, "bytes", binary=True)
    '16GiB'
    """
    if dimension in ("USD", "USD/h"):
        return f"${_significant(value, digits)}{dimension[3:]}"
    base, slash, per = dimension.partition("/")
    suffix = {"bytes": "B", "count": "", "s": ""}.get(base, base) + slash + per
    steps = _STEPS
    if dimension == "s":
        steps = _TIMES
    elif binary:
        steps = _BINARY_STEPS
    if not math.isfinite(value) or value == 0:
        return f"{value:g}s" if dimension == "s" else f"{value:g}{suffix}"
    # the largest scale that leaves at least 1, or rounds to it in three digits
    scale, prefix = next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])
    if base == "count" and prefix == "G":
        prefix = "B"  # parameters and tokens are counted in billions
    return f"{_significant(value / scale, digits)}{prefix}{suffix}"


def _significant(value: float, digits: int) -> str:
    """The shortest decimal text with this many significant digits and no exponent where it can be avoided."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}" if abs(value) < 1e6 else f"{value:.{digits}g}"
    if "." not in text:
        return text  # the zeros of 1,500 count
    return text.rstrip("0").rstrip(".")
