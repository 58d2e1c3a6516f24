"""Pictures of the chapter on GPUs: a fat tree, collectives from two GPUs to a thousand, where
parallelism stops hiding."""

from collections.abc import Callable

from dragonscale.blocks.charts import Bar, Chart, LineSeries, RuleLine, bars, line_chart
from dragonscale.blocks.charts.axes import Row, log_axis, pane
from dragonscale.blocks.charts.chart import framed
from dragonscale.blocks.charts.theme import SMALL
from dragonscale.course.closed_forms.switched import dp_tokens
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.fat_tree import fat_tree, load_switch

WIDE, STEP = 780.0, 74.0
"""Pixels across the tree, and from tier to tier."""


def _tree() -> Chart:
    """1,024 H100s: spines, scalable units of leaves, nodes, GPUs, and what each cable bundle carries."""
    tree = fat_tree(load_chip("h100"), load_switch("ndr"), 1024)
    spine, leaf, node = (tree.tier(name) for name in ("spine", "leaf", "node"))
    units, spines = int(leaf.groups), int(spine.total)
    boxes: list[Row] = []
    lines: list[Row] = []
    texts: list[Row] = []
    tops = [10 + STEP * tier for tier in range(4)]
    spots = [(place + 0.5) * WIDE / 8 for place in range(8)]
    for x in spots:
        boxes.append(_box(x, tops[0], 56, 22, "tensor"))
        texts.append({"x": x, "y": tops[0], "text": "spine"})
    for unit in range(units):
        middle = (unit + 0.5) * WIDE / units
        boxes.append(_box(middle, tops[1], 120, 24, "fsdp"))
        texts.append({"x": middle, "y": tops[1], "text": f"{int(leaf.switches)} leaf switches"})
        lines += [_line(x, tops[0] + 11, middle, tops[1] - 12) for x in spots]
        for side in (-1, 1):
            at = middle + side * WIDE / units / 4
            lines.append(_line(middle, tops[1] + 12, at, tops[2] - 12))
            boxes.append(_box(at, tops[2], 84, 24, "hbm"))
            texts.append({"x": at, "y": tops[2], "text": "node"})
            for gpu in range(8):
                across = at + (gpu - 3.5) * 11
                lines.append(_line(at, tops[2] + 12, across, tops[3] - 5))
                boxes.append(_box(across, tops[3], 8, 10, "compute"))
    told = (
        (tops[0], f"{spines} spine switches; a unit sends {_rate(spine.child_bandwidth)} up"),
        (tops[1], f"{units} units of {int(leaf.switches)} leaf switches; a node sends {_rate(leaf.child_bandwidth)}"),
        (tops[2], f"{int(leaf.children)} nodes a unit, {int(node.switches)} NVSwitches each"),
        (tops[3], f"{int(node.children)} GPUs a node; a GPU sends {_rate(node.child_bandwidth)}"),
    )
    words = [{"x": 0.0, "y": tops[3] + 34 + 19 * place, "text": text} for place, (_, text) in enumerate(told)]
    here = pane(WIDE, tops[3] + 34 + 19 * 4)
    view = here.view(
        [
            here.leads(lines, color="@muted", strokeWidth=0.6),
            here.layer({"type": "rect", "cornerRadius": 3}, boxes, x2="x1", y2="y1"),
            here.texts(texts, align="center", color="#16181d", fontSize=SMALL),
            here.texts(words, color="@ink", fontSize=SMALL),
        ]
    )
    return framed("A fat tree of 1,024 H100s", view, "half of the spines and two nodes of each unit are drawn")


def _box(x: float, y: float, wide: float, tall: float, paint: str) -> Row:
    return {"x": x - wide / 2, "x1": x + wide / 2, "y": y - tall / 2, "y1": y + tall / 2, "paint": paint}


def _line(x: float, y: float, x1: float, y1: float) -> Row:
    return {"x": x, "y": y, "x1": x1, "y1": y1}


def _rate(value: float) -> str:
    return f"{value / 1e12:g} TB/s" if value >= 1e12 else f"{value / 1e9:g} GB/s"


def _collectives() -> Chart:
    """400 MB by kind of collective, from 2 GPUs to 1,024."""
    levels = load_chip("h100").network.levels  # pyright: ignore[reportAttributeAccessIssue]
    sizes = [float(2**power) for power in range(1, 11)]
    kinds = {
        "AllReduce": ("all_reduce", Options(exact=True)),
        "AllReduce in the switches": ("all_reduce", Options(exact=True, in_network=True)),
        "AllGather or ReduceScatter": ("all_gather", Options(exact=True)),
        "AllToAll": ("all_to_all", Options(exact=True)),
    }
    series = [
        LineSeries(
            name,
            tuple((size, float(collective_time(kind, 400e6, Switches(size, levels), how).lower)) for size in sizes),
            dots=True,
        )
        for name, (kind, how) in kinds.items()
    ]
    x = log_axis("GPUs", "degree", sizes, margin=0.02)
    y = log_axis("time at best", "s", [value for one in series for _, value in one.points])
    rules = (RuleLine(8, "one node", "muted"),)
    return line_chart(series, x, y, "Collectives of 400 MB on H100s", "exact bounds at datasheet rates", rules)


def _limits() -> Chart:
    """Tokens for each GPU from which gradients hide, by GPU and by where they are reduced."""
    rows = []
    for name in ("a100", "h100", "b200", "gb200"):
        chip = load_chip(name)
        node = chip.network.levels[0].degree  # pyright: ignore[reportAttributeAccessIssue]
        for group, gpus, split in (
            ("inside a node", node, 1),
            ("across nodes", 16 * node, 1),
            ("a copy over 8 nodes", 64 * node, 8 * node),
        ):
            rows.append(Bar(name.upper(), float(dp_tokens(chip, gpus, split)), group=group))
    title = "Tokens for each GPU from which data parallelism hides"
    return bars(rows, title, "bf16, to first order, at datasheet rates", "count")


PICTURES: dict[str, Callable[[], Chart]] = {
    "gpus-tree": _tree,
    "gpus-collectives": _collectives,
    "gpus-limits": _limits,
}
