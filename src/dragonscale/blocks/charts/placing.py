"""Labels beside points, none over another: a greedy pass over a few places around each point.

Points are taken from the most crowded to the least, and each label takes the first place where it covers no other
label, no point and no line; where there is none it is left out, and whoever draws may number the point instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""
Segment = tuple[float, float, float, float]
"""From x, y to x, y."""


@dataclass(frozen=True)
class PlacedLabel:
    """A label's left end and its middle line; `far` says that a thin line should lead to it."""

    x: float
    y: float
    far: bool


def overlap(box: Box, other: Box) -> bool:
    """Whether two boxes share a pixel.

    >>> overlap((0, 0, 10, 10), (9, 9, 20, 20)), overlap((0, 0, 10, 10), (10, 0, 20, 10))
    (True, False)
    """
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def crosses(box: Box, line: Segment, steps: int = 24) -> bool:
    """Whether a line passes through a box, looked at in a few points of the part beside it."""
    x0, y0, x1, y1 = line
    if max(x0, x1) < box[0] or min(x0, x1) > box[2] or max(y0, y1) < box[1] or min(y0, y1) > box[3]:
        return False
    # Clip to the box's columns first, so that few points suffice however long the line is.
    if x1 != x0:
        ends = sorted(((box[0] - x0) / (x1 - x0), (box[2] - x0) / (x1 - x0)))
        first, last = max(0.0, ends[0]), min(1.0, ends[1])
    else:
        first, last = 0.0, 1.0
    at = (first + (last - first) * step / steps for step in range(steps + 1))
    return any(box[1] <= y0 + (y1 - y0) * part <= box[3] for part in at)


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    lines: Sequence[Segment] = (),
    occupied: Sequence[Box] = (),
    gap: float = 9.0,
) -> list[PlacedLabel | None]:
    """A place for each label (width, height) near its point, inside the frame; None where there is none.

    >>> place_labels([(50, 50), (52, 50)], [(40, 14), (40, 14)], (0, 0, 200, 100))[0] is not None
    True
    """
    dots = [(x - gap / 2, y - gap / 2, x + gap / 2, y + gap / 2) for x, y in points]
    boxes: list[Box] = list(occupied)
    leads: list[Segment] = []
    placed: list[PlacedLabel | None] = [None] * len(points)
    crowded = sorted(range(len(points)), key=lambda n: (_nearest(points, n), n))
    for number in crowded:
        width, height = sizes[number]
        others = [dot for index, dot in enumerate(dots) if index != number]
        for x, y, far in _places(points[number], width, height, gap):
            box = (x - 2, y - height / 2 - 1, x + width + 2, y + height / 2 + 1)
            inside = frame[0] <= box[0] and box[2] <= frame[2] and frame[1] <= box[1] and box[3] <= frame[3]
            free = inside and not any(overlap(box, other) for other in (*boxes, *others))
            lead = (*points[number], x if x > points[number][0] else x + width, y)
            # A label far from its point needs a line to it, which must not run through other labels either.
            if free and far and any(crosses(other, lead) for other in (*boxes, *others)):
                continue
            if free and not any(crosses(box, line) for line in (*lines, *leads)):
                boxes.append(box)
                leads += [lead] if far else []
                placed[number] = PlacedLabel(x, y, far)
                break
    return placed


def _nearest(points: Sequence[tuple[float, float]], number: int) -> float:
    here = points[number]
    return min((math.dist(here, other) for index, other in enumerate(points) if index != number), default=1e9)


def _places(point: tuple[float, float], width: float, height: float, gap: float) -> list[tuple[float, float, bool]]:
    """Places around a point, best first: right, left, above, below, then further away."""
    x, y = point
    close_by = [
        (x + gap, y),
        (x - gap - width, y),
        (x - width / 2, y - gap - height / 2),
        (x - width / 2, y + gap + height / 2),
    ]
    close_by += [(x + gap * 0.7, y + way * (gap + height / 2)) for way in (-1, 1)]
    close_by += [(x - gap * 0.7 - width, y + way * (gap + height / 2)) for way in (-1, 1)]
    further = [
        (x + side * reach - (width if side < 0 else 0), y + rise * reach)
        for reach in (26.0, 44.0, 64.0, 90.0)
        for rise in (0.45, -0.45, 0.9, -0.9)
        for side in (1, -1)
    ]
    return [(left, middle, False) for left, middle in close_by] + [(left, middle, True) for left, middle in further]


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights moved apart by at least `room`, in their order and within limits as far as they fit: labels at line ends.

    >>> spread([50, 52, 90], 16, 0, 100)
    [43.0, 59.0, 90.0]
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    groups: list[list[int]] = []
    for number in order:
        groups.append([number])
        while (
            len(groups) > 1
            and _top(heights, groups[-1], gap, low, high) < _bottom(heights, groups[-2], gap, low, high) + gap
        ):
            last = groups.pop()
            groups[-1] += last
    placed = list(heights)
    for group in groups:
        top = _top(heights, group, gap, low, high)
        for index, number in enumerate(group):
            placed[number] = top + index * gap
    return placed


def _top(heights: Sequence[float], group: list[int], gap: float, low: float, high: float) -> float:
    middle = sum(heights[number] for number in group) / len(group)
    length = (len(group) - 1) * gap
    return max(low, min(middle - length / 2, high - length))


def _bottom(heights: Sequence[float], group: list[int], gap: float, low: float, high: float) -> float:
    return _top(heights, group, gap, low, high) + (len(group) - 1) * gap
