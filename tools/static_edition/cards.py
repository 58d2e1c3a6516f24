"""Cards of the page inside docs and course: a slider beside the formula it moves, every stop worked out when the site
is made, so that a card is there at once and asks nobody.

`finished` puts a card in the place of a picture of a built page; where no script runs, the picture is what is shown.
"""

import functools
import html
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from dragonscale.web.answers import answer

FILE = Path(__file__).with_name("cards.toml")
SHOWN = 3
"""Figures of an answer that a card has room for."""
HIGH = 470
"""Pixels of a card."""


class LiveCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table."""

    name: str
    page: str
    picture: str
    title: str
    label: str
    view: str
    fields: dict[str, Any]
    slider: str
    stops: list[str]
    start: int
    numbers: list[str]
    near: bool = False


@functools.cache
def cards() -> tuple[LiveCard, ...]:
    """Every card."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), dict[str, tuple[LiveCard, ...]])["card"]


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    answer(
        request, lambda message: found.update({message["panel"]: message["data"]} if "panel" in message else message)
    )
    if "error" in found:
        raise ValueError(f"A card's question was refused: {found['error']['text']}")
    return found


def stop_of(card: LiveCard, stop: str) -> dict[str, Any]:
    """What is shown at a stop of the slider: sentence, figures, parts of a bar, formulas with their numbers in."""
    fields = card.fields | {card.slider: stop}
    panels = ["answer"] if card.view == "roofline" else ["answer", "time"]
    found = _asked({"view": card.view, "fields": fields, "panels": panels, "brief": True, "near": card.near})
    said = found["answer"]
    if card.near:
        fields |= {"plan": said["plan"]}
    figures = [one for one in said["figures"] if one["number"]["text"] != "–"][:SHOWN]
    return {
        "text": f"{int(stop.removesuffix('seq').rpartition('=')[2]):,}",
        "sentence": said["sentence"],
        "plan": said.get("plan", "") if card.near else "",
        "figures": [
            {name: one[name] for name in ("label", "about")} | {"text": one["number"]["text"]} for one in figures
        ],
        "parts": _parts(found.get("time", {})),
        "formulas": [formula for number in card.numbers for formula in _formulas(card, fields, said, number)],
        "address": f"#{card.view if card.view != 'roofline' else 'operations'}?{urlencode(_typed(fields))}",
    }


def _typed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "alone"}


def _parts(time: Mapping[str, Any]) -> list[dict[str, Any]]:
    bars = time.get("bars")
    parts = next(bar["parts"] for bar in bars if bar["name"] == "decode") if bars else time.get("parts", [])
    kept = ("name", "role", "shown", "hidden")
    return [{name: _bare(one[name]) for name in kept if name in one} for one in parts]


def _bare(value: Any) -> Any:
    return value | {"why": ""} if isinstance(value, dict) else value


def _formulas(card: LiveCard, fields: Mapping[str, Any], said: Mapping[str, Any], number: str) -> list[dict[str, Any]]:
    """The last formula of a number, which gives seconds, with its letters; of a figure all that it has."""
    place = re.fullmatch(r"figure (\d+)", number)
    why = said["figures"][int(place[1])]["number"]["why"] if place else number
    asked = {"view": "why", "of": card.view, "fields": fields, "number": why, "panels": ["formula"]}
    found = _asked(asked)["formula"]
    kept = found["formulas"] if place else found["formulas"][-1:]
    name = number.partition(":")[2]
    letters = [f"{one['letter']}: {one['what']}, {one['value']}" for one in found["letters"]]
    return [
        {"name": f"{name}, {one['name']}" if name else one["name"], "letters": letters}
        | {key: one[key] for key in ("text", "math", "value", "numbers", "put_in")}
        for one in kept
    ]


def card_data(card: LiveCard) -> bytes:
    """A card's file."""
    made = {"title": card.title, "label": card.label, "start": card.start, "picture": f"../pictures/{card.picture}.svg"}
    stops = [stop_of(card, one) for one in card.stops]
    return json.dumps(made | {"stops": stops}, separators=(",", ":"), ensure_ascii=False).encode()


def finished(text: str, source: str, up: str) -> str:
    """The HTML of a page of docs with its cards; `up` leads to the site's root.

    >>> text = finished('<p><img alt="a" src="pictures/answer.svg"></p>', "index.md", "")
    >>> text[:76]
    '<p><iframe class="live-card" title="A step of LLaMA-3 70B on 512 H100" src="'
    >>> text[-62:]
    '></iframe><noscript><img alt="a" src="pictures/answer.svg"></noscript></p>'[-62:]
    """
    for card in cards():
        if card.page == source:
            frame = (
                f'<iframe class="live-card" title="{html.escape(card.title)}" src="{up}app/card.html#{card.name}" '
                f'loading="lazy" width="100%" height="{HIGH}"></iframe>'
            )
            pattern = rf"((?:<img[^>]*pictures/{re.escape(card.picture)}(?:-dark)?\.svg[^>]*>)+)"
            text = re.sub(pattern, lambda found: f"{frame}<noscript>{found[1]}</noscript>", text, count=1)  # noqa: B023
    return text
