"""Every kind of chart: drawn by Vega itself, with labels that are there, whole, distinct and in order."""

import itertools
import json
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest

from dragonscale.blocks.charts import (
    AxisMove,
    Bar,
    Chart,
    LineSeries,
    Mark,
    MeshAxis,
    PartStack,
    Roof,
    RoofPoint,
    RuleLine,
    StackPart,
    bars,
    heat_map,
    line_chart,
    memory_bars,
    mesh_chart,
    predicted_against_measured,
    roofline_chart,
    time_bars,
    together,
)
from dragonscale.blocks.charts.axes import log_axis, pane, zero_axis
from dragonscale.blocks.charts.chart import FORMATS, MIME, encoded, page
from dragonscale.blocks.charts.placing import overlap, place_labels
from dragonscale.blocks.charts.stacks import stack_order
from dragonscale.blocks.charts.theme import THEMES, unlike
from dragonscale.errors import InputError

HOSTILE = "</script><b>\x1b[2J & \"quoted\" 'name'"
TERMS = (
    StackPart("mlp matmuls", 3.6, "compute"),
    StackPart("attention matmuls", 0.7, "compute:1"),
    StackPart("more matmuls", 0.5, "compute:1"),
    StackPart("elementwise", 0.5, "hbm"),
    StackPart("tensor collectives", 0.4, "tensor", 0.1),
    StackPart("fsdp collectives", 0.3, "fsdp", 2.3),
    StackPart("host", 0.01, "overhead"),
    StackPart("optimizer", 0.001, "hbm:2"),
)
PLANS = [
    PartStack("fsdp256 tp2", TERMS, "6 s"),
    PartStack("fsdp512", TERMS[:4], "5.3 s"),
    PartStack("fsdp512", TERMS[2:], ""),
]
HELD = (
    StackPart("weights", 2e9, "weights"),
    StackPart("activations", 5e10, "activations"),
    StackPart("unused", 1e10, "free"),
)
LINES = [
    LineSeries(name, tuple((x, x * slope) for x in (1.0, 10.0, 100.0)), dots=True)
    for name, slope in (("a", 1), ("b", 1.02), ("c", 9))
]
AXES = (log_axis("chips", "degree", [1, 100]), log_axis("time", "s", [1, 900]))
MESH = [
    MeshAxis("data", 16, "data", "the batch", (AxisMove("all-reduce gradients", 3e9, 0.4, 0.1),)),
    MeshAxis("tensor", 8, "tensor", "heads", (AxisMove("all-gather activations", 5e9, 0.2, 0.0),)),
    MeshAxis("pipe", 1, "pipe"),
]
OPS = [RoofPoint(f"a long name of matmul {n}", 300 + n, 5e14 + n * 1e12) for n in range(12)]
GRID = [
    (c, b, None if (c, b) == ("64", "1M") else float(n))
    for n, (b, c) in enumerate(itertools.product(("1M", "2M"), ("64", "128")))
]
CHARTS = {
    "time of one": time_bars(PLANS[:1], "title"),
    "time of several": time_bars(PLANS, "title", "subtitle"),
    "time in lines": time_bars(PLANS[:1], "", axis=""),
    "memory": memory_bars([PartStack("a plan", HELD, "62 GB of 85 GB")], 85e9, "title"),
    "bars": bars([Bar("mlp", 3e9, remark="60%"), Bar("attention", 2e9)], "title", dimension="count"),
    "pairs": bars([Bar(n, v, group=g) for n in "xy" for g, v in (("planned", 1.0), ("compiled", 1.1))], "title"),
    "lines": line_chart(
        LINES, *AXES, "title", "", [RuleLine(20, "a target"), RuleLine(21, "another")], [Mark(10, 90, "here")]
    ),
    "heat map": heat_map(GRID, "chips", "batch", "MFU", "share", "title"),
    "roofline": roofline_chart([Roof("HBM", 1e15, 3e12)], OPS[:3], "title"),
    "crowded roofline": roofline_chart([Roof("HBM", 1e15, 3e12)], OPS, "title"),
    "roofs": roofline_chart([Roof("one", 1e15, 3e12), Roof("two", 1e15, 5e12)], [], "title"),
    "scatter": predicted_against_measured([(1.0, 1.05, "a", "x"), (20.0, 24.0, "b", "y")], "s", "title"),
    "mesh": mesh_chart(MESH, "title"),
    "one chip": mesh_chart([], "title"),
}
CHARTS["together"] = together([CHARTS["time of one"], CHARTS["mesh"]], HOSTILE)


def svg(chart: Chart, theme: str = "light") -> xml.Element:
    pytest.importorskip("vl_convert")
    return xml.fromstring(encoded(chart.to_dict(theme), ".svg"))


def texts(root: xml.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", CHARTS)
def test_every_kind_is_drawn(name: str) -> None:
    chart = CHARTS[name]
    shown = texts(svg(chart, "dark"))
    assert shown
    assert not any("undefined" in text or "NaN" in text or "null" in text or text.endswith("…") for text in shown)
    for theme in THEMES:
        assert "@" not in json.dumps(chart.to_dict(theme)).replace('"@ink"', "")


def test_the_legend_has_the_order_of_the_stack() -> None:
    order = stack_order(PLANS)
    assert order[-1] == "other (2)"
    shown = texts(svg(CHARTS["time of several"]))
    assert [text for text in shown if text in order] == order
    drawn = [row["part"] for row in _rows(CHARTS["time of several"], "part") if row["bar"] == "fsdp256 tp2"]
    assert [name for name in drawn if drawn.count(name) == 1] == [name for name in order if drawn.count(name) == 1]


def test_no_two_parts_share_a_colour() -> None:
    colours = {row["part"]: row["paint"] for row in _rows(CHARTS["time of several"], "part")}
    assert len(set(colours.values())) == len(colours)
    for theme in THEMES.values():
        assert len({theme.colour(f"@{paint}") for paint in colours.values()}) == len(colours)
    assert len(set(unlike(["hbm"] * 12))) == 12


def test_equal_names_stay_apart_and_long_ones_whole() -> None:
    shown = texts(svg(CHARTS["time of several"]))
    assert "fsdp512" in shown
    assert "fsdp512 (2)" in shown
    long = "pp16 dp4 fsdp64 tp8 cp2 ep8 mb2 v4 z1 selective interleaved ulysses fp8 layout=uneven"
    assert long in texts(svg(time_bars([PartStack(long, TERMS)], "title")))


def test_a_bar_is_as_long_as_its_exposed_parts() -> None:
    rows = [row for row in _rows(CHARTS["time of one"], "part") if "hidden" not in row["amount"]]
    assert max(row["to"] for row in rows) == pytest.approx(sum(part.value for part in TERMS))


def test_labels_of_a_crowd_do_not_touch() -> None:
    points = [(200 + 60 * (n % 5), 200 + 30 * (n // 5)) for n in range(15)]
    sizes = [(80.0, 16.0)] * 15
    placed = place_labels(points, sizes, (0, 0, 700, 400))
    boxes = [(one.x, one.y - 8, one.x + 80, one.y + 8) for one in placed if one is not None]
    assert len(boxes) > 8
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))


def test_a_crowded_roofline_numbers_its_points() -> None:
    shown = texts(svg(CHARTS["crowded roofline"]))
    assert sum("a long name" in text for text in shown) >= 1
    assert len(set(shown)) > 10


def test_logarithmic_axes_have_no_empty_decades() -> None:
    axis = log_axis("time", "s", [0.3, 40.0])
    assert axis.low > 0.1
    assert axis.high < 100
    assert zero_axis("time", "s", [6.7]).high < 7.5


@pytest.mark.parametrize("ending", [one for one in FORMATS if one != ".html"])
def test_files(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    path = tmp_path / f"chart{ending.upper() if ending == '.svg' else ending}"
    CHARTS["together"].save(path, theme="dark")
    content = path.read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".json": b"{"}[ending])
    if ending == ".svg":  # the same each time, and XML whatever the names are
        assert content == encoded(CHARTS["together"].to_dict("dark"), ".svg")
        xml.fromstring(content)


def test_a_page_holds_its_data_as_data() -> None:
    """With the libraries, which take seconds to put together, it is tested in `tests/cli/test_files.py`."""
    made = page(CHARTS["together"].to_dict(), "const library = '</script>';")
    assert HOSTILE[:12] not in made
    assert made.count("</script>") == made.count("<script") == 3
    data = made.split('type="application/json">')[1].split("</script>")[0]
    assert json.loads(data) == CHARTS["together"].to_dict()


def test_a_notebook_gets_the_chart_and_a_picture() -> None:
    pytest.importorskip("vl_convert")
    shown = CHARTS["bars"]._repr_mimebundle_()
    assert shown[MIME]["$schema"].endswith("v5.json")
    assert shown["image/svg+xml"].startswith('<svg style="overflow: visible"')
    assert shown["text/plain"] == "Chart('title')"


def test_what_no_chart_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="should end in one of"):
        CHARTS["bars"].save(tmp_path / "chart.bmp")
    with pytest.raises(InputError, match="no theme 'sepia'"):
        CHARTS["bars"].save(tmp_path / "chart.json", theme="sepia")


def _rows(chart: Chart, column: str) -> list[dict[str, Any]]:
    """All rows of data that have a column."""
    found: list[dict[str, Any]] = []

    def walk(spec: Any) -> None:
        if isinstance(spec, dict):
            found.extend(row for row in spec.get("values", []) if isinstance(row, dict) and column in row)
            for value in spec.values():
                walk(value)
        elif isinstance(spec, list):
            for value in spec:
                walk(value)

    walk(chart.spec)
    return found


def test_a_lead_runs_from_a_point_to_its_label() -> None:
    here = pane(100, 50)
    lead = here.lead((0.0, 0.0), (10.0, 20.0))
    layer = here.leads([lead], color="@muted")
    assert (lead["x1"], lead["y1"]) == (10.0, 20.0)
    assert (layer.encoding["x2"], layer.encoding["y2"]) == ({"field": "x1"}, {"field": "y1"})
    assert here.label(10.0, 20.0, "here") == {"x": 10.0, "y": 20.0, "text": "here"}
