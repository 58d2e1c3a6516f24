"""Pictures of the chapter on TPUs: a slice with its hosts and rings, the roof of each wire."""

from collections.abc import Callable

import dragonscale as ds
from dragonscale.blocks.charts import Chart, Roof, roofline_chart
from dragonscale.blocks.charts.axes import Row, pane
from dragonscale.blocks.charts.chart import framed
from dragonscale.blocks.charts.theme import SMALL
from dragonscale.course.closed_forms.rooflines import axis_bandwidth

STEP, CHIP, STUB = 44.0, 18.0, 16.0
"""Pixels from chip to chip, a chip, and what is drawn of a link that goes around."""
PLACE = "x", "y", "x1", "y1"


def _slice() -> Chart:
    """v5e:8x16 with every chip, link and host: X is a line of 8, Y a ring of 16."""
    piece = ds.parse_slice("v5e:8x16")
    (down, across), (host_down, host_across) = piece.shape, piece.chip.host_shape
    here = pane(across * STEP + 2 * STUB, down * STEP + 2 * STUB + 26)

    def middle(place: int) -> float:
        return STUB + (place + 0.5) * STEP

    links: list[Row] = []
    around: list[Row] = []
    for row in range(down):
        links += [_line(middle(n), middle(row), middle(n + 1), middle(row)) for n in range(across - 1)]
        if piece.wrap[1]:
            ends = (
                (middle(0) - STEP / 2 - STUB, middle(0)),
                (middle(across - 1), middle(across - 1) + STEP / 2 + STUB),
            )
            around += [_line(left, middle(row), right, middle(row)) for left, right in ends]
    for column in range(across):
        links += [_line(middle(column), middle(n), middle(column), middle(n + 1)) for n in range(down - 1)]
    chips = [_box(middle(c), middle(r), CHIP, CHIP) for r in range(down) for c in range(across)]
    hosts = [
        _box(
            middle(c) + (host_across - 1) * STEP / 2,
            middle(r) + (host_down - 1) * STEP / 2,
            host_across * STEP - 8,
            host_down * STEP - 8,
        )
        for r in range(0, down, host_down)
        for c in range(0, across, host_across)
    ]
    note = "squares: chips; frames: hosts of 4x2; red: links that go around"
    frame = {"type": "rect", "filled": False, "color": "@grid", "strokeWidth": 2, "cornerRadius": 6}
    chip = {"type": "rect", "color": "@compute", "cornerRadius": 3}
    words = [{"x": STUB, "y": down * STEP + 2 * STUB + 12, "text": note}]
    view = here.view(
        [
            here.layer(frame, hosts, x2="x1", y2="y1"),
            here.leads(links, color="@muted", strokeWidth=2),
            here.leads(around, color="@limit", strokeWidth=3, strokeDash=[5, 3]),
            here.layer(chip, chips, x2="x1", y2="y1"),
            here.texts(words, color="@muted", fontSize=SMALL),
        ]
    )
    told = f"{piece.chips} chips, {piece.hosts} hosts; X (down) is a line of {down}, Y (across) a ring of {across}"
    return framed("A slice v5e:8x16", view, told)


def _line(x: float, y: float, x1: float, y1: float) -> Row:
    return dict(zip(PLACE, (x, y, x1, y1), strict=True))


def _box(x: float, y: float, wide: float, tall: float) -> Row:
    return _line(x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)


def _wires() -> Chart:
    chip = ds.load_chip("v5p")
    speeds = {name: chip.bandwidth(name.lower()) for name in ("VMEM", "HBM", "PCIe", "DCN")}
    speeds["ICI axis"] = axis_bandwidth(chip)
    roofs = [Roof(name, chip.peak("bf16"), speed) for name, speed in sorted(speeds.items(), key=lambda one: -one[1])]
    return roofline_chart(
        roofs,
        [],
        "One TPU v5p: a roof for each memory and wire",
        "bf16; the slower the wire, the more FLOPs each byte must feed",
    )


PICTURES: dict[str, Callable[[], Chart]] = {
    "tpus-slice": _slice,
    "tpus-wires": _wires,
}
