"""What the page shows before the planner has said anything: the answers to the questions that its tabs open with.

    python -m tools.static_edition.first_answers

writes them beside the page; the static edition has its own, worked out when it is built.
"""

import json
from pathlib import Path
from typing import Any

from dragonscale.web.answers import answer

PAGE = Path(__file__).parents[2] / "src" / "dragonscale" / "web" / "page"
FILE = "first.json"
OPENED: dict[str, tuple[dict[str, str], list[str]]] = {
    "train": (
        {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "4Mi", "seq": "8192"},
        ["answer", "time", "memory", "mesh", "sliders"],
    ),
    "serve": (
        {"model": "llama3-70b", "on": "h100:8", "prompt": "2048", "output": "512", "ttft": "1s", "tpot": "50ms"},
        ["answer", "time", "memory", "mesh"],
    ),
}
"""The fields that `page/js/state.js` opens with, and the panels in sight."""


def first_answers() -> dict[str, dict[str, Any]]:
    """Panels by tab; parts of bars without the lines behind them, which come with the planner."""
    found: dict[str, dict[str, Any]] = {}
    for view, (fields, panels) in OPENED.items():
        drawn: dict[str, Any] = {}

        def hear(message: dict[str, Any], drawn: dict[str, Any] = drawn) -> None:
            drawn |= {message["panel"]: message["data"]} if "panel" in message else {}

        answer({"view": view, "fields": fields, "panels": panels}, hear)
        found[view] = {"fields": fields, "panels": _without_lines(drawn)}
    return found


def _without_lines(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: [] if name == "lines" else _without_lines(value) for name, value in data.items()}
    return [_without_lines(one) for one in data] if isinstance(data, list) else data


def text() -> str:
    """The file."""
    return json.dumps(first_answers(), separators=(",", ":"), ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (PAGE / FILE).write_text(text(), encoding="utf-8")
