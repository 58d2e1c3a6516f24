"""What the page's form offers: models, chips, stacks, engines, the fields of each command, and the colours of every
chart."""

import functools
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragonscale.blocks.charts.theme import DARK, LIGHT, MEMORY_ROLES, TIME_ROLES, Theme
from dragonscale.commands.questions.flag import Field
from dragonscale.faces.cli.completion.offers import known_lists
from dragonscale.faces.cli.mcp.tools import property_of, tools
from dragonscale.models import count_parameters, load_model
from dragonscale.models.catalogue import preset_lines
from dragonscale.physics.hardware import Chip, Slice, Torus, chip_names, load_chip
from dragonscale.physics.hardware.slices import domain_of
from dragonscale.physics.units import render
from dragonscale.serving.space.space import slices_of
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.plan.stack import load_stack
from dragonscale.web.page_request import PageRequest
from dragonscale.web.view_names import COMMANDS
from dragonscale.web.views.cards import fields

FAMILIES = {
    "megatron": "Megatron",
    "torchtitan": "torchtitan",
    "torch": "torchtitan",
    "maxtext": "JAX",
    "dragonscale": "JAX",
    "xla": "JAX",
    "hf": "Hugging Face",
    "trl": "Hugging Face",
    "llm": "LLM Foundry",
}
MOST_TRAINING_CHIPS, MOST_SERVING_CHIPS = 65536, 256
"""Chips of the largest slice that a slider offers."""
FORMS = (*COMMANDS, "verify", "export")
"""Commands whose fields the page's forms have."""


def catalogue_panel(_: PageRequest) -> dict[str, Any]:
    """Everything at once: it is asked when the page opens."""
    return _catalogue()


@functools.cache
def _catalogue() -> dict[str, Any]:
    lists, commands = known_lists(), tools()
    return {
        "version": version("dragonscale"),
        "docs": (Path(__file__).parents[4] / "docs" / "web.md").is_file(),
        **{name: list(lists[name]) for name in ("models", "stacks", "engines", "dtypes")},
        "slices": sorted(lists["slices"]),
        "stack_words": {name: _stack(name) for name in lists["stacks"] if name != "auto"},
        "presets": _presets(),
        "chips": [_chip(name) for name in sorted(chip_names())],
        "fields": {name: [_field(field) for field in commands[name].fields()] for name in FORMS if name in commands},
        "colours": {theme.name: _colours(theme) for theme in (LIGHT, DARK)},
    }


def _field(field: Field[Any, Any]) -> dict[str, Any]:
    """A field as a form shows it."""
    needed = {"needed": field.required or field.needed}
    return fields(field, "name flag group place switch value") | needed | property_of(field)


def _stack(name: str) -> dict[str, str]:
    """A stack's family and what it is: its own words, the first sentence."""
    sentence = load_stack(name).why.partition(". ")[0].rstrip(".")
    return {"group": FAMILIES.get(name.partition("-")[0], "Others"), "about": f"{sentence}."}


def _presets() -> list[dict[str, str]]:
    """The models to choose from, each with its size and family; one whose file states no size is counted."""
    sizes = {name: size or count_parameters(load_model(name)).total for name, _, size in preset_lines()}
    presets = [(name, family, render(sizes[name], "count")) for name, family, _ in preset_lines()]
    return [{"name": name, "family": family, "parameters": size} for name, family, size in presets]


def _chip(name: str) -> dict[str, Any]:
    chip = load_chip(name)
    unit = 0 if isinstance(chip.network, Torus) else chip.network.levels[0].degree
    return {
        "name": name,
        "title": chip.title,
        "kind": "tpu" if chip.title.startswith("TPU") else "gpu",
        "node": chip.host_chips,
        "unit": unit,
        "also": _part_racks(chip, unit) if chip.host_chips < unit else [],
        "train": _sizes(slice_sizes(chip, MOST_TRAINING_CHIPS)),
        "serve": _sizes(reversed(slices_of(chip, MOST_SERVING_CHIPS))),
    }


def _part_racks(chip: Chip, rack: int) -> list[int]:
    """Powers of two beyond a rack that can be rented as equal parts of several racks."""
    powers = (2**power for power in range(3, 17))
    return [chips for chips in powers if rack < chips <= MOST_TRAINING_CHIPS and domain_of(chip, chips)]


def _sizes(pieces: Iterable[Slice]) -> list[list[Any]]:
    """Slices as pairs of their chips and their topology, the smallest first; the last of those with as many chips."""
    topologies = {slice_.chips: str(slice_).partition(":")[2] for slice_ in pieces}
    return [[chips, topology] for chips, topology in sorted(topologies.items())]


def _colours(theme: Theme) -> dict[str, str]:
    roles = (*TIME_ROLES, *MEMORY_ROLES, "free", "limit")
    tints = ("", ":1", ":2", ":3", ":-1")
    colours = {f"{role}{tint}": theme.colour(f"@{role}{tint}") for role in roles for tint in tints}
    return colours | {name: theme.colour(f"@{name}") for name in ("background", "ink", "muted", "grid")}


PANELS = {"catalogue": catalogue_panel}
