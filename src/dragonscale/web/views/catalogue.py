"""What the page's form offers: models, chips, stacks, engines, the fields of each command, and the colours of every
chart."""

import functools
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragonscale.faces.cli.completion.offers import known_lists
from dragonscale.faces.cli.mcp.tools import property_of, tools
from dragonscale.models import count_parameters, load_model
from dragonscale.models.catalogue import preset_lines
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.units import render
from dragonscale.sheets.charts.theme import DARK, LIGHT, MEMORY_ROLES, TIME_ROLES, Theme
from dragonscale.web.page_request import PageRequest

COMMANDS = (
    "train",
    "serve",
    "simulate",
    "roofline",
    "shard",
    "collective",
    "chips",
    "models",
    "compare",
    "verify",
    "export",
)


def catalogue_panel(_: PageRequest) -> dict[str, Any]:
    """Everything at once: it is asked when the page opens."""
    return _catalogue()


@functools.cache
def _catalogue() -> dict[str, Any]:
    known, every = known_lists(), tools()
    return {
        "version": version("dragonscale"),
        "docs": (Path(__file__).parents[4] / "docs" / "web.md").is_file(),
        "models": list(known["models"]),
        "presets": _presets(),
        "stacks": list(known["stacks"]),
        "engines": list(known["engines"]),
        "dtypes": list(known["dtypes"]),
        "slices": list(known["slices"]),
        "chips": [_chip(name) for name in chip_names()],
        "fields": {
            name: [
                {
                    "name": field.name,
                    "flag": field.flag,
                    "group": field.group,
                    "place": field.place,
                    "switch": field.switch,
                    "needed": field.required or field.needed,
                    "value": field.value,
                    **property_of(field),
                }
                for field in every[name].fields()
            ]
            for name in COMMANDS
            if name in every
        },
        "colours": {theme.name: _colours(theme) for theme in (LIGHT, DARK)},
    }


def _presets() -> list[dict[str, str]]:
    """The models to choose from, each with its size and family; one whose file states no size is counted."""
    return [
        {"name": name, "family": family, "parameters": render(size or _counted(name), "count")}
        for name, family, size in preset_lines()
    ]


def _counted(name: str) -> int:
    return count_parameters(load_model(name)).total


def _chip(name: str) -> dict[str, Any]:
    chip = load_chip(name)
    return {"name": name, "title": chip.title, "kind": "tpu" if chip.title.startswith("TPU") else "gpu"}


def _colours(theme: Theme) -> dict[str, str]:
    roles = (*TIME_ROLES, *MEMORY_ROLES, "free", "limit")
    tints = ("", ":1", ":2", ":3", ":-1")
    found = {f"{role}{tint}": theme.colour(f"@{role}{tint}") for role in roles for tint in tints}
    return found | {name: theme.colour(f"@{name}") for name in ("background", "ink", "muted", "grid")}


PANELS = {"catalogue": catalogue_panel}
