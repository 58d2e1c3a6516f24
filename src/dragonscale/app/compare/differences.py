"""One side against another: the terms of time that differ, what explains most of it, and whether bands can tell them
apart."""

from dragonscale.app.compare.records import Difference, SettingDifference, Side, TermDifference
from dragonscale.app.compare.sides import STEP, TOKENS
from dragonscale.physics.units import render

EXPLAINED = 0.9
"""The part of all that differs which the named terms should reach."""
MOST_NAMED = 3
SAME = 0.005
"""Steps closer than this are called the same."""


def difference(first: Side, second: Side, kind: str) -> Difference:
    """The second side against the first, for the tokens of the first."""
    if not (first.feasible and second.feasible):
        broken = next(side for side in (second, first) if not side.feasible)
        why = broken.problems[0].rstrip(".") if broken.problems else "nothing fits"
        text = f"{broken.key} ({broken.label or broken.slice}) cannot run: {why}."
        return Difference(first.key, second.key, 0.0, 0.0, [], changed(first, second), None, text)
    # for other tokens a step, its time is that for as many as the first has; decode steps stay as they are
    times = first.tokens / second.tokens if kind == "training" else 1.0
    mine, other = seconds_of(first), seconds_of(second) * times
    terms = term_differences(first, second, times)
    beyond = apart(first, second, kind, times)
    text = _sentence(first, second, other / mine, terms, kind) + _certain(beyond, kind)
    settings = changed(first, second)
    return Difference(first.key, second.key, other / mine, other - mine, terms, settings, beyond, text)


def seconds_of(side: Side) -> float:
    """The step."""
    found = side.figure(STEP)
    return 0.0 if found is None or found.value is None else found.value


def term_differences(first: Side, second: Side, times: float = 1.0) -> list[TermDifference]:
    """Every term of either step, what differs most first. What the terms leave of a step is a row of its own."""
    mine = {term.name: term.exposed_s for term in first.terms}
    other = {term.name: term.exposed_s * times for term in second.terms}
    names = [*mine, *(name for name in other if name not in mine)]
    rows = [
        TermDifference(name, mine.get(name, 0.0), other.get(name, 0.0), other.get(name, 0.0) - mine.get(name, 0.0))
        for name in names
    ]
    return sorted(rows, key=lambda row: -abs(row.difference_s))


def changed(first: Side, second: Side) -> list[SettingDifference]:
    """The settings that two plans have otherwise."""
    names = [*first.settings, *(name for name in second.settings if name not in first.settings)]
    pairs = [(name, first.settings.get(name), second.settings.get(name)) for name in names]
    return [SettingDifference(name, old, new) for name, old, new in pairs if old != new]


def apart(first: Side, second: Side, kind: str, times: float = 1.0) -> bool | None:
    """Whether the bands of two sides lie apart; None where one has none."""
    name = STEP if kind == "training" else TOKENS
    one, other = first.figure(name), second.figure(name)
    if one is None or other is None or None in (one.low, one.high, other.low, other.high):
        return None
    assert one.low is not None and one.high is not None and other.low is not None and other.high is not None  # noqa: PT018
    return other.high * times < one.low or one.high < other.low * times


def _sentence(first: Side, second: Side, ratio: float, terms: list[TermDifference], kind: str) -> str:
    """How much faster the second is and by what."""
    who = f"{second.key} ({second.label})"
    step = "" if kind == "training" else " a decode step"
    if abs(ratio - 1) < SAME:
        start = f"{who} takes as long{step} as {first.key}"
    else:
        word = "faster" if ratio < 1 else "slower"
        start = f"{who} is {_much(ratio)} {word}{step} than {first.key}"
    named = _named(terms)
    said = ", ".join(f"{render(abs(row.difference_s), 's')} {_more(row)} {row.name}" for row in named)
    start += f": {said}" if said else ""
    return start + _yielded(first, second) if kind == "serving" else start


def _much(ratio: float) -> str:
    """Speed over speed: 12%, or 2.4x where it is more than twice."""
    speed = 1 / ratio if ratio < 1 else ratio
    return f"{speed:.2g}x" if speed >= 2 else f"{speed - 1:.0%}" if speed >= 1.1 else f"{speed - 1:.1%}"


def _more(row: TermDifference) -> str:
    return "more" if row.difference_s > 0 else "less"


def _named(terms: list[TermDifference]) -> list[TermDifference]:
    """The few terms that make up most of what differs."""
    total, named, seen = sum(abs(row.difference_s) for row in terms), [], 0.0
    for row in terms[:MOST_NAMED]:
        if seen >= EXPLAINED * total or abs(row.difference_s) < 0.03 * total:
            break
        named.append(row)
        seen += abs(row.difference_s)
    return named


def _yielded(first: Side, second: Side) -> str:
    """What the second makes of a chip against the first."""
    one, other = first.figure(TOKENS), second.figure(TOKENS)
    if one is None or other is None or not one.value or not other.value:
        return ""
    ratio = other.value / one.value
    many = "as many" if abs(ratio - 1) < SAME else f"{_much(ratio)} {'more' if ratio > 1 else 'fewer'}"
    batches = f" (batches of {second.tokens:,.0f} and {first.tokens:,.0f})" if first.tokens != second.tokens else ""
    return f"; {many} tokens/s a chip{batches}"


def _certain(beyond: bool | None, kind: str) -> str:
    what = "steps" if kind == "training" else "tokens/s"
    if beyond is None:
        return "."
    return (
        f". The error bands of their {what} lie apart: the difference is larger than the error."
        if beyond
        else f". The error bands of their {what} overlap: the difference is smaller than the error."
    )
