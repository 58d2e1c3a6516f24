"""Charts as files: SVG and PDF for slides, PNG at twice the size, a web page that needs nothing else, or Vega-Lite itself.

Everything but JSON is drawn by vl-convert (the extra `plot`), which runs Vega without a browser.
"""

import json
from pathlib import Path
from typing import Any

from dragonscale.charts.chart import Chart
from dragonscale.errors import InputError, shorten

FORMATS = (".png", ".svg", ".pdf", ".html", ".json")
SCALE = 2
"""PNG pixels for each pixel of the chart: sharp on a projector and on a dense screen."""
VEGALITE = "5.21"
"""The Vega-Lite that draws: the newest of the version that charts are written in and vl-convert has."""


def check_plot_file(path: str | Path) -> Path:
    """The file that a chart is to be written to, or one sentence that its ending is none of those known."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InputError(f"The plot file {shorten(str(path))} should end in one of {', '.join(FORMATS)}.")
    return target


def save_chart(chart: Chart | dict[str, Any], path: str | Path, theme: str = "") -> None:
    """Write a chart in the form that the file's ending names."""
    target = check_plot_file(path)
    spec = chart.to_dict(theme) if isinstance(chart, Chart) else chart
    content = encoded(spec, target.suffix.lower())
    try:
        target.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"The plot file {shorten(str(path))} cannot be written: {reason}.") from None


def encoded(spec: dict[str, Any], suffix: str) -> bytes:
    """The bytes of a file with this ending."""
    if suffix == ".json":
        return (json.dumps(spec, indent=1, ensure_ascii=False) + "\n").encode()
    try:
        import vl_convert
    except ImportError:
        extra = "pip install 'dragonscale[plot]'; .json needs nothing."
        raise InputError(f"Plots as PNG, SVG, PDF or HTML need the extra: {extra}") from None
    if suffix == ".png":
        return vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=SCALE)
    if suffix == ".pdf":
        return vl_convert.vegalite_to_pdf(spec, vl_version=VEGALITE)
    if suffix == ".svg":
        return vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE).encode()
    return page(spec, vl_convert.javascript_bundle(_SHOWN, vl_version=VEGALITE)).encode()


def picture(spec: dict[str, Any]) -> str:
    """The chart as SVG, or nothing where vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        return ""
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)


_SHOWN = """
const spec = JSON.parse(document.getElementById("chart-spec").textContent);
vegaEmbed("#chart", spec, {renderer: "svg", actions: {export: true, source: false, compiled: false, editor: false}});
"""


def page(spec: dict[str, Any], script: str) -> str:
    """A web page that holds the chart, its data and the script that draws it.

    Names inside the data come from users' files, so `<` never stands in it as itself: `</script>` in a name cannot end the
    element.

    >>> "</script><b>" in page({"title": "</script><b>"}, "")
    False
    """
    data = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    colour = spec.get("background", "#FFFFFF")
    head = f'<meta charset="utf-8"><title>Dragonscale</title><style>body{{margin:0;background:{colour}}}</style>'
    body = f'<div id="chart"></div><script id="chart-spec" type="application/json">{data}</script>'
    # The libraries' own text holds no user's words, but may hold the end of an element inside a string.
    safe = script.replace("</script", "<\\/script")
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}<script type="module">{safe}</script></body></html>\n'
