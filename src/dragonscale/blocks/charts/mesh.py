"""The mesh of a plan drawn: chips as squares in groups by axis, and beside it what each axis moves.

Axes are given from the outermost to the innermost. Chips of one group of the innermost axis stand side by side in a
frame of that axis's colour; a frame of the next axis goes around several of those, and so on. Where an axis has too
many members to draw, the first few stand for all and dots for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import APART, LayerRows, Row, pane
from dragonscale.blocks.charts.chart import WIDTH, Chart, framed
from dragonscale.blocks.charts.text import text_width, wrapped
from dragonscale.blocks.charts.theme import LABEL, SMALL

CHIP, APARTNESS, PAD = 15.0, 4.0, 7.0
"""Pixels: a chip, the room between chips, the room inside a frame."""
ROOM = 380.0, 230.0
"""Pixels across and down that members of one axis may fill."""
LARGEST = 1.7
"""How far a small mesh is enlarged."""
LINE = 21.0


Dot = tuple[float, float]
"""Where three dots stand for what is not drawn."""


@dataclass(frozen=True)
class AxisMove:
    """What goes over an axis in a step: bytes that a chip sends, the time that takes and the part of it that is
    exposed."""

    name: str
    bytes: float
    seconds: float | None = None
    exposed: float | None = None


@dataclass(frozen=True)
class MeshAxis:
    """One axis: its degree, its colour by meaning, what it splits, and the collectives that run over it."""

    name: str
    degree: int
    role: str
    splits: str = ""
    moves: tuple[AxisMove, ...] = ()


@dataclass(frozen=True)
class AxisFrame:
    """A frame or a chip (without an axis) at its place."""

    left: float
    top: float
    right: float
    bottom: float
    axis: str = ""


def mesh_chart(
    axes: Sequence[MeshAxis],
    title: str,
    subtitle: str = "",
    chip: str = "chip",
    width: int = WIDTH,
    height: float = ROOM[1],
    down: bool = False,
) -> Chart:
    """The mesh and, beside it, its axes with what they move; `down` stacks the groups of the outermost axis, where
    there is room, so that two axes make rows and columns."""
    used = [axis for axis in axes if axis.degree > 1]
    frames, more = _enlarged(*mesh_frames([(axis.name, axis.degree) for axis in used], height, down), height)
    wide, tall = (
        max((frame.right for frame in frames), default=CHIP),
        max((frame.bottom for frame in frames), default=CHIP),
    )
    roles = {axis.name: axis.role for axis in used}
    note = f"each square is one {chip}" + (", dots are the others" if more else "")
    across, high = max(wide + 4, text_width(note, SMALL) + 8), tall + LINE + 8
    here = pane(across, high)
    dots = [{"x": left + 5 * n, "y": top} for left, top in more for n in (-1, 0, 1)]
    boxes = [_rect(frame) | {"paint": roles[frame.axis]} for frame in frames if frame.axis]
    chips = [_rect(frame) for frame in frames if not frame.axis]
    picture = here.view(
        [
            here.boxes(boxes, filled=False, strokeWidth=2.5, cornerRadius=4),
            here.boxes(chips, color="@muted", cornerRadius=2),
            here.dots(dots, 9, color="@muted"),
            here.texts([{"x": 0.0, "y": tall + LINE, "text": note}], color="@muted", fontSize=SMALL),
        ]
    )
    table = axis_table(used, width - picture["width"] - 30)
    return framed(title, {"hconcat": [picture, table], "spacing": 30, "resolve": APART}, subtitle)


def _enlarged(frames: list[AxisFrame], dots: list[Dot], height: float) -> tuple[list[AxisFrame], list[Dot]]:
    """A small mesh drawn larger, as far as there is room."""
    wide, tall = max(frame.right for frame in frames), max(frame.bottom for frame in frames)
    by = max(1.0, min(LARGEST, ROOM[0] / wide, height / tall))
    larger = [
        AxisFrame(frame.left * by, frame.top * by, frame.right * by, frame.bottom * by, frame.axis) for frame in frames
    ]
    return larger, [(x * by, y * by) for x, y in dots]


def _rect(frame: AxisFrame) -> Row:
    return {"from": frame.left, "to": frame.right, "top": frame.top, "bottom": frame.bottom}


def mesh_frames(
    axes: Sequence[tuple[str, int]], height: float = ROOM[1], down: bool = False
) -> tuple[list[AxisFrame], list[Dot]]:
    """Chips and frames at their places, outermost axis first, and where dots stand for what is not drawn.

    >>> frames, dots = mesh_frames([("fsdp", 2), ("tensor", 4)])
    >>> sum(not frame.axis for frame in frames), sum(frame.axis == "tensor" for frame in frames), dots
    (8, 2, [])
    """
    frames = [AxisFrame(0, 0, CHIP, CHIP)]
    dots: list[Dot] = []
    for level, (name, degree) in enumerate(reversed(axes)):
        # Inner groups leave room for some of the outer ones.
        part = (level + 1) / len(axes)
        space = max(ROOM[0] * part, 8 * (CHIP + APARTNESS)), height * part
        if down and level == len(axes) - 1 > 0 and degree * (frames[0].bottom + APARTNESS + 3) <= height:
            space = 0.0, height
        frames, dots = _repeated(frames, dots, name, degree, APARTNESS + (level > 0) * 3, space)
    return frames, dots


def grid(degree: int, wide: float, tall: float, space: tuple[float, float] = ROOM) -> tuple[int, int, int]:
    """Columns of a grid of members of this size, its rows, and how many members are drawn.

    >>> grid(8, 19, 19), grid(256, 60, 40), grid(4, 400, 300)
    ((8, 1, 8), (6, 5, 29), (1, 1, 1))
    """
    columns, rows = max(1, int(space[0] // wide)), max(1, int(space[1] // tall))
    if degree <= columns:
        return degree, 1, degree
    if degree <= columns * rows:
        lines = -(-degree // columns)
        return -(-degree // lines), lines, degree
    return columns, rows, columns if rows == 1 else columns * rows - 1


def _repeated(
    frames: list[AxisFrame], dots: list[Dot], name: str, degree: int, gap: float, space: tuple[float, float]
) -> tuple[list[AxisFrame], list[Dot]]:
    """One group again and again, with a frame around all."""
    wide, tall = max(frame.right for frame in frames) + gap, max(frame.bottom for frame in frames) + gap
    columns, rows, shown = grid(degree, wide, tall, space)
    moved = [(PAD + number % columns * wide, PAD + number // columns * tall) for number in range(shown)]
    copies = [_moved(frame, dx, dy) for dx, dy in moved for frame in frames]
    marks = [(x + dx, y + dy) for dx, dy in moved for x, y in dots]
    right, bottom = PAD * 2 + columns * wide - gap, PAD * 2 + rows * tall - gap
    if degree > shown:
        beyond = rows == 1  # a single row goes on to the right, a grid ends in a place without a member
        right += 20 * beyond
        across = right - PAD - 9 if beyond else PAD + (columns - 0.5) * wide - gap / 2
        marks.append((across, PAD + (rows - 0.5) * tall - gap / 2))
    return [AxisFrame(0, 0, right, bottom, name), *copies], marks


def _moved(frame: AxisFrame, dx: float, dy: float) -> AxisFrame:
    return AxisFrame(frame.left + dx, frame.top + dy, frame.right + dx, frame.bottom + dy, frame.axis)


def axis_table(axes: Sequence[MeshAxis], width: float) -> dict[str, Any]:
    """Each axis with what it splits and moves, outermost first."""
    rows, at = LayerRows(list), 8.0
    moves = [move for axis in axes for move in axis.moves]
    name_width = max((text_width(move.name, LABEL) for move in moves), default=0.0)
    time_width = max((text_width(_time(move), LABEL) for move in moves if move.seconds), default=0.0)
    first = max(24 + name_width + 80, width - time_width - 24)
    second = first + time_width + 24
    width = max(width, second)
    for axis in axes:
        rows["swatches"].append({"from": 0.0, "to": 15.0, "top": at - 7.5, "bottom": at + 7.5, "paint": axis.role})
        rows["heads"].append({"x": 24.0, "y": at, "text": f"{axis.name} {axis.degree:,}"})
        start = 24 + text_width(f"{axis.name} {axis.degree:,}", LABEL + 1, bold=True) + 12
        lines = wrapped(f"splits {axis.splits}", SMALL, width - start) if axis.splits else []
        for line in lines:
            rows["words"].append({"x": start, "y": at, "text": line})
            at += LINE
        at += LINE if not lines else 2
        for move in axis.moves:
            rows["names"].append({"x": 24.0, "y": at, "text": move.name})
            rows["sizes"].append({"x": first, "y": at, "text": amount(move.bytes, "bytes")})
            if move.seconds:
                rows["times"].append({"x": second, "y": at, "text": _time(move)})
            at += LINE
        at += 12
    if not axes:
        rows["heads"].append({"x": 0.0, "y": at, "text": "one chip: nothing is split"})
        at += LINE
    here = pane(width, at)
    return here.view(
        [
            here.boxes(rows["swatches"]),
            here.texts(rows["heads"], fontWeight="bold", fontSize=LABEL + 1, color="@ink"),
            here.texts(rows["words"], fontSize=SMALL, color="@muted"),
            here.texts(rows["names"], color="@ink"),
            here.texts(rows["sizes"], align="right", color="@ink"),
            here.texts(rows["times"], align="right", color="@ink"),
        ]
    )


def _time(move: AxisMove) -> str:
    assert move.seconds
    seconds, exposed = amount(move.seconds, "s"), move.exposed
    if exposed is None:
        return seconds
    if exposed < 0.005 * move.seconds:
        return f"{seconds}, all hidden"
    return f"{seconds}, {'all' if exposed > 0.995 * move.seconds else amount(exposed, 's')} exposed"
