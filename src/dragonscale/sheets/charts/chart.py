"""A picture as a record: a Vega-Lite specification whose colours are meanings, shown in notebooks and saved as files.

>>> one = framed("A title", {"mark": "bar", "data": {"values": []}})
>>> one
Chart('A title')
>>> sorted(one.to_dict())[:3]
['$schema', 'background', 'config']
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.sheets.charts.theme import TITLE, ThemeName, config, resolved, theme_named

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
        own = drawn.pop("config", {})
        return {
            "$schema": SCHEMA,
            "background": settings.pop("background"),
            "padding": settings.pop("padding"),
            **drawn,
            "config": settings | own,
        }

    def in_theme(self, theme: ThemeName) -> "Chart":
        """The same picture for another background."""
        return replace(self, theme=theme_named(theme).name)

    def save(self, path: str | Path, theme: str = "") -> None:
        """Write the picture as .svg, .png, .pdf, .html or .json."""
        from dragonscale.sheets.charts.save import save_chart

        save_chart(self, path, theme)

    @property
    def title(self) -> str:
        """What the picture says it is."""
        found = self.spec.get("title") or {}
        return str(found.get("text", ""))

    def __repr__(self) -> str:
        return f"Chart({self.title!r})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the chart itself where it can draw one, else a picture of it."""
        from dragonscale.sheets.charts.save import picture

        spec = self.to_dict()
        shown: dict[str, Any] = {MIME: spec, "text/plain": repr(self)}
        drawn = picture(spec)
        return shown | ({"image/svg+xml": drawn} if drawn else {})


def framed(title: str, content: dict[str, Any], subtitle: str = "", **more: Any) -> Chart:
    """A chart with a title above it, and a line that says more below that."""
    words: dict[str, Any] = {"text": title} | ({"subtitle": subtitle} if subtitle else {})
    return Chart({"title": words, **content, **more})


def together(charts: Sequence[Chart], title: str, subtitle: str = "", columns: int = 1, spacing: int = 34) -> Chart:
    """Several charts in one figure, in rows of so many; their titles become headings."""
    parts: list[dict[str, Any]] = []
    for one in charts:
        heading = {**one.spec["title"], "fontSize": TITLE - 4, "offset": 12, "anchor": "start"}
        bare = {key: value for key, value in one.spec.items() if key != "title"}
        parts.append(bare | ({"title": heading} if one.title else {}))
    content = {"concat": parts, "columns": columns, "spacing": spacing, "resolve": {"scale": {"color": "independent"}}}
    return framed(title, content, subtitle)
