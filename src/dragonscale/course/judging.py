"""What a reader answers, read and judged.

An answer is a quantity (`1.1ms`, `16 GiB`, `4.2e12 FLOP/s`, `240`), a sum that the calculator works out
(`2*64*8192*28672 / v5e.bf16`), or one of the options, by its words or its letter. Within the tolerance it is right,
unless it is what a usual mistake gives; then the mistake is told. A whole number (chips, hops) must be met exactly.
"""

import math
import re
from dataclasses import dataclass

from dragonscale.course.calculator.tables import TABLES
from dragonscale.course.problem import Posed, Trap
from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import UNITS, parse

LETTERS = "abcdefghij"
WANTED = TABLES.wanted
"""What an answer looks like, by its dimension."""


@dataclass(frozen=True)
class Judgement:
    """Whether an answer is right, and what to tell who gave it. `trap` is the mistake it shows, where it shows one."""

    right: bool
    told: str
    value: float | str
    trap: Trap | None = None


def judge(posed: Posed, text: str) -> Judgement:
    """Judge an answer; what cannot be read is an `InputError`, not a wrong answer.

    >>> posed = Posed("How many bytes are 4 bf16 numbers?", 8.0, "bytes", traps=(Trap(4.0, "bf16 is two bytes."),))
    >>> judge(posed, "8B").right, judge(posed, "4B").told
    (True, 'No. bf16 is two bytes.')
    """
    if posed.options:
        return _judge_option(posed, text)
    assert not isinstance(posed.answer, str)
    value = read_amount(text, posed.dimension)
    if posed.whole and math.isclose(value, posed.answer, rel_tol=1e-9):
        return Judgement(True, "Right.", value)
    fallen = [trap for trap in posed.traps if takes_for(posed, value, trap.value)]
    if fallen:
        trap = min(fallen, key=lambda trap: abs(trap.value - value))
        return Judgement(False, f"No. {trap.why}", value, trap)
    if posed.whole and not math.isclose(value, round(value), rel_tol=1e-9):
        return Judgement(False, "No. A whole number is asked for.", value)
    if not posed.whole and near(value, posed.answer, posed.tolerance):
        return Judgement(True, "Right.", value)
    return Judgement(False, _missed(value, posed.answer, posed.dimension), value)


def near(value: float, other: float, tolerance: float) -> bool:
    """Whether two values are within a relative tolerance of the second."""
    return abs(value - other) <= tolerance * abs(other)


def takes_for(posed: Posed, value: float, other: float) -> bool:
    """Whether a value of this question counts as another: within its tolerance, of whole numbers the same."""
    if posed.whole:
        return abs(value - other) <= min(0.005 * abs(other), 0.49)
    return near(value, other, posed.tolerance)


def read_amount(text: str, dimension: str) -> float:
    """An amount as a reader writes it: `about 1.1 ms`, `~240`, `12%`, `2.2 billion`, `3 hours`.

    A bare number is of the base unit where there is one that everybody means: bytes, FLOPs, dollars.
    """
    plain = _plain(text)
    if dimension == "count":
        plain = _COUNTED.sub("", plain)
        if plain.endswith("%"):
            return _parsed(plain[:-1], "count") / 100
    if dimension in _BARE and _NUMBER.fullmatch(plain):
        plain = f"${plain}" if dimension == "USD" else plain + _BARE[dimension]
    try:
        return parse(plain, dimension, "what you wrote")
    except InputError:
        if not _SUM.search(plain):
            raise
    return _calculated(plain, dimension)


_BARE = {"bytes": "B", "FLOP": "FLOP", "USD": "$"}
_NUMBER = re.compile(r"[\d.,_]+(e[-+]?\d+)?", re.IGNORECASE)
_COUNTED = re.compile(
    r"(?<=[\d.kMBTi])\s*(tokens?|chips?|gpus?|tpus?|x|times|params|parameters|hops?|steps?|sequences?|requests?|bytes?/param\w*)$",
    re.IGNORECASE,
)
_WORDS = {"thousand": "k", "million": "M", "billion": "B", "trillion": "T", "dollars": "USD", "dollar": "USD"}
_TIMES = {"milliseconds": "ms", "millisecond": "ms", "microseconds": "us", "microsecond": "us", "nanoseconds": "ns"}
_LARGE = {"ZFLOP": 1e21, "YFLOP": 1e24}
"""Prefixes that the units of the planner do without."""
_SUM = re.compile(r"[\w)%]\s*(\*\*|[-+*·×^()]|/\s*[\d(]|/\s*\w+\.)")
"""Something to be worked out: `2*64*8192`, `1e12 FLOP / v6e.bf16`, `1.2 * 10^6`."""
_TAIL = re.compile(r"(?<=[\d)])\s*([A-Za-zµ$][A-Za-zµ$/]*)$")
"""The unit behind a sum: `1e12/920e12 s`."""


def _plain(text: str) -> str:
    """What was typed without the words that say that it is rough, and with units as the planner writes them."""
    plain = re.sub(r"^(about|around|roughly|approximately|~|≈|=)\s*", "", text.strip(), flags=re.IGNORECASE)
    if not plain:
        raise InputError("There is no answer; write a number with its unit, such as 1.2ms.")
    for word, unit in (_WORDS | _TIMES).items():
        plain = re.sub(rf"\s*\b{word}\b", unit, plain, flags=re.IGNORECASE)
    plain = re.sub(r"(?<=\d)\s*[x×]\s*10\s*\^\s*(?=-?\d)", "e", plain)
    for unit, scale in _LARGE.items():
        large = re.fullmatch(rf"([\d.]+)\s*{unit}s?", plain)
        plain = f"{float(large[1]) * scale:g}FLOP" if large else plain
    return plain


def _parsed(text: str, dimension: str) -> float:
    return parse(text, dimension, "what you wrote")


def _calculated(text: str, dimension: str) -> float:
    """A sum that a reader leaves to the calculator (`dscale calc`); a unit behind the whole of it is its own."""
    tail = _TAIL.search(text)
    if tail is not None and tail[1] in UNITS[dimension]:
        try:
            value, unit = _worked(text[: tail.start()])
            if not unit:
                return value * UNITS[dimension][tail[1]]
        except InputError:
            pass  # the unit belongs to its last number
    value, unit = _worked(text)
    wanted = {"count": "", "count/s": "/s", "Hz": "/s"}.get(dimension, dimension)
    if unit == wanted or (dimension == "count" and unit == "FLOP/byte") or (not unit and dimension in _BARE):
        return value * (3600 if dimension == "USD/h" else 1)
    if unit in ("/s", "Hz") and wanted == "/s":
        return value
    raise InputError(f"{shorten(text)} is {f'in {unit}' if unit else 'a bare number'}; write {WANTED[dimension]}.")


def _worked(text: str) -> tuple[float, str]:
    """The value of a sum and the name of its unit."""
    from dragonscale.course.calculator.answer import work_out
    from dragonscale.course.calculator.measure import Measure

    value = work_out(text).lines[-1].value
    if not isinstance(value, Measure) or value.letters:
        raise InputError(f"{shorten(text)} gives no number; write one with its unit.")
    return float(value.number), value.unit


def _judge_option(posed: Posed, text: str) -> Judgement:
    typed = text.strip().casefold()
    tight = re.sub(r"\s+", "", typed)
    lettered = list(zip(LETTERS, posed.options, strict=False))
    by_word = [option for option in posed.options if re.sub(r"\s+", "", option.casefold()) == tight]
    by_letter = [option for letter, option in lettered if typed in (letter, f"{letter})")]
    begun = [option for option in posed.options if typed and option.casefold().startswith(typed)]
    chosen = (by_word or by_letter or (begun if len(begun) == 1 else []))[:1]
    if not chosen:
        offered = ", ".join(f"{letter}) {option}" for letter, option in lettered)
        raise InputError(f"{shorten(text.strip())} is none of the options; choose one of {offered}.")
    right = chosen[0] == posed.answer
    return Judgement(right, "Right." if right else f"No, not {chosen[0]}.", chosen[0])


_FACTORS = (
    (2.0, "It is twice the right value."),
    (0.5, "It is half of the right value."),
    (8.0, "It is eight times the right value."),
    (1 / 8, "It is an eighth of the right value."),
)


def _missed(value: float, answer: float, dimension: str) -> str:
    """What a wrong value has to do with the right one, without giving that away more than it must."""
    if value == 0 or answer == 0:
        return "No."
    ratio = value / answer
    for factor, sentence in _FACTORS:
        if near(ratio, factor, 0.01):
            return f"No. {sentence}"
    power = math.log10(abs(ratio))
    if abs(power) > 0.9 and near(ratio, 10.0 ** round(power), 0.01):
        return f"No. The digits are right, but it is off by a factor of 10^{round(power)}."
    if dimension == "bytes" and any(near(ratio, 1.024**power, 0.004) for power in (-4, -3, -2, -1, 1, 2, 3, 4)):
        return "No. Close: decimal (GB) or binary (GiB)?"
    return f"No, too {'large' if ratio > 1 else 'small'}{', but near' if 0.8 < ratio < 1.25 else ''}."
