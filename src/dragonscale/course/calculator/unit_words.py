"""Units as they are written: `GiB`, `TFLOP/s`, `us`, `days`, `$/h`, `tokens`."""

from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.shown import exponents_of
from dragonscale.course.calculator.tables import TABLES
from dragonscale.errors import InputError, nearest, shorten
from dragonscale.physics.units import UNITS

_DIMENSIONS = ("bytes", "FLOP", "s", "Hz", "USD", "W")
PREFIXES = {prefix: scale for prefix, scale in UNITS["count"].items() if prefix}
"""Prefixes of a bare count: the `B` of 70B is a billion."""
LONE = ("s", "h", "d", "W", "J")
"""One letter that is a unit where a number and a space stand before it."""


def _table() -> dict[str, Measure]:
    counted = {word: 1.0 for one in TABLES.counted for word in (one, f"{one}s")}
    rated = [(kind, word, scale) for kind in ("bytes/s", "FLOP/s") for word, scale in UNITS[kind].items()]
    rows = [(kind, word, scale) for kind in _DIMENSIONS for word, scale in UNITS[kind].items()]
    rows += [("s", *row) for row in TABLES.seconds.items()] + [("FLOP", *row) for row in TABLES.macs.items()]
    rows += [row for row in rated if "/" not in row[1]]  # 400Gbps, 197TFLOPS
    rows += [("bytes", word.removesuffix("/s"), scale) for _, word, scale in rated if word.endswith(("b/s", "bit/s"))]
    rows = [*(("", *row) for row in counted.items()), *(("J", *row) for row in TABLES.joules.items()), *rows]
    found = {word: Measure(scale, exponents_of(kind)) for kind, word, scale in rows if word != "B"}
    return found | {"%": Measure(0.01)}


WORDS = _table()


def find_unit(word: str, rate: bool = False) -> Measure | None:
    """One unit; with `rate` something per second follows, so that the TFLOPS of TFLOPS/s are no rate yet."""
    if rate and word in UNITS["FLOP"]:
        return Measure(UNITS["FLOP"][word], exponents_of("FLOP"))
    return WORDS.get(word)


def read_unit(text: str) -> Measure:
    """What `--to` names, as one of it: `GiB`, `TFLOP/s`, `$/h`, `tokens/s`, `M`.

    >>> read_unit("GB/s").number, read_unit("days").number, read_unit("M").number
    (1000000000.0, 86400.0, 1000000.0)
    """
    parts = [part.strip() for part in text.strip().split("/")]
    made = Measure(1.0)
    for place, part in enumerate(parts):
        found = find_unit(part, rate=place == 0 and len(parts) > 1) or _prefixed(part)
        if found is None and not (part == "" and place == 0 and len(parts) > 1):
            close = nearest(part, WORDS)
            guess = f"; did you mean {close!r}?" if close else ""
            raise InputError(f"{shorten(text)} is not a unit{guess or '; write ms, GiB, TFLOP/s, days, $/h or %.'}")
        if found is not None:
            made = made / found if place else found
    return made


def _prefixed(part: str) -> Measure | None:
    """A bare count (`M`), bytes written as B, or a count with a prefix (`Mtokens`)."""
    if part in PREFIXES:
        return Measure(1.0, exponents_of("bytes")) if part == "B" else Measure(PREFIXES[part])
    for prefix, scale in PREFIXES.items():
        if part.startswith(prefix) and part[len(prefix) :] in WORDS and WORDS[part[len(prefix) :]] == Measure(1.0):
            return Measure(scale)
    return None
