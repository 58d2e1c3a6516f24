"""What a reader answers, read and judged.

An answer is a quantity (`1.1ms`, `16 GiB`, `4.2e12 FLOP/s`, `240`), a sum that the calculator works out (`2*64*8192*28672 / v5e.bf16`), or
one of the options, by its words or its letter.
Within the tolerance it is right, unless it is what a usual mistake gives; then the mistake is told.
"""

import math
import re
from dataclasses import dataclass

from dragonscale.course.problem import Posed, Trap
from dragonscale.errors import InputError, shorten
from dragonscale.units import parse

LETTERS = "abcdefghij"


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what to tell who gave it. `trap` is the mistake it shows, where it shows one."""

    right: bool
    told: str
    value: float | str
    trap: Trap | None = None


def judge(posed: Posed, text: str) -> Verdict:
    """Judge an answer; what cannot be read is an `InputError`, not a wrong answer.

    >>> posed = Posed("How many bytes are 4 bf16 numbers?", 8.0, "bytes", traps=(Trap(4.0, "bf16 is two bytes."),))
    >>> judge(posed, "8B").right, judge(posed, "4B").told
    (True, 'No. bf16 is two bytes.')
    """
    if posed.options:
        return _judge_option(posed, text)
    assert not isinstance(posed.answer, str)
    value = read_amount(text, posed.dimension)
    trap = next((one for one in posed.traps if near(value, one.value, posed.tolerance)), None)
    if trap is not None:
        return Verdict(False, f"No. {trap.why}", value, trap)
    if near(value, posed.answer, posed.tolerance):
        return Verdict(True, "Right.", value)
    return Verdict(False, _missed(value, posed.answer, posed.dimension), value)


def near(value: float, other: float, tolerance: float) -> bool:
    """Whether two values are within a relative tolerance of the second."""
    return abs(value - other) <= tolerance * abs(other)


def read_amount(text: str, dimension: str) -> float:
    """An amount as a reader writes it: `about 1.1 ms`, `~240`, `12%`."""
    plain = re.sub(r"^(about|around|roughly|approximately|~|≈|=)\s*", "", text.strip(), flags=re.IGNORECASE)
    if not plain:
        raise InputError("The answer is empty; write a number with its unit, such as 1.2ms.")
    if dimension == "count":
        plain = re.sub(
            r"(?<=[\d.])\s*(tokens?|chips?|gpus?|tpus?|x|times|params|parameters|bytes?/param\w*)$",
            "",
            plain,
            flags=re.IGNORECASE,
        )
        if plain.endswith("%"):
            return parse(plain[:-1], "count", "the answer") / 100
    try:
        return parse(plain, dimension, "the answer")
    except InputError:
        if not _SUM.search(plain):
            raise
    return _calculated(plain, dimension)


_SUM = re.compile(r"[\w)%]\s*(\*\*|[-+*·×^()]|/\s*[\d(]|/\s*\w+\.)")
"""Something to be worked out: `2*64*8192`, `1e12 FLOP / v6e.bf16`, `1.2 x 10^6`."""


def _calculated(text: str, dimension: str) -> float:
    """A sum that a reader leaves to the calculator (`dscale calc`)."""
    from dragonscale.calculator.answer import work_out
    from dragonscale.calculator.measure import Measure

    value = work_out(text).lines[-1].value
    if not isinstance(value, Measure) or value.letters:
        raise InputError(f"The answer is {shorten(text)}, which gives no number; write one with its unit.")
    wanted = Measure.of(1.0, {"count": "", "count/s": "/s", "Hz": "/s"}.get(dimension, dimension))
    if value.exponents != wanted.exponents and (dimension != "count" or value.unit != "FLOP/byte"):
        given = f"is in {value.unit}" if value.unit else "is a bare number"
        raise InputError(f"The answer is {shorten(text)}, which {given}, and {dimension} is asked for.")
    return float(value.number) * (3600 if dimension == "USD/h" else 1)


def _judge_option(posed: Posed, text: str) -> Verdict:
    said = text.strip().casefold()
    by_word = [one for one in posed.options if one.casefold() == said]
    by_letter = [one for letter, one in zip(LETTERS, posed.options, strict=False) if said in (letter, f"{letter})")]
    begun = [one for one in posed.options if said and one.casefold().startswith(said)]
    chosen = (by_word or by_letter or (begun if len(begun) == 1 else []))[:1]
    if not chosen:
        offered = ", ".join(f"{letter}) {one}" for letter, one in zip(LETTERS, posed.options, strict=False))
        raise InputError(f"The answer is {text.strip()!r}; choose one of {offered}.")
    right = chosen[0] == posed.answer
    return Verdict(right, "Right." if right else f"No, not {chosen[0]}.", chosen[0])


_FACTORS = (
    (2.0, "It is twice the right value: a factor of two (multiply-adds, bytes of bf16, both directions)."),
    (0.5, "It is half of the right value: a factor of two (multiply-adds, bytes of bf16, both directions)."),
    (8.0, "It is eight times the right value: bits or bytes?"),
    (1 / 8, "It is an eighth of the right value: bits or bytes?"),
)  # fmt: skip


def _missed(value: float, answer: float, dimension: str) -> str:
    """What a wrong value has to do with the right one, without giving that away more than it must."""
    if value == 0 or answer == 0:
        return "No."
    ratio = value / answer
    for factor, told in _FACTORS:
        if near(ratio, factor, 0.01):
            return f"No. {told}"
    power = math.log10(abs(ratio))
    if abs(power) > 0.9 and near(ratio, 10.0 ** round(power), 0.01):
        return f"No. The digits are right, but it is off by a factor of 10^{round(power)}."
    if dimension == "bytes" and any(near(ratio, (1024 / 1000) ** one, 0.004) for one in (-4, -3, -2, -1, 1, 2, 3, 4)):
        return "No. Close: decimal (GB) or binary (GiB)?"
    return f"No, too {'large' if ratio > 1 else 'small'}{', but near' if 0.8 < ratio < 1.25 else ''}."
