"""The plans that a search shows: the recommended one first, then others by time, no two of them the same to a reader.

Twins, plans of one shape of mesh whose time and memory are the same to a thousandth, are shown once, as the simplest of
them; and of a shape at most `OF_A_SHAPE` are shown while there are others.
"""

import math
from collections import Counter

from dragonscale.training.keeper import SHAPE, Candidate
from dragonscale.training.plan import Plan
from dragonscale.training.simplicity import SAME, points

OF_A_SHAPE = 2


def shape_of(plan: Plan) -> tuple[int, ...]:
    """The part of the mesh that variants of a plan share."""
    return tuple(getattr(plan, name) for name in SHAPE)


def twins(one: Candidate, other: Candidate) -> bool:
    """Whether two plans are the same to a reader: of one shape, as fast and as full."""
    alike = abs(one.seconds / other.seconds - 1) <= SAME and abs(one.hbm_bytes / other.hbm_bytes - 1) <= SAME
    return alike and shape_of(one.plan) == shape_of(other.plan)


def listed(ranked: list[Candidate], leaders: list[Candidate], count: int, sequence: int) -> list[Candidate]:
    """The first of the ranked plans, then at most `count` - 1 different ones of these and of the leaders of other
    shapes."""
    if not ranked:
        return []

    def simpler_first(one: Candidate) -> tuple[float, int, float]:
        rounded = round(math.log(one.seconds) / math.log1p(SAME))
        return rounded, int(points(one.plan, vars(one.plan), sequence)), one.seconds

    shown, spare = ranked[:1], []
    seen = Counter([shape_of(ranked[0].plan)])
    for one in sorted([*ranked[1:], *leaders], key=simpler_first):
        if any(twins(one, other) for other in (*shown, *spare)):
            continue
        shape = shape_of(one.plan)
        if seen[shape] < OF_A_SHAPE:
            seen[shape] += 1
            shown.append(one)
        elif len(spare) < count:
            spare.append(one)
        if len(shown) >= count:
            break
    rest = [*shown[1:], *spare[: count - len(shown)]] if len(shown) < count else shown[1:]
    return [shown[0], *sorted(rest, key=lambda one: one.seconds)]
