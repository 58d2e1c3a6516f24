"""The pieces of an equation of any kind, by trying: the two sides over sixty decades, every change closed in on.

So `max`, `ceil` and closed forms may stand in it. A change of sign is a root only if the difference goes to zero there:
at a jump (`ceil(x) = 5.5`) or a pole it does not. What lies wholly between two tries, and does not dip towards zero, is
not found.
"""

import itertools
import math
from collections.abc import Callable, Iterator

from dragonscale.course.calculator.pieces import SignPieces, State, merged

Difference = Callable[[float], tuple[float, float] | None]
"""The first side less the second and the size of the larger; None where one has no value."""
_LEAST, _MOST, _STEPS = -20, 40, 12
"""Decades over which an unknown is sought, and steps in each."""
MOST_CHANGES = 24
_GONE = 1e-6
"""The part of a difference that is left at a root."""
_ROUNDING, _NEAR = 1e-12, 1e-9
"""Parts of a side: what rounding makes of nothing, and what soon will be lost in it."""
_WHOLE = 2e-9
"""How near a jump is to a round number: `ceil` takes what is whole but for rounding as whole."""
Try = tuple[float, tuple[float, float] | None]


def searched(at: Difference) -> SignPieces:
    """Marks and states over all sizes that mean anything."""
    tries = [(10 ** (_LEAST + step / _STEPS), None) for step in range((_MOST - _LEAST) * _STEPS + 1)]
    found: list[Try] = _without_rounding([(place, at(place)) for place, _ in tries])
    found = sorted(dict((*found, *_more(found, at))).items())
    marks: list[tuple[float, State]] = []
    states: list[State] = [_state(found[0][1])]
    for (low, first), (high, second) in itertools.pairwise(found):
        if _state(first) == _state(second):
            continue
        marks.append(_closed_in(at, (low, first), (high, second)))
        states.append(_state(second))
        if len(marks) > MOST_CHANGES:
            break
    return merged(SignPieces(tuple(marks), tuple(states)))


def _state(value: tuple[float, float] | None) -> State:
    return None if value is None else (value[0] > 0) - (value[0] < 0)


def _without_rounding(tries: list[Try]) -> list[Try]:
    """At both ends sides may be equal only because the rest of one is lost in rounding: there the difference keeps its
    sign."""
    for order in (1, -1):
        tries = tries[::order]
        lost = 0
        while lost < len(tries) and (value := tries[lost][1]) is not None and abs(value[0]) <= _ROUNDING * value[1]:
            lost += 1
        if 0 < lost < len(tries) and (inner := tries[lost][1]) is not None:
            exact = all(value is not None and value[0] == 0 for _, value in tries[:lost])
            if not exact or abs(inner[0]) < _NEAR * inner[1]:
                tries = [(place, inner) for place, _ in tries[:lost]] + tries[lost:]
        tries = tries[::order]
    return tries


def _more(tries: list[Try], at: Difference) -> Iterator[Try]:
    """Tries between the others: at the ends of where the sides have values, and where the difference
    dips towards zero."""
    changes = 0
    for (low, first), (high, second) in itertools.pairwise(tries):
        if (first is None) != (second is None) and changes < MOST_CHANGES:
            changes += 1
            empty_below = first is None  # the edge is the last size that has a value, next to those that have none
            ends = _halved(low, high, lambda middle, empty=empty_below: (at(middle) is None) == empty)
            edge = ends[1 if empty_below else 0]
            yield edge, at(edge)
    for (low, first), (_place, here), (high, second) in zip(tries, tries[1:], tries[2:], strict=False):
        if first is None or here is None or second is None or changes >= MOST_CHANGES:
            continue
        alike = _state(first) == _state(here) == _state(second) != 0
        if alike and abs(here[0]) < min(abs(first[0]), abs(second[0])) and abs(here[0]) > _NEAR * here[1]:
            changes += 1
            lowest = _lowest(at, low, high)
            value = at(lowest)
            if value is not None and abs(value[0]) <= _ROUNDING * max(value[1], abs(first[0]), abs(second[0])):
                value = 0.0, value[1]
            yield lowest, value


def _halved(low: float, high: float, is_low: Callable[[float], bool]) -> tuple[float, float]:
    """The two floats side by side between which something changes."""
    while low < (middle := math.sqrt(low * high)) < high:
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high


def _lowest(at: Difference, low: float, high: float) -> float:
    """Where the difference is smallest, by the golden section."""
    share = (math.sqrt(5) - 1) / 2

    def height(place: float) -> float:
        value = at(place)
        return math.inf if value is None else abs(value[0])

    left, right = high - share * (high - low), low + share * (high - low)
    heights = height(left), height(right)
    for _ in range(80):
        if heights[0] < heights[1]:
            high, right = right, left
            left = high - share * (high - low)
            heights = height(left), heights[0]
        else:
            low, left = left, right
            right = low + share * (high - low)
            heights = heights[1], height(right)
    return _tidy((low + high) / 2, 1e-7, at)


def _closed_in(at: Difference, first: Try, second: Try) -> tuple[float, State]:
    """The place between two tries where the state changes, and the state there."""
    below = _state(first[1])
    low, high = _halved(first[0], second[0], lambda middle: _state(at(middle)) == below)
    values = at(low), at(high)
    ends = [abs(value[0]) for _, value in (first, second) if value is not None]
    if None not in values and ends and all(value and abs(value[0]) <= _GONE * max(ends) for value in values):
        return _tidy(high, 1e-11), 0
    place = _tidy(high, _WHOLE)
    return place, _state(at(place))


def _tidy(root: float, near: float, at: Difference | None = None) -> float:
    """A round number that only rounding kept from being one; with `at`, only if the difference is no larger there."""
    digits = math.floor(-math.log10(near))
    round_one = float(f"{root:.{digits}g}")
    if abs(round_one - root) > near * abs(root):
        return root
    if at is None:
        return round_one
    here, there = at(root), at(round_one)
    return round_one if here is None or (there is not None and abs(there[0]) <= abs(here[0])) else root
