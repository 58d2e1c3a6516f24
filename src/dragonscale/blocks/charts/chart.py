"""A picture as a record: a Vega-Lite specification whose colours are meanings, shown in notebooks and saved as files.

>>> one = framed("A title", {"mark": "bar", "data": {"values": []}})
>>> one
Chart('A title')
>>> sorted(one.to_dict())[:3]
['$schema', 'background', 'config']

Charts as files: SVG and PDF for slides, PNG at twice the size, a web page that needs nothing else, or Vega-Lite
itself.

Everything but JSON is drawn by vl-convert (the extra `plot`), which runs Vega without a browser.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dragonscale.blocks.charts.text import fitted
from dragonscale.blocks.charts.theme import TITLE, ThemeName, config, resolved, theme_named
from dragonscale.errors import InputError, shorten
from dragonscale.files import is_stream, write_file
from dragonscale.installing import install_hint

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
MIME = "application/vnd.vegalite.v5+json"
WIDTH, HEIGHT = 860, 400
"""Pixels of a chart's inside; with its axes and title it is about as wide as a slide has points."""


@dataclass(frozen=True)
class Chart:
    """A picture. `spec` is Vega-Lite with colours such as `@compute`; `to_dict` puts a theme's colours in."""

    spec: dict[str, Any]
    theme: ThemeName = "light"

    def to_dict(self, theme: str = "") -> dict[str, Any]:
        """The Vega-Lite specification, ready to be drawn, in the chart's theme or another."""
        chosen = theme_named(theme or self.theme)
        settings = config(chosen)
        drawn = resolved(self.spec, chosen)
        own_config = drawn.pop("config", {})
        return {
            "$schema": SCHEMA,
            "background": settings.pop("background"),
            "padding": settings.pop("padding"),
            **drawn,
            "config": settings | own_config,
        }

    def save(self, path: str | Path, theme: str = "") -> None:
        """Write the picture as .svg, .png, .pdf, .html or .json."""

        save_chart(self, path, theme)

    @property
    def title(self) -> str:
        """What the picture says it is."""
        title = self.spec.get("title") or {}
        return str(title.get("text", ""))

    def __repr__(self) -> str:
        return f"Chart({self.title!r})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the chart itself where it can draw one, else a picture of it."""

        spec = self.to_dict()
        shown: dict[str, Any] = {MIME: spec, "text/plain": repr(self)}
        drawn = picture(spec)
        return shown | ({"image/svg+xml": drawn} if drawn else {})


def framed(title: str, content: dict[str, Any], subtitle: str = "", **more: Any) -> Chart:
    """A chart with a title above it, and a line that says more below that."""
    title_spec: dict[str, Any] = {"text": title} | ({"subtitle": subtitle} if subtitle else {})
    return Chart({"title": title_spec, **content, **more})


def together(charts: Sequence[Chart], title: str, subtitle: str = "", columns: int = 1, spacing: int = 34) -> Chart:
    """Several charts in one figure, in rows of so many; their titles become headings."""
    parts: list[dict[str, Any]] = []
    for chart in charts:
        heading = {**chart.spec["title"], "fontSize": TITLE - 4, "offset": 12, "anchor": "start"}
        bare = {key: value for key, value in chart.spec.items() if key != "title"}
        parts.append(bare | ({"title": heading} if chart.title else {}))
    content = {"concat": parts, "columns": columns, "spacing": spacing, "resolve": {"scale": {"color": "independent"}}}
    return framed(title, content, subtitle)


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
        raise InputError(
            f"Plots as PNG, SVG, PDF or HTML need an extra (a .json file needs none): {install_hint('plot')}"
        ) from None
    spec = printable(spec)
    if suffix == ".png":
        return vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=SCALE)
    if suffix == ".pdf":
        return vl_convert.vegalite_to_pdf(spec, vl_version=VEGALITE)
    if suffix == ".svg":
        return fitted(counted_anew(vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE))).encode()
    # Its stub asks for a snippet; without one the libraries become globals, and are put together only once a process.
    libraries = vl_convert.javascript_bundle(vl_version=VEGALITE)  # pyright: ignore[reportCallIssue]
    return page(spec, libraries).encode()


def picture(spec: dict[str, Any]) -> str:
    """The chart as SVG, or nothing where vl-convert is not installed. Labels in a reader's wider font may leave it."""
    drawn = encoded(spec, ".svg").decode() if find_spec("vl_convert") else ""
    return drawn.replace("<svg ", '<svg style="overflow: visible" ', 1)


def counted_anew(svg: str) -> str:
    """A picture whose clips and gradients are numbered from one: Vega counts them over the life of a process, so that
    the same chart would differ by what was drawn before it.

    >>> counted_anew('<g clip-path="url(#clip44)"/><clipPath id="clip45"/><clipPath id="clip44"/>')
    '<g clip-path="url(#clip1)"/><clipPath id="clip2"/><clipPath id="clip1"/>'
    """
    counts: dict[str, int] = {}

    def counted(match: re.Match[str]) -> str:
        return f"{match[1]}{counts.setdefault(match[0], len(counts) + 1)}"

    return re.sub(r"(?<=[#\"])(clip|gradient_)\d+\b", counted, svg)


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
