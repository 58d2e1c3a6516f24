"""What can be changed of a chip, for the page's "what if" sliders: each with its own value and what each stop makes of
it."""

from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import Chip, parse_target
from dragonscale.physics.hardware.changes import changed_chip, factor_of, knobs_of, read_change
from dragonscale.physics.units import render
from dragonscale.web.amounts import amount
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES
from dragonscale.web.words import looks_like_file, question_of

TITLES: dict[str, str] = TABLES["knobs"]["titles"]
"""The knobs that have a slider, in their order."""
STOPS: list[str] = TABLES["knobs"]["sliders"]["stops"]


def chip_of(asked: PageRequest, set_: str = "", name: str = "") -> Chip:
    """The chip that the fields name (the first of several), or another by its name, with the changes of `set`."""
    text = name or str(asked.fields.get("name") or asked.fields.get("on") or "").split(",")[0]
    question = question_of("chips", {"name": text})
    if looks_like_file(set_):
        raise InputError(f"set is {shorten(set_)}, which looks like a file; the page reads none.")
    chip, _ = parse_target(question.name)
    changes = [one for one in set_.split(",") if one.strip()]
    return changed_chip(chip, *changes) if changes else chip


def knobs_panel(asked: PageRequest) -> dict[str, Any]:
    """A slider for each number of the chip that `--set` can change; `set` of the request says what is
    changed already."""
    given = asked.text("set")
    chip = chip_of(asked)
    chip_of(asked, given)  # refuses what cannot be changed
    changes = dict(read_change(one) for one in given.split(",") if one.strip())
    paths = knobs_of(chip)
    network = paths.get("network") == paths.get("dcn")  # of a torus both names mean the same wires
    rows = [
        _knob(chip, name, title, paths[name], changes.get(name, ""))
        for name, title in TITLES.items()
        if name in paths and not (network and name == "network")
    ]
    return {
        "chip": chip.name,
        "title": chip.title,
        "knobs": rows,
        "kept": [f"{name}={value}" for name, value in changes.items() if name not in TITLES],
    }


def _knob(chip: Chip, name: str, title: str, path: str, value: str) -> dict[str, Any]:
    fact = chip.facts[path]
    own = float(fact.value)
    factor = factor_of(chip, name, value) if value else 1.0
    return {
        "name": name,
        "title": title,
        "value": value,
        "factor": factor,
        "own": amount(own, fact.dimension, f"chip:{path}"),
        "now": amount(own * factor, fact.dimension, f"chip:{path}"),
        "stops": [
            {
                "value": f"{stop}x" if stop != "1" else "",
                "factor": float(stop),
                "text": render(own * float(stop), fact.dimension),
            }
            for stop in STOPS
        ],
    }
