"""Charts as files: SVG and PDF for slides, PNG at twice the size, a web page that needs nothing else, or Vega-Lite
itself.

Everything but JSON is drawn by vl-convert (the extra `plot`), which runs Vega without a browser.
"""

import json
import re
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.files import is_stream, write_file
from dragonscale.sheets.charts.chart import Chart

FORMATS = (".png", ".svg", ".pdf", ".html", ".json")
SCALE = 2
"""PNG pixels for each pixel of the chart: sharp on a projector and on a dense screen."""
VEGALITE = "5.21"
"""The Vega-Lite that draws: the newest of the version that charts are written in and vl-convert has."""


def check_chart(path: str | Path) -> None:
    """Refuse a file that no chart can be, before anything is computed. A device or a pipe without an
    ending gets the JSON."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS and (ending or not is_stream(path)):
        raise InputError(f"The plot file {shorten(str(path))} should end in one of {', '.join(FORMATS)}.")


def save_chart(chart: Chart, path: str | Path, theme: str = "") -> None:
    """Write a chart in the form that the file's ending names."""
    check_chart(path)
    write_file(path, encoded(chart.to_dict(theme), Path(path).suffix.lower() or ".json"), "The chart")


def encoded(spec: dict[str, Any], suffix: str) -> bytes:
    """The bytes of a file with this ending."""
    if suffix == ".json":
        return (json.dumps(spec, indent=1, ensure_ascii=False) + "\n").encode()
    try:
        import vl_convert
    except ImportError:
        extra = "pip install 'dragonscale[plot]'; .json needs nothing."
        raise InputError(f"Plots as PNG, SVG, PDF or HTML need the extra: {extra}") from None
    spec = printable(spec)
    if suffix == ".png":
        return vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=SCALE)
    if suffix == ".pdf":
        return vl_convert.vegalite_to_pdf(spec, vl_version=VEGALITE)
    if suffix == ".svg":
        return counted_anew(vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)).encode()
    # Its stub asks for a snippet; without one the libraries become globals, and are put together only once a process.
    libraries = vl_convert.javascript_bundle(vl_version=VEGALITE)  # pyright: ignore[reportCallIssue]
    return page(spec, libraries).encode()


def picture(spec: dict[str, Any]) -> str:
    """The chart as SVG, or nothing where vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        return ""
    return counted_anew(vl_convert.vegalite_to_svg(printable(spec), vl_version=VEGALITE))


def counted_anew(svg: str) -> str:
    """A picture whose clips and gradients are numbered from one: Vega counts them over the life of a process, so that
    the same chart would differ by what was drawn before it.

    >>> counted_anew('<g clip-path="url(#clip44)"/><clipPath id="clip45"/><clipPath id="clip44"/>')
    '<g clip-path="url(#clip1)"/><clipPath id="clip2"/><clipPath id="clip1"/>'
    """
    numbers: dict[str, int] = {}
    return re.sub(
        r"(?<=[#\"])(clip|gradient_)\d+\b",
        lambda match: f"{match[1]}{numbers.setdefault(match[0], len(numbers) + 1)}",
        svg,
    )


def printable(spec: Any) -> Any:
    """A specification whose texts have no characters that SVG and PDF cannot hold, or that turn text around.

    >>> printable({"title": "a\\x1bb\\u202e"})
    {'title': 'a?b?'}
    """
    if isinstance(spec, dict):
        return {printable(key): printable(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [printable(value) for value in spec]
    if not isinstance(spec, str) or spec.isprintable():
        return spec
    return "".join(c if c.isprintable() else "?" for c in spec)


_SHOWN = """
{
  const spec = JSON.parse(document.getElementById("chart-spec").textContent);
  const actions = {export: true, source: false, compiled: false, editor: false};
  vegaEmbed("#chart", spec, {renderer: "svg", actions}).catch(console.error);
}
"""


def page(spec: dict[str, Any], script: str) -> str:
    """A web page that holds the chart, its data and the script that draws it.

    Names inside the data come from users' files, so `<` never stands in it as itself: `</script>` in a name cannot end
    the element.

    >>> "</script><b>" in page({"title": "</script><b>"}, "")
    False
    """
    data = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    colour = spec.get("background", "#FFFFFF")
    head = f'<meta charset="utf-8"><title>Dragonscale</title><style>body{{margin:0;background:{colour}}}</style>'
    body = f'<div id="chart"></div><script id="chart-spec" type="application/json">{data}</script>'
    # The libraries' own text holds no user's words, but may hold the end of an element inside a string.
    libraries = script.replace("</script", "<\\/script")
    scripts = f"<script>{libraries}</script><script>{_SHOWN}</script>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}{scripts}</body></html>\n'
