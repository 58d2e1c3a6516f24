"""How to read HLO: short notes that `dscale hlo TOPIC` shows, each with a line to try (`topics.toml`)."""

import tomllib
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from dragonscale.app.record import Record
from dragonscale.evidence.xla.layouts import MEMORIES, memory_name
from dragonscale.physics.collectives import wire_bytes

_NOTES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("topics.toml").read_text("utf-8"))
TOPICS = tuple(_NOTES)


class NotePoint(msgspec.Struct):
    """A point of a note: its name and what is to say of it."""

    name: str
    about: str = ""


class HloTopic(Record):
    """A note on reading HLO."""

    topic: str
    title: str
    points: list[NotePoint]
    example: str = ""

    def headline(self) -> str:
        return self.title


def topic(name: str) -> HloTopic:
    """One note."""
    scattered = wire_bytes("reduce_scatter", 1.0, 8) / wire_bytes("all_reduce", 1.0, 8)
    words = {f"memory_{space}": memory_name(space) for space in MEMORIES} | {"scattered": f"{scattered:.0%}"}
    points = [NotePoint(title, Template(about).substitute(words)) for title, about in _NOTES[name]["points"]]
    return HloTopic(name, _NOTES[name]["title"], points, _NOTES[name].get("example", ""))
